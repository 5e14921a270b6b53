//! The configuration of a waiting room.

mod error;
mod level_weights;
mod reserve;
mod target_wait;

use std::collections::HashMap;
use std::time::Duration;

use super::{PriorityLevels, Tenant};

pub use error::InvalidWaitingRoom;
pub use reserve::{KeptSlots, ReservedSlots};
pub use target_wait::TargetWait;

/// The order of waiting requests of equal priority in one lane.
///
/// In a configuration file: `"fifo"`, `"fair"` or `"deadline"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Discipline {
    /// The one that arrived first.
    #[default]
    Fifo,
    /// Tenants take turns in proportion to their weights: a request of the tenant that has had the least of its share goes
    /// next. The [cost](super::Ticket::cost) of its requests counts against a tenant's share, and so does what it is
    /// [charged](crate::gate::Permit::charge) afterwards. Tenants share the places of a full room likewise
    /// ([`WaitingRoomConfig::displace`]).
    Fair,
    /// The one with the earliest end of its wait, by its own deadline or by `max_wait`; of equal ends, the one that arrived first.
    Deadline,
}

impl Discipline {
    /// The number of disciplines.
    pub(crate) const COUNT: usize = 3;
}

/// The configuration of a waiting room: the number of requests that may wait, for how long, and in what order.
///
/// The default: 100 requests, for 30 s, in two levels, first come, first served. Every field has a method of its name:
///
/// ```
/// use std::time::Duration;
/// use tower_triage::admit::PriorityLevels;
/// use tower_triage::{Discipline, WaitingRoomConfig};
///
/// let room = WaitingRoomConfig::default()
///     .max_size(20)
///     .max_wait(Duration::from_secs(5))
///     .levels(PriorityLevels::new(["gold", "silver"], "silver")?)
///     .discipline(Discipline::Fair)
///     .weight("team-a", 3);
/// assert_eq!(room.validate(), Ok(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With feature `serde` it is read from a file, with the keys that a [`QueueConfig`](crate::QueueConfig) has for its
/// waiting room.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WaitingRoomConfig {
    /// The most requests that may wait, over all lanes. With 0, a request that finds no slot free is rejected. Default 100.
    pub max_size: usize,
    /// The most requests of one tenant that may wait. `None` (default): as many as of all together. `max_size_per_tenant`
    /// in a file, where 0 stands for `None`.
    pub max_size_per_tenant: Option<usize>,
    /// The most slots that one tenant may have. Its other requests wait although slots are free, and let those of other
    /// tenants pass; `target_wait` refuses none of them. `None` (default): as many as there are. Requests that name no
    /// tenant are one tenant, and share one such limit. `max_concurrent_per_tenant` in a file, where 0 stands for `None`.
    ///
    /// Every arrival goes through the lock then. When the limit is set for a gate in use, requests that have a slot already
    /// do not count. [`WaitQueue`](crate::admit::WaitQueue)s, which have no slots, ignore it.
    pub max_concurrent_per_tenant: Option<usize>,
    /// The longest wait of a request, from its arrival; where its slots are made after that (its model is loaded), from then
    /// on. `None`: until its own deadline, if it has one. Default 30 s. If you know how long your callers wait, set that.
    /// `max_wait_seconds` in a file: a number, which may be a fraction, or `"none"`.
    pub max_wait: Option<Duration>,
    /// The order of waiting requests of equal priority. Default [`Discipline::Fifo`].
    pub discipline: Discipline,
    /// The priority levels. Default `high`, `normal`. `priorities` and `default_priority` in a file.
    pub levels: PriorityLevels,
    /// The interval after which a waiter is promoted to the next higher level, again and again. `None` (default): never. The
    /// time counts from the first arrival, also where the request had a slot meanwhile or its client was away
    /// ([`Ticket::requeued`](super::Ticket::requeued)): a place that is kept is kept with its age, as if it had waited
    /// here all the time. `promote_after_seconds` in a file.
    pub promote_after: Option<Duration>,
    /// `true` if, in a full room, an arrival replaces a waiter that has less right to its place. Default `true`.
    ///
    /// The arrival replaces the latest waiter of the lowest level, if that level is lower than its own. Where
    /// [`Discipline::Fair`] or [`level_weights`](Self::level_weights) give shares, it may replace one of its own level: flows
    /// (tenants; levels with weights) share the places as they share the slots. A flow's share is its part of the places,
    /// by weight, among the flows that wait, the arriving one included; each waiter counts as one, whatever it costs. The
    /// flow with the most waiters for its weight is farthest above its share, and gives up its latest waiter, if it has
    /// more for its weight than the arrival's flow would have. So a flow below its share always finds a place, and one
    /// within its share loses none. While levels are strict, the tenants of the lowest level that waits share what the
    /// levels above leave.
    ///
    /// The room's `max_size` is shared by the room's discipline, the bound of a [`Partition`](super::Partition) by the
    /// partition's. A smaller room evicts in the same order. Where shares decide, a full room takes the lock for each
    /// rejection.
    ///
    /// With `false` each waiter keeps its place: then a greedy flow may hold all of them, and shares hold only among the
    /// requests that found one. With [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure) requests wait outside
    /// until a place is free, so a full room evicts none of them.
    ///
    /// A client that may choose its tenant's name gets a share for each name that it invents: of the slots, and of the
    /// places, where it may push any other tenant down to the share of one among so many. It gets no more than that.
    /// Tenants with a [weight](Self::weights) keep their share against names without one. So let a tenant's name come from
    /// what is authenticated.
    pub displace: bool,
    /// The predicted wait from which on arrivals are refused. Default [`TargetWait::Auto`]. In front of a capacity only,
    /// because a [`WaitQueue`](crate::admit::WaitQueue) alone does not know how fast it will be emptied. `target_wait` in a
    /// file.
    pub target_wait: TargetWait,
    /// `true` to serve the newest first while a queue is standing, so that some are served well, and not all badly. A queue is
    /// standing while the waiter without a deadline that entered the room first, whatever its level, has waited in it for
    /// three service times of its pool. The order concerns requests of equal rank: of a level, and with
    /// [`Discipline::Fair`] of a tenant; retries that came too early stay behind first attempts. A request that came back
    /// ([`Ticket::requeued`](super::Ticket::requeued)) is as new as its first arrival, but the time before does not count
    /// as waited.
    ///
    /// The price: as long as the overload lasts, those that are passed wait until their time is over, in vain; and newcomers
    /// are not refused for those they pass, so a room may fill up with them. Default `false`. Needs a `target_wait`; has no
    /// effect beside [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure), and none on
    /// [`WaitQueue`](crate::admit::WaitQueue)s and partitions with [`Discipline::Deadline`].
    pub lifo_when_standing: bool,
    /// Slots that are kept for a level and those above, by the level's name. Requests of lower levels wait rather than take
    /// one of them. Every arrival goes through the lock then. Default empty. [`WaitQueue`](crate::admit::WaitQueue)s, which
    /// have no slots, ignore it.
    pub reserve: HashMap<String, ReservedSlots>,
    /// `true` to lend the slots that are kept for a level to lower ones while no request of that level or above came in the
    /// last 10 s. Default `false`. `lend` beside the levels in `reserve`, in a file.
    pub lend: bool,
    /// The shares of levels, by the level's name: an alternative to strict priorities, with which no level starves. While
    /// requests of several levels wait, the slots are divided among these levels in proportion; what a level does not use,
    /// the others have. Levels that are not named weigh 1. Default empty: a more urgent level always goes first.
    ///
    /// With [`Discipline::Fifo`], a share is one of requests, whatever they cost. With [`Discipline::Fair`], each tenant of
    /// a level has a share of its own, of the level's weight times the tenant's, so a level has the more, the more tenants
    /// it has. Either is for each lane: where requests for several models compete for a slot, each model has the shares of
    /// its levels. [`Discipline::Deadline`] has no shares: for the room it is an error beside this, and in a
    /// [`Partition`](crate::admit::Partition) of that discipline levels stay strict. Of two disciplines that compete for a
    /// slot, the waiter that arrived first goes first, whatever its level.
    ///
    /// The places of a full room are shared likewise: see [`displace`](Self::displace). Excludes `reserve` and
    /// `promote_after`. `level_weights` in a file: `{ high = 3 }`.
    pub level_weights: HashMap<String, u32>,
    /// The tenants' shares of slots and places under [`Discipline::Fair`]. All others weigh 1. Default empty.
    /// `tenant_weights` in a file.
    pub weights: HashMap<Tenant, u32>,
}

