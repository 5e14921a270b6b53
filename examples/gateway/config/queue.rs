//! `[queue]`

/// The section as it stands.
pub(crate) type QueueConfig = toml::Table;
