//! The bound, the clock and the counters of a waiting room: what both rooms and a [`RequestQueue`] share.
//!
//! [`RequestQueue`]: https://docs.rs/tower-triage/latest/tower_triage/batch/struct.RequestQueue.html

use std::time::{Duration, Instant};

use super::age_order::AgeOrder;
use super::flow::FlowKey;
use super::nanos::{Epoch, NEVER, Nanos, seconds, span};
use super::ordered_queue::ArrivalKey;
use super::overload::{Arriving, Overload, Reserves, Slots};
use super::tenant_leases::TenantLeases;
use super::trim::HighWater;
use super::waiters::{MILLISECOND, WaitBounds, WaitLimits, WaiterMeta};
use super::{
    Discipline, KeptSlots, PoolId, Priority, RejectReason, RoomStats, ServiceSample, TargetWait,
    Tenant, Ticket, WaitingRoomConfig,
};

/// What every waiting room has, whatever its order.
#[derive(Debug)]
pub(crate) struct RoomBase {
    pub(crate) config: WaitingRoomConfig,
    /// What instants are measured from: when the room was made.
    pub(crate) epoch: Epoch,
    /// How many wait.
    pub(crate) waiting: usize,
    /// The number of them that are patient, and take no place.
    patient: usize,
    /// Places promised to requests that have not arrived.
    pub(crate) reserved: usize,
    pub(crate) is_closed: bool,
    /// `true` in front of slots. Elsewhere no wait is predicted, and `target_wait` bounds none.
    pub(crate) has_slots: bool,
    pub(crate) stats: RoomStats,
    /// The same by level, as far as it is known.
    pub(crate) stats_by_level: Vec<RoomStats>,
    pub(crate) overload: Overload,
    pub(crate) reserves: Reserves,
    /// Which of equals goes next.
    pub(crate) age_order: AgeOrder,
    pub(crate) leases: TenantLeases,
    pub(crate) high_water: HighWater,
    /// The time of the event that is being handled; the epoch if the caller did not read the clock.
    pub(crate) now: Nanos,
    /// The instant that `now` is the number of.
    instant: Instant,
    /// When a request's service was last watched.
    sampled_at: Nanos,
    /// The sequence number of the latest waiter.
    seq: u64,
    /// The latest arrival so far, those of requeued tickets aside. Never lowered, so keys grow from waiter to waiter.
    latest: Nanos,
}

