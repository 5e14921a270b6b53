//! The configuration of a waiting room.

mod error;
mod level_weights;
mod reserve;
mod target_wait;
mod tenant_limits;

use std::collections::HashMap;
use std::time::Duration;

use super::{PriorityLevels, Tenant};

pub use error::InvalidWaitingRoom;
pub use reserve::{KeptSlots, ReservedSlots};
pub use target_wait::TargetWait;
pub use tenant_limits::TenantLimits;

/// The order of waiting requests of equal priority in one lane.
///
/// A configuration file has `"fifo"`, `"fair"` or `"deadline"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// Tenants take turns in proportion to their weights. The next request is one of the tenant that has had the least
    /// of its share. The [cost](super::Ticket::cost) of its requests counts against a tenant's share, and so does the
    /// cost that it is [charged](crate::gate::Permit::charge) afterwards. Tenants also share the room itself when it is
    /// full (see [`WaitingRoomConfig::displace`]).
    ///
    /// A [`Gate`](crate::Gate), and every layer, shares the slots as time: a tenant is charged for the time for which its
    /// requests hold slots while others wait, if that is clearly more than their cost explains (1.5 times the mean, by the
    /// cost of earlier requests). So its slots count whether its callers leave, its answers are slow or its requests fail.
    /// A tenant that always has a request waiting gets its share of the slots' time, less at most the slots times the
    /// longest time for which one is held. Holds below 20 ms count as 20 ms.
    ///
    /// A `RouteLayer` also recalls slots that wait for their clients while another tenant below its share waits: for the
    /// rest of a request's body, for the response to be read, or on a silent websocket. Each gets 5 s in all, beside the
    /// time that a line of 16 KiB per second needs. The request is then answered with 408, its response breaks off, or its
    /// websocket is closed with 1013. A websocket that is not silent is recalled after 60 s. `Forward` closes the connection to
    /// the endpoint before the slot is free, even if the client never reads again. Any other service works on a response until
    /// its body is polled again or dropped, without a slot.
    ///
    /// Long answers of one tenant, that its client does read, hold more than its share until they end.
    /// [`max_concurrent_per_tenant`](WaitingRoomConfig::max_concurrent_per_tenant) bounds them.
    Fair,
    /// The earliest end of a wait goes first, whether by the request's own deadline or by `max_wait`. Among equal ends,
    /// the request that arrived first goes first.
    Deadline,
}

impl Discipline {
    /// The number of disciplines.
    pub(crate) const COUNT: usize = 3;
}

