//! The parts of a room other than its waiters: the configuration, the clock, the counters and the measurements.

mod clock;
mod counters;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::clock::Clock;
pub(crate) use self::clock::{BEHIND, is_requeued, new_place};
use self::counters::Counters;
use super::flow::FlowWeights;
use super::nanos::{NEVER, Nanos, seconds, span};
use super::overload::{Arriving, Overload, Reserves, ServiceSample, Slots};
use super::tenant_counts::TenantCounts;
use super::waiters::{MILLISECOND, WaitBounds, WaitLimits, WaiterMeta};
use super::{
    Discipline, KeptSlots, PoolId, Priority, RejectReason, TargetWait, Tenant, Ticket,
    WaitingRoomConfig,
};

/// The parts of a room other than its waiters.
#[derive(Debug)]
pub(crate) struct RoomBase {
    pub(crate) config: WaitingRoomConfig,
    /// `true` if the configuration limits the slots of any tenant, so that slots are counted by tenant.
    pub(crate) limits_slots: bool,
    /// The weights of the configuration.
    pub(crate) weights: Arc<FlowWeights>,
    /// `true` if the room is in front of slots. Other rooms predict no waits, and `target_wait` has no effect there.
    pub(crate) has_slots: bool,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) overload: Overload,
    /// The instant at which a request's service was last watched.
    sampled_at: Nanos,
    pub(crate) reserves: Reserves,
    /// The slots of each tenant that were counted when they were granted. They survive every change of the
    /// configuration, as the slots do.
    pub(crate) leases: TenantCounts,
}