impl RoomBase {
    pub(crate) fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        let epoch = Epoch(now);
        Self {
            overload: Overload::new(config.levels.count()),
            stats_by_level: vec![RoomStats::default(); config.levels.count()],
            reserves: Reserves::new(&config),
            leases: TenantLeases::default(),
            config,
            now: epoch.nanos(now),
            instant: now,
            epoch,
            waiting: 0,
            patient: 0,
            reserved: 0,
            is_closed: false,
            has_slots: true,
            stats: RoomStats::default(),
            age_order: AgeOrder::OldestFirst,
            high_water: HighWater::default(),
            sampled_at: 0,
            seq: 0,
            latest: 0,
        }
    }

    /// An event begins. Returns its time, as a number.
    pub(crate) fn set_now(&mut self, now: Instant) -> Nanos {
        (self.now, self.instant) = (self.epoch.nanos(now), now);
        self.now
    }

    /// The number of an instant.
    #[inline]
    fn nanos(&self, instant: Instant) -> Nanos {
        // Most tickets say that they arrive at the time of the event.
        match instant == self.instant {
            true => self.now,
            false => self.epoch.nanos(instant),
        }
    }

    /// Replaces the configuration.
    pub(crate) fn set_config(&mut self, config: WaitingRoomConfig) {
        self.overload.set_config(&config);
        // What is known of a level is known by its name.
        let old: Vec<_> = self.config.levels.names().collect();
        let names = config.levels.names();
        let names = names.map(|name| old.iter().position(|old| old.eq_ignore_ascii_case(name)));
        let old_levels: Vec<Option<usize>> = names.collect();
        let mut reserves = Reserves::new(&config);
        reserves.go_on_from(&self.reserves, |level| old_levels[level]);
        self.reserves = reserves;
        let stats = old_levels.iter().map(|&level| {
            level.map_or_else(RoomStats::default, |level| self.stats_by_level[level])
        });
        self.stats_by_level = stats.collect();
        self.config = config;
    }

    /// A request of this level was rejected.
    pub(crate) fn on_rejected<N>(&mut self, level: u8, why: &RejectReason<N>) {
        self.stats.reject(why);
        if let Some(level) = self.stats_by_level.get_mut(usize::from(level)) {
            level.reject(why);
        }
    }

    /// The caller of a request of this level went away.
    pub(crate) fn count_cancelled(&mut self, level: u8) {
        self.stats.cancelled += 1;
        if let Some(level) = self.stats_by_level.get_mut(usize::from(level)) {
            level.cancelled += 1;
        }
    }

    /// The slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn kept_above(&self, level: u8) -> KeptSlots {
        self.reserves.above(level, self.now)
    }

    /// How long a request may wait; `NEVER` without a bound.
    #[inline]
    pub(crate) fn max_wait(&self) -> Nanos {
        self.config.max_wait.map_or(NEVER, span)
    }

    /// Returns the longest waits.
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

    /// Decides on a wait that may be over at `now`, for one of these slots. Returns the later instant at which it may be.
    ///
    /// # Errors
    ///
    /// The reason why it is over.
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
            // Counts from when they are there.
            _ => now.saturating_add(bounds.behind_next.max(MILLISECOND)),
        };
        // Only then, as another may go before it by then.
        meta.goes_on |= is_next && behind_next <= now;
        let behind_next = match meta.goes_on {
            true => NEVER,
            false => behind_next,
        };
        match end.min(behind_next) {
            later if later > now => Ok(later),
            over if over == end => Err(limits.why_expired(bounds.max_wait)),
            // It was let in for the target, and has waited for twice of it.
            _ => Err(RejectReason::Overloaded {
                retry_after: Duration::from_nanos(bounds.behind_next / 2),
            }),
        }
    }

    /// Returns the number of waiters that take a place: all but the patient ones.
    #[inline]
    pub(crate) fn placed(&self) -> usize {
        self.waiting - self.patient
    }

    /// Whether one more request may wait.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.placed() + self.reserved < self.config.max_size
    }

    /// Whether every place is taken, so that an arrival that finds no slot is rejected as [`RejectReason::Full`] unless it
    /// displaces a waiter. A full partition is the same reason, so it need not be known.
    pub(crate) fn is_full(&self) -> bool {
        // Without a waiter all places are reserved, or `max_size` is 0, which is another reason. So is a tenant's own bound.
        // Where slots are kept for a level, or tenants have limits, one may be free although others wait.
        self.placed() > 0
            && self.config.max_size_per_tenant.is_none()
            && self.config.max_concurrent_per_tenant.is_none()
            && self.reserves.is_empty()
            // Whether an arrival displaces a waiter depends on its flow.
            && !(self.config.displace && self.config.has_flows())
            && !self.has_room()
    }

    /// Reserves a place for a request that will arrive, if one is free.
    pub(crate) fn reserve(&mut self) -> bool {
        let is_free = self.has_room();
        // Not for a partition or a tenant: those are not known yet.
        self.reserved += usize::from(is_free);
        is_free
    }

    /// How long the request may wait. An arrival after `now` counts as `now`: otherwise a ticket from the future could
    /// wait for longer than `max_wait`.
    #[inline]
    pub(crate) fn limits(&self, ticket: &Ticket, now: Nanos) -> WaitLimits {
        let arrival = ticket.arrival.map_or(now, |arrival| self.nanos(arrival));
        WaitLimits {
            arrival: arrival.min(now),
            deadline: ticket.deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        }
    }

    /// The key of a request that is queued now in the order of arrival.
    ///
    /// Clocks are read outside the lock, and tickets may come from another process, so a later waiter may name an earlier
    /// arrival. Therefore an arrival is raised to the latest one so far: the order of arrival is the order of queueing.
    /// Only a requeued ticket keeps the arrival that it names.
    #[inline]
    pub(crate) fn next_key(&mut self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let key = self.key_if_queued(ticket, limits);
        self.seq = key.1;
        // A requeued ticket may go back in time, and an early retry is behind all; the others must not follow them.
        if !is_requeued(ticket) && !ticket.client_retry {
            self.latest = key.0;
        }
        key
    }

    /// The key that a request would have in the order of arrival if it were queued now.
    #[inline]
    pub(crate) fn key_if_queued(&self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let since = match is_requeued(ticket) {
            true => limits.arrival,
            false => self.latest.max(limits.arrival),
        };
        let behind = if ticket.client_retry { BEHIND } else { 0 };
        (since + behind, self.seq + 1)
    }

    /// The reason why this ticket may not wait even in an empty room, if there is one.
    #[inline]
    pub(crate) fn refusal<N>(
        &self,
        ticket: &Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) -> Option<RejectReason<N>> {
        // First: it says most about the configuration.
        if self.config.max_size == 0 && !ticket.patient {
            return Some(RejectReason::Disabled);
        }
        if !ticket.wait {
            return Some(RejectReason::NotQueued);
        }
        // A wait that has ended already.
        let max_wait = self.bounds().of(ticket.patient).max_wait;
        (limits.end(max_wait) <= now).then(|| limits.why_expired(max_wait))
    }

    /// The reason for evicting a waiter from a room that became smaller.
    pub(crate) fn why_evicted<N>(&self) -> RejectReason<N> {
        match self.config.max_size {
            0 => RejectReason::Disabled,
            _ => RejectReason::Full,
        }
    }

    /// Returns the end of the wait of a request with this arrival and deadline that has a slot of `pool`, and the reason
    /// then. `None` without a bound.
    pub(crate) fn end_of_wait<N>(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
        is_patient: bool,
        pool: PoolId,
        now: Instant,
    ) -> Option<(Instant, RejectReason<N>)> {
        let limits = WaitLimits {
            arrival: self.epoch.nanos(arrival),
            deadline: deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        };
        let (slots, now) = (self.overload.slots_of(&[pool]), self.epoch.nanos(now));
        let limits = counted(limits, now, slots, now);
        let max_wait = self.bounds().of(is_patient).max_wait;
        let end = self.epoch.instant(limits.end(max_wait))?;
        Some((end, limits.why_expired(max_wait)))
    }

    /// The time until `ahead` waiters have left with a slot, by the measured rate.
    pub(crate) fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        time_for(ahead, self.overload.total_per_second()?)
    }

    /// How many of so many leases were used by requests.
    pub(crate) fn leases_used(&self, leased: u64) -> u64 {
        leased.saturating_sub(self.stats.unclaimed)
    }

    /// Whether the wait of a request is predicted. A requeued one was let in before, unless its client brought it back.
    pub(crate) fn is_predicted(&self, ticket: &Ticket) -> bool {
        self.config.target_wait != TargetWait::Off && !ticket.patient && !is_requeued(ticket)
    }

    /// Whether a request that found no slot may wait for as long as it would have to. Returns the predicted wait, in
    /// seconds; 0 if it is not known.
    pub(crate) fn admit<N>(
        &mut self,
        ticket: &Ticket,
        limits: WaitLimits,
        wait: PredictedWait,
    ) -> Result<f64, RejectReason<N>> {
        let level = self.config.levels.clamp(ticket.priority).0;
        let arriving = self.arriving(level, limits, wait);
        let admitted = self
            .overload
            .admit(&arriving, &ticket.tenant, &self.config, self.now);
        match admitted {
            Ok(predicted) => Ok(predicted),
            Err(excess) => Err(RejectReason::Overloaded {
                retry_after: Duration::try_from_secs_f64(excess).unwrap_or(Duration::MAX),
            }),
        }
    }

    /// Returns a request as far as its wait is concerned.
    fn arriving(&self, level: u8, limits: WaitLimits, wait: PredictedWait) -> Arriving {
        let until = |end: Nanos| match end {
            NEVER => f64::INFINITY,
            _ => seconds(end.saturating_sub(self.now)),
        };
        let deadline = (limits.deadline < NEVER).then_some(until(limits.deadline));
        // The caller waits for an answer, not for a slot.
        let in_time = deadline.map(|time| time - self.shortest_service(wait.lane_hash));
        let bound = until(limits.arrival.saturating_add(self.max_wait()));
        Arriving {
            pool: wait.pool,
            level,
            is_first: wait.is_first,
            flows: wait.flows,
            predicted: wait.seconds,
            leased: wait.leased,
            deadline: deadline.map(|time| time.min(bound)),
            longest: in_time.map_or(bound, |time| time.min(bound)),
            max_wait: bound,
        }
    }

    /// Returns `true` if the queue of this waiter, which names no deadline, is standing: it has waited here for several
    /// service times of its pool.
    pub(crate) fn is_standing(&self, meta: &WaiterMeta, pool: PoolId) -> bool {
        let waited = seconds(self.now.saturating_sub(meta.entered()));
        let service = self.overload.service_seconds(pool);
        service.is_some_and(|service| waited > STANDING_SERVICES * service)
    }

    /// Returns the shortest of the latest services of this lane until their answers began, in seconds; 0 while too few are
    /// known.
    fn shortest_service(&self, lane_hash: u32) -> f64 {
        self.overload.service.shortest(lane_hash).unwrap_or(0.0)
    }

    /// Returns `true` if a waiter has less time left until its deadline than any of the latest services of its lane took.
    #[inline]
    pub(crate) fn is_hopeless(&self, meta: &WaiterMeta) -> bool {
        let deadline = meta.limits.deadline;
        deadline < NEVER
            && seconds(deadline.saturating_sub(self.now)) < self.shortest_service(meta.lane_hash)
    }

    /// A wait ended: compares it with what was predicted.
    #[inline]
    pub(crate) fn on_wait_ended(&mut self, pool: PoolId, meta: &WaiterMeta, is_served: bool) {
        // Newest first, a prediction means nothing to those that are passed.
        if meta.predicted > 0.0 && self.age_order == AgeOrder::OldestFirst {
            let actual = seconds(self.now.saturating_sub(meta.limits.arrival));
            let load = self.overload.pool_mut(pool);
            // Until its slots were made, it waited for something else.
            if !load.is_made_since(meta.limits.arrival) {
                return;
            }
            load.on_wait_ended(meta.priority, meta.predicted.into(), actual, is_served);
        }
    }

    /// Whether the service of a request that gets its slot now is to be watched: not more often than is of use.
    pub(crate) fn is_sampled(&mut self) -> bool {
        let is_due = self.now.saturating_sub(self.sampled_at) >= SAMPLE_INTERVAL;
        if is_due {
            self.sampled_at = self.now;
        }
        is_due
    }

    /// The answer to a request begins.
    pub(crate) fn on_answered(&mut self, sample: &ServiceSample, now: Instant) {
        let time = self.epoch.nanos(now).saturating_sub(sample.started);
        self.overload.service.add(sample.lane_hash, seconds(time));
    }

    /// A waiter got a slot. Where its lane has flows: by which discipline, its tenant, and its cost.
    #[inline]
    pub(crate) fn on_served(&mut self, level: u8, flow: Option<(Discipline, &Tenant, f64)>) {
        self.overload.on_served(level);
        if let Some((discipline, tenant, cost)) = flow {
            // As the flow's virtual time counts it.
            let cost = match discipline {
                Discipline::Fair => cost,
                _ => 1.0,
            };
            let flow = FlowKey::new(level, tenant, discipline, &self.config);
            self.overload
                .on_flow_served(flow, cost, &self.config, self.now);
        }
    }

    /// A tenant is charged for a request that was served, in a lane that is shared among tenants.
    pub(crate) fn on_charged(&mut self, priority: Priority, tenant: &Tenant, cost: f64) {
        // As its ticket said: where no request waits, a slot is given without a look at the levels.
        let Priority(level) = self.config.levels.clamp(priority);
        let flow = FlowKey::new(level, tenant, Discipline::Fair, &self.config);
        self.overload
            .on_flow_served(flow, cost, &self.config, self.now);
    }

    /// One more request waits.
    #[inline]
    pub(crate) fn on_queued(&mut self, is_patient: bool) {
        self.waiting += 1;
        self.patient += usize::from(is_patient);
        self.high_water.note(self.waiting);
    }

    /// One request less waits.
    #[inline]
    pub(crate) fn on_unlinked(&mut self, is_patient: bool) {
        self.waiting -= 1;
        self.patient -= usize::from(is_patient);
    }

    /// All waiters are unlinked, to be counted again.
    pub(crate) fn on_all_unlinked(&mut self) {
        (self.waiting, self.patient) = (0, 0);
    }

    /// Returns the place in the order of arrival that another ticket gives a waiter: that of a requeued request, whatever the
    /// ticket says of that.
    pub(crate) fn new_place(ticket: &Ticket, limits: WaitLimits) -> Nanos {
        limits.arrival + if ticket.client_retry { BEHIND } else { 0 }
    }
}

