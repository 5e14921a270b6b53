//! The errors of stores.

use std::time::Duration;

/// A store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It holds as many requests as it may.
    #[error("the store holds as many requests as it may: {max_size}")]
    QueueFull {
        /// The bound.
        max_size: u64,
    },
    /// It holds as many requests of this tenant as it may.
    #[error("the store holds as many requests of this tenant as it may: {max_size}")]
    TenantQueueFull {
        /// The bound.
        max_size: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// The disk or the memory behind it is full.
    #[error("the storage is full: {0}")]
    StorageFull(String),
    /// Too few replicas had the request in time. It is stored all the same.
    #[error("the request was not on {wanted} replicas within {within:?}")]
    NotReplicated {
        /// The number of replicas that were asked for.
        wanted: u32,
        /// The time they had.
        within: Duration,
    },
    /// It can't be reached, or has failed. Nothing is known about the effect of the call.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}
