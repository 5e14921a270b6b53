//! Who goes next, and where.
pub mod admit;
pub mod gate;
mod sync;
pub use admit::{
    Capacity, Counts, Denied, Discipline, InvalidLevels, Levels, Permits, Pool, Pools, Priority,
    Rejected, RoomConfig, Tenant, Ticket,
};