/// The configuration of a waiting room: the number of requests that may wait, the time for which they may wait, and
/// their order.
///
/// By default 100 requests may wait for 30 s in two levels, first come, first served. Every field has a method of its
/// name:
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
/// With the feature `serde`, it is read from a file with the keys that a [`QueueConfig`](crate::QueueConfig) has for
/// its waiting room.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WaitingRoomConfig {
    /// The highest number of requests that may wait, over all lanes. With 0, a request that finds all slots busy is
    /// rejected. Default 100.
    pub max_size: usize,
    /// The highest number of requests of one tenant that may wait. With `None`, which is the default, only `max_size`
    /// applies. `max_size_per_tenant` in a file, where 0 stands for `None`.
    pub max_size_per_tenant: Option<usize>,
    /// The highest number of slots that one tenant may have. Further requests of the tenant wait although slots are
    /// free. They let requests of other tenants pass, and `target_wait` does not refuse them. With `None`, which is the
    /// default, a tenant may have all slots. Requests without a tenant's name count as one tenant.
    /// `max_concurrent_per_tenant` in a file, where 0 stands for `None`.
    ///
    /// With this limit, every arrival takes the lock. Requests that have a slot when the limit is set do not count. A
    /// [`RequestQueue`](crate#modules) has no slots and ignores the limit.
    pub max_concurrent_per_tenant: Option<usize>,
    /// The longest wait of a request, counted from its arrival. If its slots become ready later, because its model has
    /// to be loaded, the wait counts from then on. With `None` a request waits until its own deadline, if it has one.
    /// Default 30 s. If you know how long your callers wait, set this time. `max_wait_seconds` in a file, with a
    /// number, which may be a fraction, or `"none"`.
    pub max_wait: Option<Duration>,
    /// The order of waiting requests of equal priority. Default [`Discipline::Fifo`].
    pub discipline: Discipline,
    /// The priority levels. Default `high`, `normal`. `priorities` and `default_priority` in a file.
    pub levels: PriorityLevels,
    /// The interval after which a waiter is promoted to the next higher level, again and again. With `None`, which is
    /// the default, waiters stay at their level. The time counts from the first arrival, even if the request had a slot
    /// meanwhile (see [`Ticket::requeued`](super::Ticket::requeued)). `promote_after_seconds` in a file.
    pub promote_after: Option<Duration>,
    /// `true` if an arrival in a full room replaces a waiter that has less right to wait. Default `true`.
    ///
    /// The arrival replaces the latest waiter of the lowest level, if that level is lower than its own.
    /// [`Discipline::Fair`] and [`level_weights`](Self::level_weights) give shares to flows, which are tenants or
    /// levels with weights. Flows share the places of a full room (and of a full [`Partition`](super::Partition), by
    /// its own discipline) as they share the slots. The flow with the most waiters for its weight gives up its latest
    /// waiter, if it has more of them than the arrival's flow would have. So a flow below its share can always add a
    /// waiter, and a flow within its share keeps all of its waiters. While levels are strict, the tenants of the lowest
    /// level that waits share the part of the room that the levels above leave. A room that is made smaller evicts in
    /// the same order. If shares decide, a full room takes the lock for each rejection.
    ///
    /// With `false` each waiter stays, so a greedy flow may fill the whole room. With
    /// [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure) requests wait outside until the room has space.
    ///
    /// A client that may choose its tenant's name gets a share for each name that it invents, so derive the name from
    /// authenticated data. Tenants with a [weight](Self::weights) keep their share against names without one.
    pub displace: bool,
    /// The predicted wait above which arrivals may be refused. Default [`TargetWait::Auto`]. It has an effect only in
    /// front of a capacity. `target_wait` in a file.
    pub target_wait: TargetWait,
    /// Slots that are reserved for a level and those above, by the level's name. Requests of lower levels wait rather
    /// than take one of these slots. With reserved slots, every arrival takes the lock. Default empty.
    pub reserve: HashMap<String, ReservedSlots>,
    /// The shares of levels, by the level's name, as an alternative to strict priorities. While requests of several
    /// levels wait, these levels divide the slots of each lane in proportion to their shares. A level without an entry
    /// weighs 1. By default the map is empty, so a more urgent level always goes first. `level_weights` in a file, as
    /// in `{ high = 3 }`.
    ///
    /// With [`Discipline::Fifo`], a share counts requests, whatever they cost. With [`Discipline::Fair`], each tenant
    /// of a level has a share of its own, which is the level's weight times the tenant's. [`Discipline::Deadline`] has
    /// no shares. As the discipline of the room it is an error beside this setting, and in a
    /// [`Partition`](crate::admit::Partition) of that discipline levels stay strict. If two disciplines compete for a
    /// slot, the waiter that arrived first goes first, whatever its level.
    ///
    /// Levels share a full room in the same way (see [`displace`](Self::displace)). The setting excludes `reserve` and
    /// `promote_after`.
    pub level_weights: HashMap<String, u32>,
    /// The tenants' shares of the slots and of a full room under [`Discipline::Fair`]. All other tenants weigh 1.
    /// Default empty. `tenant_weights` in a file.
    pub weights: HashMap<Tenant, u32>,
    /// The limits of single tenants, by the name that the classifier reads. They take the place of
    /// `max_size_per_tenant` and `max_concurrent_per_tenant` for these tenants. The empty name stands for requests
    /// without a tenant's name. Default empty. In a file, `tenant_limits` is a table as in
    /// `{ "team-a" = { max_size = 10, concurrency = 2 } }`.
    pub tenant_limits: HashMap<Tenant, TenantLimits>,
    /// `true` if a room of size 0 rejects requests as [`RejectReason::Shed`](crate::RejectReason::Shed). Set by a
    /// layer with [`Overflow::Shed`](crate::queue::Overflow::Shed).
    pub(crate) sheds: bool,
}

/// Defines methods that change `self` and return it. Each has an expression for the change of `self`, or of the field
/// of `self` that is named first.
macro_rules! room_setters {
    ($place:tt $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) |$config:ident| $set:expr;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $($arg: $type),*) -> Self {
                let this = &mut self;
                let $config = $crate::admit::room_setters!(@of this $place);
                $set;
                self
            }
        )*
    };
    (@of $this:ident ()) => { $this };
    (@of $this:ident ($field:ident)) => { &mut $this.$field };
}
pub(crate) use room_setters;

