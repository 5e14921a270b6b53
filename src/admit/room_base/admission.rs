//! Admission: whether a request may wait for as long as it would have to, by what was measured.

use std::time::{Duration, Instant};

use super::clock::Clock;
use crate::admit::age_order::AgeOrder;
use crate::admit::flow::FlowKey;
use crate::admit::nanos::{NEVER, Nanos, seconds};
use crate::admit::overload::{Arriving, Overload};
use crate::admit::waiters::{WaitLimits, WaiterMeta};
use crate::admit::{
    Discipline, PoolId, RejectReason, ServiceSample, Tenant, Ticket, WaitingRoomConfig,
};

/// What a room measures: the waits, and the times of service.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) overload: Overload,
    /// The time at which a request's service was last watched.
    sampled_at: Nanos,
    /// The arrivals that are let in without a prediction.
    short: ShortWaits,
}

/// How long a request would have to wait, by the work ahead of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PredictedWait {
    /// The first pool that could serve it.
    pub(crate) pool: PoolId,
    /// Identifies its lane in the service times.
    pub(crate) lane_hash: u32,
    /// The number of waiters that go before it.
    pub(crate) ahead: usize,
    /// The discipline of its lane, if that is shared by flows.
    pub(crate) flows: Option<Discipline>,
    /// The number of leases that the capacity has given so far.
    pub(crate) leased: u64,
    /// `None` while that is not known.
    pub(crate) seconds: Option<f64>,
}

/// Arrivals whose wait is certainly far below the target, because that of one just before was.
#[derive(Debug, Clone, Copy, Default)]
struct ShortWaits {
    /// The lane and the level of that arrival.
    lane_hash: u32,
    level: u8,
    /// The number of arrivals that may follow it.
    left: u8,
    /// The time until which they may.
    until: Nanos,
}

/// The number of arrivals that are let in after one whose wait was predicted.
const SHORT_WAITS: u8 = 15;
/// The time in which they are, in nanoseconds.
const SHORT_WAITS_IN: Nanos = 1_000_000;

impl Admission {
    pub(super) fn new(levels: usize) -> Self {
        Self {
            overload: Overload::new(levels),
            sampled_at: 0,
            short: ShortWaits::default(),
        }
    }

    pub(super) fn set_config(&mut self, config: &WaitingRoomConfig) {
        self.overload.set_config(config);
        self.short.left = 0;
    }

    /// Returns `true` if a request of this level that names no deadline is let in without a prediction, and counts it.
    #[inline]
    pub(crate) fn is_short(&mut self, lane_hash: u32, level: u8, now: Nanos) -> bool {
        let short = &mut self.short;
        let is_short = short.left > 0
            && now <= short.until
            && (short.lane_hash, short.level) == (lane_hash, level);
        short.left -= u8::from(is_short);
        is_short
    }

