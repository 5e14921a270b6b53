//! The pure core: who goes next.
//!
//! Without one place that decides, every queue, limit and router decides for itself, and a slot that one of
//! them frees is lost on the waiters of another. This room holds the decision and nothing else: no async, no
//! clock, no HTTP, no locks. Time comes in as an argument, effects go out as return values.
//!
//! [`WaitingRoom`] keeps the waiting tickets, a [`Capacity`] knows the slots, and [`WaitingRoom::arrive`] and
//! [`WaitingRoom::released`] bring the two together.

mod alarm;
mod arrive;
mod blocks;
mod capacity;
mod chairs;
mod change;
mod config;
mod counts;
mod discipline;
mod drain;
mod ends;
mod express;
mod heap;
mod lanes;
mod line;
mod nanos;
mod patience;
mod permits;
mod priority;
mod pull;
mod pump;
mod rejected;
mod room;
mod rows;
mod sections;
mod ticket;
mod trim;
mod woken;

pub use capacity::{Capacity, Denied, Pool, Pools, Section};
pub use config::{Discipline, RoomConfig};
pub use counts::Counts;
pub(crate) use drain::time_for;
#[cfg(feature = "batch")]
pub(crate) use express::Express;
#[cfg(feature = "batch")]
pub(crate) use nanos::{Epoch, Nanos, Times};
pub use permits::{Permits, Slot};
pub use priority::{InvalidLevels, Levels, Priority};
pub use pull::Aside;
pub use rejected::Rejected;
pub(crate) use room::{Answer, State};
pub use room::{Key, Outcome, WaitingRoom};
pub use ticket::{Tenant, Ticket};
pub use woken::Woken;
#[cfg(feature = "batch")]
pub(crate) use woken::wake;