impl RoomBase {
    pub(crate) fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        let levels = config.levels.count();
        let weights = FlowWeights::new(&config);
        Self {
            has_slots: true,
            clock: Clock::new(now),
            counters: Counters::new(levels),
            overload: Overload::new(levels, &weights),
            weights,
            sampled_at: 0,
            reserves: Reserves::new(&config),
            leases: TenantCounts::default(),
            limits_slots: config.limits_slots(),
            config,
        }
    }

    /// Replaces the configuration.
    pub(crate) fn set_config(&mut self, config: WaitingRoomConfig) {
        self.weights = FlowWeights::new(&config);
        self.overload.set_config(&config, &self.weights);
        // Levels are matched by name, so a level keeps its data if the new configuration names it, too.
        let old: Vec<_> = self.config.levels.names().collect();
        let names = config.levels.names();
        let names = names.map(|name| old.iter().position(|old| old.eq_ignore_ascii_case(name)));
        let old_levels: Vec<Option<usize>> = names.collect();
        self.reserves = Reserves::new(&config);
        self.counters.set_levels(&old_levels);
        self.limits_slots = config.limits_slots();
        self.config = config;
    }

    /// Returns the slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn kept_above(&self, level: u8) -> KeptSlots {
        match self.reserves.is_empty() {
            true => KeptSlots::NONE,
            false => self.reserves.above(level),
        }
    }

    /// Returns the longest wait from the arrival, or `NEVER` without a bound.
    #[inline]
    fn max_wait(&self) -> Nanos {
        self.config.max_wait.map_or(NEVER, span)
    }

    /// Returns the longest waits that the configuration allows.
    pub(crate) fn bounds(&self) -> WaitBounds {
        let behind_next = match self.config.target_wait {
            TargetWait::After(target) if self.has_slots => span(target).saturating_mul(2),
            _ => NEVER,
        };
        WaitBounds {
            max_wait: self.max_wait(),
            behind_next,
        }
    }

    /// Decides about a wait for these slots that may be over at `now`. If it goes on, returns the later instant at
    /// which it may be over.
    ///
    /// # Errors
    ///
    /// Returns the reason if the wait is over.
    pub(crate) fn wait_goes_on<N>(
        &self,
        meta: &mut WaiterMeta,
        is_next: bool,
        slots: Slots,
        now: Nanos,
    ) -> Result<Nanos, RejectReason<N>> {
        let bounds = self.bounds().of(meta.is_patient);
        let limits = counted(meta.limits, meta.entered(), slots, now);
        let end = limits.end(bounds.max_wait);
        let behind_next = match slots {
            Slots::Made { since } => meta.entered().max(since).saturating_add(bounds.behind_next),
            // The bound counts from the instant at which the slots are ready, so it moves on until then.
            _ => now.saturating_add(bounds.behind_next.max(MILLISECOND)),
        };
        // Set only after the bound has passed, because another waiter may be the next by that time.
        meta.goes_on |= is_next && behind_next <= now;
        let behind_next = match meta.goes_on {
            true => NEVER,
            false => behind_next,
        };
        match end.min(behind_next) {
            later if later > now => Ok(later),
            over if over == end => Err(limits.why_expired(bounds.max_wait)),
            // The request was admitted by the target and has now waited for twice as long.
            _ => Err(RejectReason::Overloaded {
                retry_after: Duration::from_nanos(bounds.behind_next / 2),
            }),
        }
    }

    /// Returns `true` if one more request may wait.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.counters.placed() + self.counters.reserved < self.config.max_size
    }

    /// Returns `true` if the waiting room is full, so that an arrival that finds no slot is rejected as
    /// [`RejectReason::Full`] unless it displaces a waiter. The answer holds without a look at partitions, because a
    /// full partition leads to the same reason.
    pub(crate) fn is_full(&self) -> bool {
        let tenants_have_limits = || self.config.bounds_tenants() || self.limits_slots;
        // Without waiters, the room is fully reserved or `max_size` is 0, which leads to another reason. A tenant's own
        // bound leads to another reason, too.
        // With reserved slots or tenant limits, a slot may be free although other requests wait.
        !self.has_room()
            && self.counters.placed() > 0
            && !tenants_have_limits()
            && self.reserves.is_empty()
            // With flows, the flow of an arrival decides if it displaces a waiter.
            && !(self.config.displace && self.config.has_flows())
    }

    /// Reserves room for one request that will arrive. Returns `true` if there was room for it.
    pub(crate) fn reserve(&mut self) -> bool {
        let is_free = self.has_room();
        // The bounds of partitions and tenants are checked later, because the request's are still unknown.
        self.counters.reserved += usize::from(is_free);
        is_free
    }

    /// Ends a reservation, if there is one.
    pub(crate) fn unreserve(&mut self) {
        self.counters.reserved = self.counters.reserved.saturating_sub(1);
    }

    /// Returns the reason why this ticket may not wait even in an empty room, if there is one.
    #[inline]
    pub(crate) fn refusal<N>(
        &self,
        ticket: &Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) -> Option<RejectReason<N>> {
        // Checked first, because this reason says most about the configuration.
        if self.config.max_size == 0 && !ticket.patient {
            return Some(self.why_no_room());
        }
        if !ticket.wait {
            return Some(RejectReason::NotQueued);
        }
        // The wait may have ended before it began.
        let max_wait = match ticket.patient {
            true => NEVER,
            false => self.max_wait(),
        };
        (limits.end(max_wait) <= now).then(|| limits.why_expired(max_wait))
    }

    /// Returns the reason for evicting a waiter from a room that became smaller.
    pub(crate) fn why_evicted<N>(&self) -> RejectReason<N> {
        match self.config.max_size {
            0 => self.why_no_room(),
            _ => RejectReason::Full,
        }
    }

    /// Returns the reason for a rejection by a room of size 0.
    fn why_no_room<N>(&self) -> RejectReason<N> {
        match self.config.sheds {
            true => RejectReason::Shed,
            false => RejectReason::Disabled,
        }
    }

    /// Returns the end of the wait of a request with this arrival and deadline that holds a slot of `pool`, and the
    /// reason at that end. `None` without a bound.
    pub(crate) fn end_of_wait<N>(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
        is_patient: bool,
        pool: PoolId,
        now: Instant,
    ) -> Option<(Instant, RejectReason<N>)> {
        let epoch = self.clock.epoch;
        let limits = WaitLimits {
            arrival: epoch.nanos(arrival),
            deadline: deadline.map_or(NEVER, |end| epoch.nanos(end)),
        };
        let slots = self.overload.slots_of(&[pool]);
        let now = epoch.nanos(now);
        let limits = counted(limits, now, slots, now);
        let max_wait = self.bounds().of(is_patient).max_wait;
        let end = epoch.instant(limits.end(max_wait))?;
        Some((end, limits.why_expired(max_wait)))
    }

    /// Returns `true` if the wait of a request is predicted. A requeued request is exempt because it was admitted
    /// before.
    #[inline]
    pub(crate) fn is_predicted(&self, ticket: &Ticket) -> bool {
        self.config.target_wait != TargetWait::Off && !ticket.patient && !is_requeued(ticket)
    }

    /// Returns the values of a request that decide about its wait, before the work ahead of it is known.
    pub(crate) fn arriving(
        &self,
        level: u8,
        limits: WaitLimits,
        (pool, lane_hash): (PoolId, u32),
    ) -> Arriving {
        let now = self.clock.now;
        let until = |end: Nanos| match end {
            NEVER => f64::INFINITY,
            _ => seconds(end.saturating_sub(now)),
        };
        let deadline = (limits.deadline < NEVER).then_some(until(limits.deadline));
        // The time of a service is subtracted, because the caller waits for an answer.
        let in_time = deadline.map(|time| time - self.shortest_service(lane_hash));
        let max_wait = until(limits.arrival.saturating_add(self.max_wait()));
        Arriving {
            pool,
            lane_hash,
            level,
            ahead: 0,
            flows: None,
            predicted: None,
            deadline: deadline.map(|time| time.min(max_wait)),
            longest: in_time.map_or(max_wait, |time| time.min(max_wait)),
            max_wait,
            leased: 0,
        }
    }

    /// Decides if a request that found no slot may wait for the predicted time. Returns the predicted wait in seconds,
    /// or 0 if it is unknown.
    pub(crate) fn admit<N>(
        &mut self,
        tenant: &Tenant,
        arriving: &Arriving,
    ) -> Result<f64, RejectReason<N>> {
        let (overload, now) = (&mut self.overload, self.clock.now);
        let admitted = overload.admit(arriving, tenant, &self.config, now);
        admitted.map_err(|excess| RejectReason::Overloaded {
            retry_after: Duration::try_from_secs_f64(excess).unwrap_or(Duration::MAX),
        })
    }

    /// Compares a wait that ended with its prediction, which is above 0.
    pub(crate) fn on_wait_ended(&mut self, pool: PoolId, meta: &WaiterMeta, is_served: bool) {
        let arrival = meta.limits.arrival;
        let load = self.overload.pool_mut(pool);
        // If the slots became ready after the arrival, the wait includes a start and teaches nothing about the service.
        if load.is_made_since(arrival) {
            let actual = seconds(self.clock.now.saturating_sub(arrival));
            load.on_wait_ended(meta.priority, meta.predicted.into(), actual, is_served);
        }
    }

    /// Returns the shortest of this lane's latest service times until the answer began, in seconds, or 0 while there
    /// are too few samples.
    fn shortest_service(&self, lane_hash: u32) -> f64 {
        self.overload.service.shortest(lane_hash).unwrap_or(0.0)
    }

    /// Returns `true` if the time until a waiter's deadline is shorter than all of the latest services of its lane.
    #[inline]
    pub(crate) fn is_hopeless(&self, meta: &WaiterMeta) -> bool {
        let deadline = meta.limits.deadline;
        deadline < NEVER
            && seconds(deadline.saturating_sub(self.clock.now))
                < self.shortest_service(meta.lane_hash)
    }

    /// Returns the sample of a request that gets its slot now, if its service should be watched. Watching more services
    /// than that would be of little use.
    pub(crate) fn sample(&mut self, lane_hash: u32) -> Option<ServiceSample> {
        let started = self.clock.now;
        if started.saturating_sub(self.sampled_at) < SAMPLE_INTERVAL {
            return None;
        }
        self.sampled_at = started;
        Some(ServiceSample { started, lane_hash })
    }

    /// Records that a waiter of this level got a slot. `flow` has the discipline, the tenant and the cost, if the
    /// waiter's lane has flows.
    #[inline]
    pub(crate) fn on_served(&mut self, level: u8, flow: Option<(Discipline, &Tenant, f64)>) {
        self.overload.idleness.on_served(level);
        if let Some((discipline, tenant, cost)) = flow {
            // The cost is counted as in the flow's virtual time.
            let cost = match discipline {
                Discipline::Fair => cost,
                _ => 1.0,
            };
            let flow = self.weights.key(level, tenant, discipline);
            self.overload.shares.on_served(flow, cost, self.clock.now);
        }
    }

    /// Records that a tenant is charged for a request after its service, in a lane that tenants share.
    pub(crate) fn on_charged(&mut self, priority: Priority, tenant: &Tenant, cost: f64) {
        // The level of the ticket counts, because a request gets its slot without a look at the levels if the room is
        // empty.
        let Priority(level) = self.config.levels.clamp(priority);
        let flow = self.weights.key(level, tenant, Discipline::Fair);
        self.overload.shares.on_served(flow, cost, self.clock.now);
    }
}

