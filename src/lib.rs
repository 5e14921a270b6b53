//! Who goes next, and where.
pub mod admit;
pub mod http;

pub use self::http::{Explain, PermitBody, Rejection, RetryAfter, RetryAfterMode};
pub use admit::{
    Capacity, Denied, Discipline, InvalidLevels, Levels, Pool, Pools, Priority, Rejected,
    RoomConfig, Tenant, Ticket,
};