/// Defines a method for each field of a waiting room's configuration. With the argument `$room`, the methods belong to
/// a type that has the configuration in the field `$room`.
macro_rules! room_methods {
    ($($room:ident)?) => {
        $crate::admit::room_setters! { ($($room)?)
            /// Lets `max_size` requests wait.
            max_size(max_size: usize) |room| room.max_size = max_size;
            /// Lets `max_size` requests of one tenant wait. `None` and 0 remove this bound.
            max_size_per_tenant(max_size: impl Into<Option<usize>>) |room| {
                room.max_size_per_tenant = max_size.into().filter(|max_size| *max_size > 0)
            };
            /// Lets one tenant have `max` slots. `None` and 0 remove this limit. Requests without a tenant's name count
            /// as one tenant.
            max_concurrent_per_tenant(max: impl Into<Option<usize>>) |room| {
                room.max_concurrent_per_tenant = max.into().filter(|max| *max > 0)
            };
            /// Lets a request wait for `max_wait` from its arrival, or from the end of the load of its model. With
            /// `None` it waits until its own deadline, if it has one.
            max_wait(max_wait: impl Into<Option<Duration>>) |room| room.max_wait = max_wait.into();
            /// Sets the order of waiting requests of equal priority.
            discipline(discipline: Discipline) |room| room.discipline = discipline;
            /// Sets the priority levels.
            levels(levels: PriorityLevels) |room| room.levels = levels;
            /// Promotes a waiter by one level per `interval` waited, so that all levels are served at last. `None`
            /// turns this off.
            promote_after(interval: impl Into<Option<Duration>>) |room| room.promote_after = interval.into();
            /// Sets `displace`. If it is `true`, an arrival in a full room replaces a waiter of a lower level, or of a
            /// flow farther above its share.
            displace(displace: bool) |room| room.displace = displace;
            /// Sets the predicted wait above which arrivals may be refused.
            target_wait(target: impl Into<TargetWait>) |room| room.target_wait = target.into();
            /// Reserves slots for the level of this name and those above.
            reserve(level: impl Into<String>, reserve: ReservedSlots) |room| {
                room.reserve.insert(level.into(), reserve)
            };
            /// Gives the level of this name a share of `weight`, and a share of 1 to all levels without an entry.
            /// Levels are then no longer strict.
            level_weight(level: impl Into<String>, weight: u32) |room| {
                room.level_weights.insert(level.into(), weight)
            };
            /// Gives `tenant` a share of `weight` under [`Discipline::Fair`].
            weight(tenant: impl Into<Tenant>, weight: u32) |room| room.weights.insert(tenant.into(), weight);
            /// Gives `tenant` limits of its own, in place of those that hold for each tenant.
            tenant_limits(tenant: impl Into<Tenant>, limits: $crate::admit::TenantLimits) |room| {
                room.tenant_limits.insert(tenant.into(), limits)
            };
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

    /// Checks the configuration. A room also accepts a configuration that was not checked. It then takes a weight of 0
    /// for 1, ignores the weight of an unknown level, and promotes no waiters if the interval is 0.
    ///
    /// # Errors
    ///
    /// Returns an error for the first wrong field, with its value and the allowed values.
    pub fn validate(&self) -> Result<(), InvalidWaitingRoom> {
        if self.promote_after == Some(Duration::ZERO) {
            return Err(InvalidWaitingRoom::ZeroPromoteAfter);
        }
        for (name, reserve) in &self.reserve {
            self.refuse_unknown("reserve", name)?;
            if let ReservedSlots::Share(share) = *reserve
                && !(0.0..=1.0).contains(&share)
            {
                let name = name.clone();
                return Err(InvalidWaitingRoom::ReserveShare { name, share });
            }
        }
        self.refuse_twice("reserve", self.reserve.keys())?;
        self.validate_level_weights()?;
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
            reserve: HashMap::new(),
            level_weights: HashMap::new(),
            weights: HashMap::new(),
            tenant_limits: HashMap::new(),
            sheds: false,
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
            .reserve("gold", ReservedSlots::Slots(1))
            .level_weight("gold", 3)
            .weight("team-a", 4)
            .tenant_limits("team-a", TenantLimits::default().max_size(9).concurrency(0));
        let limits = TenantLimits {
            max_size: Some(9),
            concurrency: Some(0),
        };
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
            reserve: HashMap::from([("gold".to_owned(), ReservedSlots::Slots(1))]),
            level_weights: HashMap::from([("gold".to_owned(), 3)]),
            weights: HashMap::from([("team-a".into(), 4)]),
            tenant_limits: HashMap::from([("team-a".into(), limits)]),
            sheds: false,
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
    }
}