/// The least time between two services that are watched, in nanoseconds. A thousand per second teach as much as a
/// million.
const SAMPLE_INTERVAL: Nanos = 1_000_000;

/// Returns the bounds of a wait for these slots, for a request that entered the room at `entered`. `max_wait` counts
/// from the instant at which the slots are ready, so the time of a start is left out.
pub(crate) fn counted(limits: WaitLimits, entered: Nanos, slots: Slots, now: Nanos) -> WaitLimits {
    let since = match slots {
        Slots::Made { since } => since,
        Slots::Making => now,
        // A requeued request may have waited for the load of another model before it entered.
        Slots::Unmade { since } => since.max(entered),
    };
    WaitLimits {
        arrival: limits.arrival.max(since),
        ..limits
    }
}

impl WaitLimits {
    /// Returns the reason for which a wait ends at its [end](Self::end).
    pub(crate) fn why_expired<N>(self, max_wait: Nanos) -> RejectReason<N> {
        let end = self.end(max_wait);
        // If both bounds end at the same instant, the deadline is the reason.
        if self.deadline == end && end < NEVER {
            RejectReason::DeadlinePassed
        } else {
            RejectReason::TimedOut
        }
    }
}

/// Returns the time in which `ahead` waiters leave at this rate, or `None` if it exceeds the range of a duration.
pub(crate) fn time_for(ahead: usize, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ahead as f64 / per_second).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_there_is_not_is_charged_as_the_lowest() {
        let config = WaitingRoomConfig::default().level_weight("high", 3);
        let charged = |level| {
            let mut base = RoomBase::new(config.clone(), Instant::now());
            base.on_charged(Priority(level), &"a".into(), 5.0);
            format!("{:?}", base.overload)
        };
        assert_eq!(charged(9), charged(1));
        assert_ne!(charged(9), charged(0));
    }
}
