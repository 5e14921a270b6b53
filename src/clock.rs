//! What time it is: Tokio's clock, so that a paused clock pauses everything here.

use std::time::Instant;

#[cfg(not(loom))]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Under `loom` time stands still, and the models say when a deadline has passed.
#[cfg(loom)]
pub(crate) fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}
