//! How the waiting room is furnished.

use std::collections::HashMap;
use std::time::Duration;

use super::{PriorityLevels, Tenant};

/// Who goes next among waiting requests of equal priority in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// Tenants take turns, in proportion to their weights and to the cost of what they ask.
    Fair,
    /// Whose wait ends first, by its own deadline or by `max_wait`; equal ends in the order of arrival.
    Deadline,
}

impl Discipline {
    /// How many there are.
    pub(crate) const COUNT: usize = 3;
}

/// How the waiting room is furnished: chairs, order, patience.
///
/// The default is 100 chairs, 30 s, two levels, first come first served. Others are made of it, or of a
/// [`QueueConfig`](crate::QueueConfig), which also checks itself:
///
/// ```
/// use tower_triage::{QueueConfig, WaitingRoomConfig};
///
/// let mut room = WaitingRoomConfig::default();
/// room.max_size = 20;
/// room.displace = true;
///
/// let same = QueueConfig::new(1).max_size(20).displace().room()?;
/// assert_eq!((same.max_size, same.displace), (room.max_size, room.displace));
/// # Ok::<(), tower_triage::InvalidQueueConfig>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitingRoomConfig {
    /// How many requests may wait, over all lanes. 0: nobody waits. Default 100.
    pub max_size: usize,
    /// How many requests of one tenant may wait. `None` (default): no limit of its own.
    pub max_size_per_tenant: Option<usize>,
    /// How long a request may wait from its arrival. `None`: as long as it likes. Default 30 s.
    pub max_wait: Option<Duration>,
    /// Who goes next among equals. Default `Fifo`.
    pub discipline: Discipline,
    /// The priority levels. Default `high`, `normal`.
    pub levels: PriorityLevels,
    /// A waiter rises one level per interval waited. `None` (default) and zero: never.
    pub promote_after: Option<Duration>,
    /// Whether an arrival that finds no chair takes the one of the latest waiter of the lowest level, if
    /// that is a lower level than its own. Default `false`.
    pub displace: bool,
    /// Shares of tenants under `Fair`; everyone else weighs 1, and 0 counts as 1. Default empty.
    pub weights: HashMap<Tenant, u32>,
}

impl Default for WaitingRoomConfig {
    fn default() -> Self {
        Self {
            max_size: 100,
            max_size_per_tenant: None,
            max_wait: Some(Duration::from_secs(30)),
            discipline: Discipline::Fifo,
            levels: PriorityLevels::default(),
            promote_after: None,
            displace: false,
            weights: HashMap::new(),
        }
    }
}
