//! The pure core: tickets, waiting rooms, disciplines, capacities.
//!
//! The core decides which request goes next, and does nothing else. It is free of async, clocks, HTTP and locks. Time
//! comes in as an argument, and effects go out as return values. A [`WaitingRoom`] holds the waiting tickets, and a
//! [`Capacity`] knows the slots.
//!
//! The files, in the order in which to read them:
//!
//! - `ticket`, `priority`, `config` and `capacity` are the inputs. `reject_reason`, `room_stats`, `level_status` and
//!   `wake_list` are the outputs.
//! - `waiting_room` is the wait queue in front of a capacity. It asks the capacity through `ask`.
//! - `limiter` finds the number of slots by measurement, for services with an unknown limit.
//! - `wait_queue` is the order of the waiters, apart from slots. It has levels, or lanes with disciplines, partitions
//!   and aging.
//! - `overload` measures a room, to refuse requests early that would wait too long.
//! - `waiters`, `ordered_queue`, `by_level`, `timeouts`, `room_base`, `nanos` and `trim` are the parts that a wait
//!   queue is built of.

mod account;
mod age_order;
pub(crate) mod ask;
mod by_level;
mod capacity;
mod compact_slab;
mod config;
mod flow;
mod heap;
mod largest_flows;
mod level_status;
mod limiter;
pub(crate) mod nanos;
mod ordered_queue;
mod overload;
mod priority;
mod reject_reason;
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
pub use capacity::{
    Capacity, LeaseError, OnDemandCapacity, Partition, PoolId, PoolSet, SlotState, SlotUsage,
};
pub(crate) use config::room_methods;
pub use config::{
    Discipline, InvalidWaitingRoom, KeptSlots, ReservedSlots, TargetWait, WaitingRoomConfig,
};
#[cfg(feature = "serde")]
pub(crate) use level_status::seconds;
pub use limiter::{AdaptiveLimit, InvalidAdaptiveLimit, LimitAlgorithm};
pub(crate) use priority::MAX_LEVELS;
pub use priority::{InvalidPriorityLevels, Priority, PriorityLevels};
pub use reject_reason::RejectReason;
pub(crate) use room_base::time_for;
pub use room_stats::RoomStats;
pub use slot_pool::{Slot, SlotPool};
pub use ticket::{Tenant, Ticket};
pub(crate) use waiting_room::{Answered, Arrival, Starting, State};

// These types are the machinery behind a gate. Tests, benches and the simulator drive it directly, and it may change at
// any time. Users find `LaneHead` and `LevelStatus` in `gate`.
#[doc(hidden)]
pub use self::{
    level_status::LevelStatus,
    limiter::{LimitOutcome, LimitSample, Limiter},
    overload::ServiceSample,
    wait_queue::{Pushed, Skipped, WaitQueue},
    waiters::WaiterId,
    waiting_room::{AdmitOutcome, LaneHead, WaitingRoom},
    wake_list::WakeList,
};