/// A method for each field of a waiting room: of its own configuration, and of one that has it as the field `$room`.
macro_rules! room_methods {
    ($($room:ident)?) => {
        /// Lets `max_size` requests wait.
        #[must_use]
        pub fn max_size(mut self, max_size: usize) -> Self {
            self$(.$room)?.max_size = max_size;
            self
        }

        /// Lets `max_size` requests of one tenant wait. `None` and 0: as many as of all together.
        #[must_use]
        pub fn max_size_per_tenant(mut self, max_size: impl Into<Option<usize>>) -> Self {
            self$(.$room)?.max_size_per_tenant = max_size.into().filter(|max_size| *max_size > 0);
            self
        }

        /// Lets one tenant have `max` slots. `None` and 0: as many as there are. Requests that name no tenant are one
        /// tenant.
        #[must_use]
        pub fn max_concurrent_per_tenant(mut self, max: impl Into<Option<usize>>) -> Self {
            self$(.$room)?.max_concurrent_per_tenant = max.into().filter(|max| *max > 0);
            self
        }

        /// Lets a request wait for `max_wait` from its arrival, or from the end of the load of its model. `None`: until its
        /// own deadline, if it has one.
        #[must_use]
        pub fn max_wait(mut self, max_wait: impl Into<Option<Duration>>) -> Self {
            self$(.$room)?.max_wait = max_wait.into();
            self
        }

        /// Sets the order of waiting requests of equal priority.
        #[must_use]
        pub fn discipline(mut self, discipline: Discipline) -> Self {
            self$(.$room)?.discipline = discipline;
            self
        }

        /// Names the priority levels.
        #[must_use]
        pub fn levels(mut self, levels: PriorityLevels) -> Self {
            self$(.$room)?.levels = levels;
            self
        }

        /// Promotes a waiter by one level per `interval` waited, so that none starves. `None`: never.
        #[must_use]
        pub fn promote_after(mut self, interval: impl Into<Option<Duration>>) -> Self {
            self$(.$room)?.promote_after = interval.into();
            self
        }

        /// Sets whether an arrival in a full room replaces a waiter of a lower level, or of a flow farther above its share.
        #[must_use]
        pub fn displace(mut self, displace: bool) -> Self {
            self$(.$room)?.displace = displace;
            self
        }

        /// Sets the predicted wait from which on arrivals are refused.
        #[must_use]
        pub fn target_wait(mut self, target: impl Into<TargetWait>) -> Self {
            self$(.$room)?.target_wait = target.into();
            self
        }

        /// Sets whether the newest of equal rank go first while a queue is standing.
        #[must_use]
        pub fn lifo_when_standing(mut self, lifo_when_standing: bool) -> Self {
            self$(.$room)?.lifo_when_standing = lifo_when_standing;
            self
        }

        /// Keeps slots for the level of this name and those above.
        #[must_use]
        pub fn reserve(mut self, level: impl Into<String>, reserve: ReservedSlots) -> Self {
            self$(.$room)?.reserve.insert(level.into(), reserve);
            self
        }

        /// Sets whether kept slots are lent to lower levels while no request came for which they are kept.
        #[must_use]
        pub fn lend(mut self, lend: bool) -> Self {
            self$(.$room)?.lend = lend;
            self
        }

        /// Gives the level of this name a share of `weight`, and all others one of 1 unless they are named, too: no level
        /// goes before another then.
        #[must_use]
        pub fn level_weight(mut self, level: impl Into<String>, weight: u32) -> Self {
            self$(.$room)?.level_weights.insert(level.into(), weight);
            self
        }

        /// Gives `tenant` a share of `weight` under [`Discipline::Fair`].
        #[must_use]
        pub fn weight(mut self, tenant: impl Into<Tenant>, weight: u32) -> Self {
            self$(.$room)?.weights.insert(tenant.into(), weight);
            self
        }
    };
}
pub(crate) use room_methods;

