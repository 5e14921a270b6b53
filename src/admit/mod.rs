//! The pure core: who goes next.
//!
//! Without one place that decides, every queue, limit and router decides for itself, and a slot that one of
//! them frees is lost on the waiters of another. This room holds the decision and nothing else: no async, no
//! clock, no HTTP, no locks. Time comes in as an argument, effects go out as return values.
//!
//! [`WaitingRoom`] keeps the waiting tickets, a [`Capacity`] knows the slots, and [`WaitingRoom::arrive`] and
//! [`WaitingRoom::on_release`] bring the two together.

mod alarm;
mod arrive;
mod blocks;
mod capacity;
mod chairs;
mod change;
mod config;
mod departure_rate;
mod discipline;
mod ends;
mod express;
mod heap;
mod lanes;
mod line;
mod nanos;
mod patience;
mod priority;
mod pull;
mod pump;
mod reject_reason;
mod room;
mod room_stats;
mod rows;
mod sections;
mod slot_pool;
mod ticket;
mod trim;
mod wake_list;

pub use capacity::{Capacity, LeaseError, Partition, PoolId, PoolSet};
#[cfg(feature = "serde")]
pub(crate) use config::read;
pub use config::{Discipline, InvalidWaitingRoom, WaitingRoomConfig};
pub(crate) use departure_rate::time_for;
#[cfg(feature = "batch")]
pub(crate) use express::Express;
#[cfg(feature = "batch")]
pub(crate) use nanos::{Epoch, Nanos, Times};
pub use priority::{InvalidPriorityLevels, Priority, PriorityLevels};
pub use pull::Skipped;
pub use reject_reason::RejectReason;
pub use room::{AdmitOutcome, WaiterId, WaitingRoom};
pub(crate) use room::{Answer, State};
pub use room_stats::RoomStats;
pub use slot_pool::{Slot, SlotPool};
pub use ticket::{Tenant, Ticket};
pub use wake_list::WakeList;
#[cfg(feature = "batch")]
pub(crate) use wake_list::wake;