/// Returns what bounds a wait for these slots, of a request that entered the room then: `max_wait` counts from when they are
/// there, and not while they are made.
pub(crate) fn counted(limits: WaitLimits, entered: Nanos, slots: Slots, now: Nanos) -> WaitLimits {
    let since = match slots {
        Slots::Made { since } => since,
        Slots::Making => now,
        // A requeued request may have waited for the load of another model before.
        Slots::Unmade { since } => since.max(entered),
    };
    WaitLimits {
        arrival: limits.arrival.max(since),
        ..limits
    }
}

impl WaitLimits {
    /// The reason for which a wait ends at its [end](Self::end).
    pub(crate) fn why_expired<N>(self, max_wait: Nanos) -> RejectReason<N> {
        let end = self.end(max_wait);
        // Where both end at the same instant, the deadline is the reason.
        if self.deadline == end && end < NEVER {
            RejectReason::DeadlinePassed
        } else {
            RejectReason::TimedOut
        }
    }
}

/// The wait of the oldest waiter without a deadline from which on a queue is standing, in service times: a queue that keeps
/// the slots busy is shorter.
const STANDING_SERVICES: f64 = 3.0;

/// A thousand services per second teach as much as a million, in nanoseconds.
const SAMPLE_INTERVAL: Nanos = 1_000_000;

/// Added to the arrival of a retry that came too early: it goes behind all first attempts. Instants are below this, and
/// the sum does not overflow.
pub(crate) const BEHIND: Nanos = 1 << 63;

/// How long a request would have to wait, by the work ahead of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PredictedWait {
    /// The first pool that could serve it.
    pub(crate) pool: PoolId,
    /// Identifies its lane in the service times.
    pub(crate) lane_hash: u32,
    /// Whether no waiter goes before it.
    pub(crate) is_first: bool,
    /// The discipline of its lane, if that is shared by flows.
    pub(crate) flows: Option<Discipline>,
    /// How many leases the capacity has given so far.
    pub(crate) leased: u64,
    /// `None` while that is not known.
    pub(crate) seconds: Option<f64>,
}

/// How long `ahead` waiters take to leave at this rate. `None` if that is longer than a duration can be.
pub(crate) fn time_for(ahead: usize, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ahead as f64 / per_second).ok()
}

/// Whether a ticket keeps its original place in the order: only if it says when it arrived.
#[inline]
pub(crate) fn is_requeued(ticket: &Ticket) -> bool {
    ticket.requeued && ticket.arrival.is_some()
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