impl WaitingRoomConfig {
    room_methods!();

    /// Returns `true` if requests share the slots as flows.
    pub(crate) fn has_flows(&self) -> bool {
        self.has_flows_by(self.discipline)
    }

    /// Returns `true` if requests of lanes of this discipline share slots and places as flows.
    pub(crate) fn has_flows_by(&self, discipline: Discipline) -> bool {
        match discipline {
            Discipline::Fair => true,
            Discipline::Fifo => !self.level_weights.is_empty(),
            Discipline::Deadline => false,
        }
    }

    /// Checks the configuration. A room that gets one without this check takes a weight of 0 for 1, ignores the weight of an
    /// unknown level, and promotes no waiter if the interval is 0.
    ///
    /// # Errors
    ///
    /// If a field is wrong: the first one found, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), InvalidWaitingRoom> {
        if self.promote_after == Some(Duration::ZERO) {
            return Err(InvalidWaitingRoom::ZeroPromoteAfter);
        }
        for (name, reserve) in &self.reserve {
            if !self.has_level(name) {
                let (name, levels) = (name.clone(), self.level_names());
                return Err(InvalidWaitingRoom::ReserveLevel { name, levels });
            }
            if let ReservedSlots::Share(share) = *reserve
                && !(0.0..=1.0).contains(&share)
            {
                let name = name.clone();
                return Err(InvalidWaitingRoom::ReserveShare { name, share });
            }
        }
        self.refuse_twice("reserve", self.reserve.keys())?;
        self.validate_level_weights()?;
        if self.lifo_when_standing && self.target_wait == TargetWait::Off {
            return Err(InvalidWaitingRoom::LifoNeedsTarget);
        }
        if self.lifo_when_standing && self.discipline == Discipline::Deadline {
            return Err(InvalidWaitingRoom::LifoByDeadline);
        }
        match self.weights.iter().find(|(_, weight)| **weight == 0) {
            Some((tenant, _)) => Err(InvalidWaitingRoom::ZeroWeight(tenant.clone())),
            None => Ok(()),
        }
    }
}

