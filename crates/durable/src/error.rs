//! The error type of all stores.

use std::time::Duration;

/// The reason why a store could not do an operation.
///
/// A caller sees it as an HTTP [rejection](tower_triage::rejection::ToRejection), while its details go to the operator's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store holds as many requests as its configuration allows.
    #[error("the store holds as many requests as it may: {max_size}")]
    QueueFull {
        /// The bound that was reached, as [`StoreConfig::max_size`](super::StoreConfig::max_size) sets it.
        max_size: u64,
    },
    /// The store holds as many requests of this tenant as its configuration allows.
    #[error("the store holds as many requests of this tenant as it may: {max_size}")]
    TenantQueueFull {
        /// The bound that was reached, as [`StoreConfig::max_size_per_tenant`](super::StoreConfig::max_size_per_tenant)
        /// sets it.
        max_size: u64,
    },
    /// The tenant used this idempotency key for another request before.
    #[error("the idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// The disk or the memory behind the store is full, as the text says in detail.
    #[error("the storage is full: {0}")]
    StorageFull(String),
    /// Too few replicas confirmed the request in time. The store keeps the request all the same.
    #[error("the request was not on {wanted} replicas within {within:?}")]
    NotReplicated {
        /// The number of replicas that the configuration asks for.
        wanted: u32,
        /// The time that the replicas had to confirm the request.
        within: Duration,
    },
    /// The store does not offer this operation.
    #[error("the store does not offer `{0}`")]
    Unsupported(&'static str),
    /// The store can't be reached or has failed, as the text says in detail. The call may or may not have taken effect,
    /// so a caller repeats it.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}