    /// Decides whether a request that found no slot may wait for as long as it would have to. Returns the predicted wait, in
    /// seconds; 0 if it is not known.
    pub(super) fn admit<N>(
        &mut self,
        ticket: &Ticket,
        arriving: &Arriving,
        behind: (u32, usize),
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> Result<f64, RejectReason<N>> {
        let tenant = &ticket.tenant;
        match self.overload.admit(arriving, tenant, config, now) {
            Ok(predicted) => {
                self.expect_short_waits(arriving, behind, config, now);
                Ok(predicted)
            }
            Err(excess) => Err(RejectReason::Overloaded {
                retry_after: Duration::try_from_secs_f64(excess).unwrap_or(Duration::MAX),
            }),
        }
    }

    /// Lets the next arrivals of this level in without a prediction, if that would be far below the target for each of them.
    fn expect_short_waits(
        &mut self,
        arriving: &Arriving,
        (lane_hash, ahead): (u32, usize),
        config: &WaitingRoomConfig,
        now: Nanos,
    ) {
        let Arriving { pool, level, .. } = *arriving;
        // Those with a share of their own have a target of their own.
        if arriving.flows.is_some() {
            return;
        }
        // No request is refused for a wait that is not known.
        let is_short = arriving.predicted.is_none_or(|predicted| {
            // The last of them is behind the others.
            let longer = (ahead + 1 + usize::from(SHORT_WAITS)) as f64 / (ahead + 1) as f64;
            let longest = predicted * longer * self.overload.correction(pool, level, predicted);
            2.0 * longest < self.overload.target_at(pool, level, config)
        });
        if is_short {
            self.short = ShortWaits {
                lane_hash,
                level,
                left: SHORT_WAITS,
                until: now.saturating_add(SHORT_WAITS_IN),
            };
        }
    }

    /// Returns a request as far as its wait is concerned. `max_wait`: the bound of the room, in nanoseconds.
    pub(super) fn arriving(
        &self,
        level: u8,
        limits: WaitLimits,
        wait: PredictedWait,
        (max_wait, now): (Nanos, Nanos),
    ) -> Arriving {
        let until = |end: Nanos| match end {
            NEVER => f64::INFINITY,
            _ => seconds(end.saturating_sub(now)),
        };
        let deadline = (limits.deadline < NEVER).then_some(until(limits.deadline));
        // The caller waits for an answer, not for a slot.
        let in_time = deadline.map(|time| time - self.shortest_service(wait.lane_hash));
        let bound = until(limits.arrival.saturating_add(max_wait));
        Arriving {
            pool: wait.pool,
            level,
            is_first: wait.ahead == 0,
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
    pub(crate) fn is_standing(&self, meta: &WaiterMeta, pool: PoolId, now: Nanos) -> bool {
        let waited = seconds(now.saturating_sub(meta.entered()));
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
    pub(crate) fn is_hopeless(&self, meta: &WaiterMeta, now: Nanos) -> bool {
        let deadline = meta.limits.deadline;
        deadline < NEVER
            && seconds(deadline.saturating_sub(now)) < self.shortest_service(meta.lane_hash)
    }

    /// Compares a wait that ended with what was predicted.
    #[inline]
    pub(super) fn on_wait_ended(
        &mut self,
        pool: PoolId,
        meta: &WaiterMeta,
        is_served: bool,
        (order, now): (AgeOrder, Nanos),
    ) {
        // Newest first, a prediction means nothing to those that are passed.
        if meta.predicted > 0.0 && order == AgeOrder::OldestFirst {
            let actual = seconds(now.saturating_sub(meta.limits.arrival));
            let load = self.overload.pool_mut(pool);
            // Until its slots were made, it waited for something else.
            if !load.is_made_since(meta.limits.arrival) {
                return;
            }
            load.on_wait_ended(meta.priority, meta.predicted.into(), actual, is_served);
        }
    }

    /// Returns `true` if the service of a request that gets its slot now is to be watched: not more often than is of use.
    pub(crate) fn is_sampled(&mut self, now: Nanos) -> bool {
        let is_due = now.saturating_sub(self.sampled_at) >= SAMPLE_INTERVAL;
        if is_due {
            self.sampled_at = now;
        }
        is_due
    }

    /// Records that the answer to a request begins.
    pub(super) fn on_answered(&mut self, sample: &ServiceSample, clock: &Clock, now: Instant) {
        let time = clock.epoch.nanos(now).saturating_sub(sample.started);
        self.overload.service.add(sample.lane_hash, seconds(time));
    }

    /// Records that a waiter got a slot. Where its lane has flows: by which discipline, its tenant, and its cost.
    #[inline]
    pub(super) fn on_served(
        &mut self,
        level: u8,
        flow: Option<(Discipline, &Tenant, f64)>,
        (config, now): (&WaitingRoomConfig, Nanos),
    ) {
        self.overload.on_served(level);
        if let Some((discipline, tenant, cost)) = flow {
            // As the flow's virtual time counts it.
            let cost = match discipline {
                Discipline::Fair => cost,
                _ => 1.0,
            };
            let flow = FlowKey::new(level, tenant, discipline, config);
            self.overload.on_flow_served(flow, cost, config, now);
        }
    }
}

/// The wait of the oldest waiter without a deadline from which on a queue is standing, in service times: a queue that keeps
/// the slots busy is shorter.
const STANDING_SERVICES: f64 = 3.0;

/// The least time between two services that are watched, in nanoseconds: a thousand per second teach as much as a million.
const SAMPLE_INTERVAL: Nanos = 1_000_000;
