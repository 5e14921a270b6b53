//! Who goes next, and where.
pub mod admit;
pub mod http;
pub mod queue;

pub use self::http::{Explain, PermitBody, Rejection, RetryAfter, RetryAfterMode};
pub use admit::{
    Capacity, Denied, Discipline, InvalidLevels, Levels, Pool, Pools, Priority, Rejected,
    RoomConfig, Tenant, Ticket,
};
pub use queue::{Concurrency, ConfigError, Hold, Overflow, QueueConfig, Streaming};
