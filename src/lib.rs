//! Who goes next, and where.
pub mod admit;
pub use admit::{
    Capacity, Denied, Discipline, InvalidLevels, Levels, Pool, Pools, Priority, Rejected,
    RoomConfig, Tenant, Ticket,
};
#[cfg(feature = "route")]
pub mod route;
