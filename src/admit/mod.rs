//! The pure core: tickets, waiting rooms, disciplines, capacities.
//!
//! It decides which request goes next, and does nothing else: no async, no clock, no HTTP, no locks. Time comes in as an
//! argument, effects go out as return values. A [`WaitingRoom`] keeps the waiting tickets, a [`Capacity`] knows the slots.
//!
//! The files, in the order in which to read them:
//!
//! - `ticket`, `priority`, `config`, `capacity`: what goes in; `reject_reason`, `room_stats`, `level_status`, `wake_list`:
//!   what comes out.
//! - `room`: what a waiting room has to do. `plain_room` does it for the usual configuration, `full_room` for every other.
//!   `waiting_room` is the public type, which picks one of the two.
//! - `limiter`: how many slots there are, where that is found by measurement.
//! - `wait_queue`: the order of the full room, apart from slots: lanes, disciplines, partitions, aging.
//! - `overload`: what a room measures, to refuse early which request would wait too long.
//! - `waiters`, `ordered_queue`, `by_level`, `timeouts`, `room_base`, `nanos`, `trim`: what both rooms are built of.

mod account;
mod age_order;
mod by_level;
mod capacity;
mod compact_slab;
mod config;
mod flow;
mod full_room;
mod heap;
mod largest_flows;
mod level_status;
mod limiter;
pub(crate) mod nanos;
mod ordered_queue;
mod overload;
mod plain_room;
mod priority;
mod reject_reason;
mod room;
mod room_base;
mod room_stats;
mod slot_pool;
mod tenant_leases;
mod ticket;
mod timeouts;
mod trim;
mod wait_queue;
mod waiters;
mod waiting_room;
pub(crate) mod wake_list;

pub(crate) use account::{Account, Share};
pub use capacity::{Capacity, LeaseError, Partition, PoolId, PoolSet, SlotState};
pub(crate) use config::room_methods;
pub use config::{
    Discipline, InvalidWaitingRoom, KeptSlots, Reserve, TargetWait, WaitingRoomConfig,
};
pub use level_status::LevelStatus;
#[cfg(feature = "serde")]
pub(crate) use level_status::seconds;
pub use limiter::{
    AdaptiveLimit, InvalidAdaptiveLimit, LimitAlgorithm, LimitOutcome, LimitSample, Limiter,
};
pub use overload::ServiceSample;
pub(crate) use priority::MAX_LEVELS;
pub use priority::{InvalidPriorityLevels, Priority, PriorityLevels};
pub use reject_reason::RejectReason;
pub(crate) use room::{Arrival, State};
pub(crate) use room_base::time_for;
pub use room_stats::RoomStats;
pub use slot_pool::{Slot, SlotPool};
pub use ticket::{Tenant, Ticket};
pub use wait_queue::{Pushed, Skipped, WaitQueue};
pub use waiters::WaiterId;
pub use waiting_room::{AdmitOutcome, FirstWaiter, WaitingRoom};
pub(crate) use waiting_room::{Answered, Making};
pub use wake_list::WakeList;
