//! The pure core.
mod capacity;
mod config;
mod priority;
mod rejected;
mod ticket;

pub use capacity::{Capacity, Denied, Pool, Pools};
pub use config::{Discipline, RoomConfig};
pub use priority::{InvalidLevels, Levels, Priority};
pub use rejected::Rejected;
pub use ticket::{Tenant, Ticket};
