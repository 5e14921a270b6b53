//! The pure core: tickets, waiting rooms, disciplines, capacities.
//!
//! The core decides which request goes next, and does nothing else. It is free of async, clocks, HTTP and locks. Time
//! comes in as an argument, and effects go out as return values. A [`WaitingRoom`] holds the waiting tickets, and a
//! [`Capacity`] knows the slots.

pub(crate) mod ask;
mod by_level;
mod capacity;
mod compact_slab;
mod config;
mod flow;
mod heap;
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
mod tenant_counts;
mod ticket;
mod timeouts;
mod trim;
mod wait_queue;
mod waiters;
mod waiting_room;
pub(crate) mod wake_list;

pub use capacity::{
    LeaseError, OnDemandCapacity, Partition, PoolId, PoolSet, SlotState, SlotUsage,
};
pub use config::{InvalidWaitingRoom, KeptSlots, ReservedSlots, TargetWait, TenantLimits};
pub(crate) use config::{room_methods, room_setters};
#[cfg(feature = "serde")]
pub(crate) use level_status::seconds;
pub use limiter::{AdaptiveLimit, InvalidAdaptiveLimit, LimitAlgorithm};
pub use priority::InvalidPriorityLevels;
pub(crate) use priority::MAX_LEVELS;
pub(crate) use room_base::time_for;
pub use room_stats::RoomStats;
pub(crate) use waiting_room::{Account, Answered, Arrival, Share, Starting, State};

// The crate's front door documents these names.
#[doc(hidden)]
pub use self::{
    capacity::Capacity,
    config::{Discipline, WaitingRoomConfig},
    priority::{Priority, PriorityLevels},
    reject_reason::RejectReason,
    slot_pool::SlotPool,
    ticket::{Tenant, Ticket},
};

// These types are the machinery behind a gate. Tests, benches and the simulator drive it directly, and it may change at
// any time. Users find `LaneHead` and `LevelStatus` in `gate`.
#[doc(hidden)]
pub use self::{
    level_status::LevelStatus,
    limiter::{LimitOutcome, LimitSample, Limiter},
    overload::ServiceSample,
    slot_pool::Slot,
    wait_queue::{Pushed, Skipped, WaitQueue},
    waiters::WaiterId,
    waiting_room::{AdmitOutcome, HoldId, LaneHead, WaitingRequest, WaitingRoom},
    wake_list::WakeList,
};
