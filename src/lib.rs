//! Who goes next, and where.
mod admission;
pub mod admit;
pub mod gate;
pub mod http;
pub mod queue;
#[cfg(feature = "route")]
pub mod route;
mod sync;

pub use self::http::{Explain, PermitBody, Rejection, RetryAfter, RetryAfterMode};
pub use admit::{
    Capacity, Counts, Denied, Discipline, InvalidLevels, Levels, Permits, Pool, Pools, Priority,
    Rejected, RoomConfig, Tenant, Ticket,
};
pub use gate::Gate;
pub use queue::{
    Concurrency, ConfigError, Hold, Overflow, Queue, QueueConfig, QueueError, QueueHandle,
    QueueLayer, Streaming,
};
#[cfg(feature = "route")]
pub use route::{Route, RouteLayer, Router, RouterHandle};
