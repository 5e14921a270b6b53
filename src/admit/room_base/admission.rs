//! Admission, which decides by measurements if a request may wait for the time that it would have to.

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

/// The measurements of a room: its waits and its service times.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) overload: Overload,
    /// The instant at which a request's service was last watched.
    sampled_at: Nanos,
    /// The arrivals that are admitted without a prediction.
    short: ShortWaits,
}

/// The predicted wait of a request, which follows from the work ahead of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PredictedWait {
    /// The first pool that could serve the request.
    pub(crate) pool: PoolId,
    /// The hash that identifies the request's lane in the service times.
    pub(crate) lane_hash: u32,
    /// The number of waiters that go before the request.
    pub(crate) ahead: usize,
    /// The discipline of the request's lane, if flows share the lane.
    pub(crate) flows: Option<Discipline>,
    /// The number of leases that the capacity has given so far.
    pub(crate) leased: u64,
    /// The predicted wait in seconds; `None` while it is unknown.
    pub(crate) seconds: Option<f64>,
}

/// The next arrivals, which are certain to wait far below the target because an arrival just before them had a short
/// wait.
#[derive(Debug, Clone, Copy, Default)]
struct ShortWaits {
    /// The lane of the arrival that was predicted, followed by its level.
    lane_hash: u32,
    level: u8,
    /// The number of arrivals that may still follow without a prediction.
    left: u8,
    /// The instant until which they may follow.
    until: Nanos,
}

