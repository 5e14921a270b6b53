//! The waiting room in front of a service: what it is made of.

mod config;

pub use config::{Concurrency, ConfigError, Hold, Overflow, QueueConfig, Streaming};