impl Default for WaitingRoomConfig {
    fn default() -> Self {
        Self {
            max_size: 100,
            max_size_per_tenant: None,
            max_concurrent_per_tenant: None,
            max_wait: Some(Duration::from_secs(30)),
            discipline: Discipline::Fifo,
            levels: PriorityLevels::default(),
            promote_after: None,
            displace: true,
            target_wait: TargetWait::Auto,
            lifo_when_standing: false,
            reserve: HashMap::new(),
            lend: false,
            level_weights: HashMap::new(),
            weights: HashMap::new(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_method_sets_its_field() {
        let seconds = Duration::from_secs;
        let levels = PriorityLevels::new(["gold", "silver"], "silver").unwrap();
        let room = WaitingRoomConfig::default()
            .max_size(7)
            .max_size_per_tenant(3)
            .max_concurrent_per_tenant(2)
            .max_wait(seconds(5))
            .discipline(Discipline::Deadline)
            .levels(levels.clone())
            .promote_after(seconds(10))
            .displace(false)
            .target_wait(seconds(1))
            .lifo_when_standing(true)
            .reserve("gold", ReservedSlots::Slots(1))
            .lend(true)
            .level_weight("gold", 3)
            .weight("team-a", 4);
        let expected = WaitingRoomConfig {
            max_size: 7,
            max_size_per_tenant: Some(3),
            max_concurrent_per_tenant: Some(2),
            max_wait: Some(seconds(5)),
            discipline: Discipline::Deadline,
            levels,
            promote_after: Some(seconds(10)),
            displace: false,
            target_wait: TargetWait::After(seconds(1)),
            lifo_when_standing: true,
            reserve: HashMap::from([("gold".to_owned(), ReservedSlots::Slots(1))]),
            lend: true,
            level_weights: HashMap::from([("gold".to_owned(), 3)]),
            weights: HashMap::from([("team-a".into(), 4)]),
        };
        assert_eq!(room, expected);

        let room = room
            .max_size_per_tenant(None)
            .max_wait(None)
            .promote_after(None);
        let limits = (room.max_size_per_tenant, room.max_wait, room.promote_after);
        assert_eq!(limits, (None, None, None));
        let room = room.max_size_per_tenant(0).max_concurrent_per_tenant(0);
        let limits = (room.max_size_per_tenant, room.max_concurrent_per_tenant);
        assert_eq!(limits, (None, None));
    }

    #[test]
    fn bad_values_are_refused_by_field() {
        let room = WaitingRoomConfig::default;
        let refusal = |room: WaitingRoomConfig| room.validate().unwrap_err().to_string();
        assert_eq!(
            refusal(room().promote_after(Duration::ZERO)),
            "`promote_after_seconds` is 0: it must be above 0, or \"none\""
        );
        assert_eq!(
            refusal(room().weight("team-a", 0)),
            "`tenant_weights` gives \"team-a\" the weight 0: a weight must be at least 1"
        );
        assert_eq!(
            refusal(room().reserve("gold", ReservedSlots::Slots(1))),
            "`reserve` names the level \"gold\": it must be one of \"high\", \"normal\""
        );
        assert_eq!(
            refusal(room().reserve("high", ReservedSlots::Share(1.5))),
            "`reserve` keeps a share of 1.5 for \"high\": it must be from 0 to 1 (\"0%\" to \"100%\")"
        );
        let kept = room().reserve("HIGH", ReservedSlots::Share(0.1));
        assert_eq!(kept.validate(), Ok(()));
        assert_eq!(
            refusal(kept.reserve("high", ReservedSlots::Slots(1))),
            "`reserve` names the level \"high\" twice (case is ignored)"
        );
        assert_eq!(room().weight("", u32::MAX).validate(), Ok(()));
        let lifo = || room().lifo_when_standing(true);
        assert_eq!(lifo().discipline(Discipline::Fair).validate(), Ok(()));
        assert_eq!(
            refusal(lifo().target_wait(TargetWait::Off)),
            "`lifo_when_standing` is true with `target_wait = \"none\"`: it needs a target, seconds or \"auto\""
        );
        assert_eq!(
            refusal(lifo().discipline(Discipline::Deadline)),
            "`lifo_when_standing` is true with `discipline = \"deadline\"`: it must be \"fifo\" or \"fair\""
        );
    }
}