/// The number of arrivals that are admitted after one with a predicted wait.
const SHORT_WAITS: u8 = 15;
/// The time within which they are admitted, in nanoseconds.
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

    /// Returns `true` if a request of this level, which has no deadline, is admitted without a prediction. Counts the
    /// request in that case.
    #[inline]
    pub(crate) fn is_short(&mut self, lane_hash: u32, level: u8, now: Nanos) -> bool {
        let short = &mut self.short;
        let is_short = short.left > 0
            && now <= short.until
            && (short.lane_hash, short.level) == (lane_hash, level);
        short.left -= u8::from(is_short);
        is_short
    }

    /// Decides if a request that found no slot may wait for the predicted time. Returns the predicted wait in seconds,
    /// or 0 if it is unknown.
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

    /// Admits the next arrivals of this level without a prediction, if each of their waits would be far below the
    /// target.
    fn expect_short_waits(
        &mut self,
        arriving: &Arriving,
        (lane_hash, ahead): (u32, usize),
        config: &WaitingRoomConfig,
        now: Nanos,
    ) {
        let Arriving { pool, level, .. } = *arriving;
        // Flows with shares are excluded, because each flow has a target of its own.
        if arriving.flows.is_some() {
            return;
        }
        // An unknown wait counts as short, because no request is refused for it.
        let is_short = arriving.predicted.is_none_or(|predicted| {
            // The last of these arrivals waits behind all others.
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

    /// Returns the values of a request that decide about its wait. `max_wait` is the bound of the room, in nanoseconds.
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
        // The time of a service is subtracted, because the caller waits for an answer.
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

    /// Returns `true` if this waiter, which has no deadline, is in a standing queue. It is standing if the waiter has
    /// been in the room for several service times of its pool.
    pub(crate) fn is_standing(&self, meta: &WaiterMeta, pool: PoolId, now: Nanos) -> bool {
        let waited = seconds(now.saturating_sub(meta.entered()));
        let service = self.overload.service_seconds(pool);
        service.is_some_and(|service| waited > STANDING_SERVICES * service)
    }

    /// Returns the shortest of this lane's latest service times until the answer began, in seconds, or 0 while there
    /// are too few samples.
    fn shortest_service(&self, lane_hash: u32) -> f64 {
        self.overload.service.shortest(lane_hash).unwrap_or(0.0)
    }

    /// Returns `true` if the time until a waiter's deadline is shorter than all of the latest services of its lane.
    #[inline]
    pub(crate) fn is_hopeless(&self, meta: &WaiterMeta, now: Nanos) -> bool {
        let deadline = meta.limits.deadline;
        deadline < NEVER
            && seconds(deadline.saturating_sub(now)) < self.shortest_service(meta.lane_hash)
    }

    /// Compares a wait that ended with its prediction.
    #[inline]
    pub(super) fn on_wait_ended(
        &mut self,
        pool: PoolId,
        meta: &WaiterMeta,
        is_served: bool,
        (order, now): (AgeOrder, Nanos),
    ) {
        // With the newest first, predictions do not apply to waiters that others pass.
        if meta.predicted > 0.0 && order == AgeOrder::OldestFirst {
            let actual = seconds(now.saturating_sub(meta.limits.arrival));
            let load = self.overload.pool_mut(pool);
            // If the slots became ready after the arrival, the wait includes a start and teaches nothing about the
            // service.
            if !load.is_made_since(meta.limits.arrival) {
                return;
            }
            load.on_wait_ended(meta.priority, meta.predicted.into(), actual, is_served);
        }
    }

    /// Returns `true` if the service of a request that gets its slot now should be watched. Watching more services than
    /// that would be of little use.
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

    /// Records that a waiter got a slot. `flow` has the discipline, the tenant and the cost, if the waiter's lane has
    /// flows.
    #[inline]
    pub(super) fn on_served(
        &mut self,
        level: u8,
        flow: Option<(Discipline, &Tenant, f64)>,
        (config, now): (&WaitingRoomConfig, Nanos),
    ) {
        self.overload.on_served(level);
        if let Some((discipline, tenant, cost)) = flow {
            // The cost is counted as in the flow's virtual time.
            let cost = match discipline {
                Discipline::Fair => cost,
                _ => 1.0,
            };
            let flow = FlowKey::new(level, tenant, discipline, config);
            self.overload.on_flow_served(flow, cost, config, now);
        }
    }
}

/// The wait of the oldest waiter without a deadline from which on a queue is standing, in service times. A queue that
/// only keeps the slots busy is shorter.
const STANDING_SERVICES: f64 = 3.0;

/// The least time between two services that are watched, in nanoseconds. A thousand per second teach as much as a
/// million.
const SAMPLE_INTERVAL: Nanos = 1_000_000;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LANE: u32 = 7;
    const LEVEL: u8 = 1;

    /// Returns an admission after an arrival with this predicted wait in seconds, at a target of 1 s.
    fn after_a_wait_of(predicted: Option<f64>, ahead: usize) -> Admission {
        let config = WaitingRoomConfig::default().target_wait(Duration::from_secs(1));
        let mut admission = Admission::new(config.levels.count());
        let arriving = Arriving {
            pool: PoolId(0),
            level: LEVEL,
            is_first: ahead == 0,
            flows: None,
            predicted,
            deadline: None,
            longest: f64::INFINITY,
            max_wait: f64::INFINITY,
            leased: 0,
        };
        admission.expect_short_waits(&arriving, (LANE, ahead), &config, 0);
        admission
    }

    /// Returns the number of arrivals at `now` that need no prediction.
    fn unpredicted(admission: &mut Admission, level: u8, now: Nanos) -> usize {
        let arrivals = (0..100).filter(|_| admission.is_short(LANE, level, now));
        arrivals.count()
    }

    #[test]
    fn fifteen_arrivals_within_a_millisecond_need_no_prediction() {
        let admission = || after_a_wait_of(None, 0);
        assert_eq!(unpredicted(&mut admission(), LEVEL, SHORT_WAITS_IN), 15);
        assert_eq!(unpredicted(&mut admission(), LEVEL, SHORT_WAITS_IN + 1), 0);
        // They go before or behind other waiters than those of the predicted arrival.
        assert_eq!(unpredicted(&mut admission(), LEVEL - 1, 0), 0);
        assert!(!admission().is_short(LANE + 1, LEVEL, 0));
    }

    #[test]
    fn each_unpredicted_wait_is_far_below_the_target() {
        // With nine ahead, the fifteenth arrival has 25 turns to wait in place of 10: 2.5 times the time.
        for (seconds, expected) in [(0.19, 15), (0.21, 0)] {
            let mut admission = after_a_wait_of(Some(seconds), 9);
            assert_eq!(unpredicted(&mut admission, LEVEL, 0), expected, "{seconds}");
        }
    }

    #[test]
    fn another_configuration_ends_the_unpredicted_arrivals() {
        let mut admission = after_a_wait_of(None, 0);
        admission.set_config(&WaitingRoomConfig::default());
        assert_eq!(unpredicted(&mut admission, LEVEL, 0), 0);
    }
}
