//! The decision about an arrival that found no slot, which follows from the wait that is predicted for it.

use super::Overload;
use super::idleness::IDLE;
use crate::admit::nanos::Nanos;
use crate::admit::{Discipline, PoolId, TargetWait, Tenant, WaitingRoomConfig};

/// An arrival that found no slot, with the values that decide about its wait. Times are in seconds, and infinite
/// without a bound.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The first pool that could serve the request. Predictions use the corrections of this pool.
    pub(crate) pool: PoolId,
    /// The hash that identifies the request's lane in the service times.
    pub(crate) lane_hash: u32,
    pub(crate) level: u8,
    /// The number of waiters that go before the request.
    pub(crate) ahead: usize,
    /// The discipline of the arrival's lane, if flows share the lane.
    pub(crate) flows: Option<Discipline>,
    /// The wait that follows from the work ahead, if it is known.
    pub(crate) predicted: Option<f64>,
    /// The time until the deadline that the caller named.
    pub(crate) deadline: Option<f64>,
    /// The longest wait that the room allows and after which the answer may still come in time. It is below 0 if the
    /// answer would come too late even without a wait.
    pub(crate) longest: f64,
    /// The time until the room's own bound on its wait.
    pub(crate) max_wait: f64,
    /// The number of leases that the capacity has given so far.
    pub(crate) leased: u64,
}

/// The next arrivals, which are certain to wait far below the target because an arrival just before them had a short
/// wait.
#[derive(Debug, Default)]
pub(super) struct ShortWaits {
    /// The lane of the arrival that was predicted, and its level.
    place: (u32, u8),
    /// The number of arrivals that may still follow without a prediction.
    left: u8,
    /// The instant until which they may follow.
    until: Nanos,
}

/// The number of arrivals that are admitted after one with a predicted wait.
const SHORT_WAITS: u8 = 15;
/// The time within which they are admitted, in nanoseconds.
const SHORT_WAITS_IN: Nanos = 1_000_000;
/// The automatic target, as a number of waiters. Together with the services that start meanwhile, this many waiters
/// keep the pool's slots busy.
const AUTO_WAITERS: f64 = 3.0;
/// The shortest automatic target, in service times. It applies to pools of many slots.
const AUTO_SERVICES: f64 = 0.125;
/// The time over which idleness is averaged, in service times, followed by its bounds in seconds. With a shorter time,
/// a standing queue becomes short sooner. With a longer time, more of a burst is admitted.
const MEMORY_SERVICES: f64 = 10.0;
const MEMORY: (f64, f64) = (10.0, 60.0);
/// The longest wait of a burst, in seconds, if waits are unbounded. It equals the default of `max_wait`.
const UNBOUNDED: f64 = 30.0;
/// The time over which the tenants' shares are averaged, in multiples of the time for idleness. It is longer because
/// one tenant is served less often than all of them together.
const SHARES_MEMORY: f64 = 6.0;
/// The unused part of a tenant's share from which on its requests are admitted like a burst.
const UNUSED: f64 = 0.05;

impl Overload {
    /// Decides about an arrival. If it may wait, returns its wait as it was predicted, for [`PoolLoad::on_wait_ended`],
    /// or 0 if the wait is unknown.
    ///
    /// # Errors
    ///
    /// Returns the number of seconds by which the wait would exceed the target, if the arrival is refused.
    pub(crate) fn admit(
        &mut self,
        arriving: &Arriving,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> Result<f64, f64> {
        let memory = self.memory(arriving.pool);
        // Without a known rate the possible number of services is unknown, so the averages keep their initial value.
        if self.total_per_second().is_some() {
            let pools = &mut self.pools;
            // The closure is called only if a measurement is due, because it takes the counts out of the pools.
            let possible = |time| pools.iter_mut().map(|pool| pool.take_possible(time)).sum();
            self.idleness
                .observe(now, arriving.leased, possible, memory);
        }
        // An unknown wait is admitted.
        let predicted = match arriving.predicted {
            Some(predicted) => self.check(arriving, predicted, tenant, config, now)?,
            None => 0.0,
        };
        self.expect_short_waits(arriving, config, now);
        Ok(predicted)
    }

    /// Returns `predicted`, or an error if an arrival with this predicted wait is refused.
    fn check(
        &mut self,
        arriving: &Arriving,
        predicted: f64,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> Result<f64, f64> {
        let level = arriving.level;
        let target = self.target(arriving, tenant, config, now);
        let load = self.pool_mut(arriving.pool);
        // The corrected wait decides. The uncorrected one is returned, because the corrections are learned from it.
        let wait = predicted * load.correction(level, predicted);
        // A request is refused as late only if its answer is most likely to be late, because callers would otherwise do
        // better without naming a deadline. The quantile lags behind the mean after predictions that were far too long,
        // so the smaller of the two counts.
        let longer_than = load.exceeded(level, predicted).min(wait);
        let is_late = longer_than > arriving.longest;
        // The first in line is admitted, because the slot that is free next might stay idle without it. The probe is
        // asked last, because asking uses it up.
        let mut is_probe = || {
            let deadline = arriving.deadline;
            deadline.is_none_or(|time| load.is_probed_by(now, time))
        };
        if arriving.ahead == 0 && (!is_late || is_probe()) {
            return Ok(predicted);
        }
        let excess = wait - target;
        if is_late {
            // A configured target may be longer than the wait, and then `excess` is below 0.
            return Err(excess.max(longer_than - arriving.longest));
        }
        // The probability of a refusal rises from 0 at the target to 1 at twice the target.
        match excess > 0.0 && load.refuses(level, (excess / target).min(1.0)) {
            true => Err(excess),
            false => Ok(predicted),
        }
    }

    /// Admits the next arrivals of this level without a prediction, if each of their waits would be far below the
    /// target.
    fn expect_short_waits(&mut self, arriving: &Arriving, config: &WaitingRoomConfig, now: Nanos) {
        let Arriving { pool, level, .. } = *arriving;
        // Flows with shares are excluded, because each flow has a target of its own.
        if arriving.flows.is_some() {
            return;
        }
        // An unknown wait counts as short, because no request is refused for it.
        let is_short = arriving.predicted.is_none_or(|predicted| {
            // The last of these arrivals waits behind all others.
            let turns = (arriving.ahead + 1) as f64;
            let longer = (turns + f64::from(SHORT_WAITS)) / turns;
            let longest = predicted * longer * self.correction(pool, level, predicted);
            2.0 * longest < self.target_at(pool, level, config)
        });
        if is_short {
            self.short = ShortWaits {
                place: (arriving.lane_hash, level),
                left: SHORT_WAITS,
                until: now.saturating_add(SHORT_WAITS_IN),
            };
        }
    }

    /// Returns `true` if a request of this level, which has no deadline, is admitted without a prediction. Counts the
    /// request in that case.
    #[inline]
    pub(crate) fn is_short(&mut self, lane_hash: u32, level: u8, now: Nanos) -> bool {
        let short = &mut self.short;
        let is_short = short.left > 0 && now <= short.until && short.place == (lane_hash, level);
        short.left -= u8::from(is_short);
        is_short
    }

    /// Returns the wait above which a request may be refused, in seconds.
    fn target(
        &mut self,
        arriving: &Arriving,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> f64 {
        let Arriving { pool, level, .. } = *arriving;
        let mut burst = self.idle_burst(level, arriving.flows.is_some(), config);
        // A near deadline leaves the target as it is, because callers would otherwise do better without naming one.
        if let Some(discipline) = arriving.flows {
            self.shares.observe(now, SHARES_MEMORY * self.memory(pool));
            let flow = self.shares.flow_weights.key(level, tenant, discipline);
            let unused = self.shares.unused(flow, now);
            burst = burst.max(degree(unused / UNUSED));
        } else if arriving.deadline.is_none() {
            burst = for_silent(burst);
        }
        burst_target(
            self.busy_target(pool, config),
            arriving.max_wait,
            burst,
            config,
        )
    }

    /// Returns the target of this level at a pool for callers without a deadline, in seconds; infinite without a
    /// target. This leaves all measurements as they are.
    pub(crate) fn target_at(&self, pool: PoolId, level: u8, config: &WaitingRoomConfig) -> f64 {
        let max_wait = config.max_wait.map(|max| max.as_secs_f64());
        // If flows have shares, a flow needs a queue to get its share from the first second of a flood on. Its silent
        // callers are therefore treated like those with a deadline.
        let burst = self.idle_burst(level, config.has_flows(), config);
        let burst = match config.has_flows() {
            true => burst,
            false => for_silent(burst),
        };
        let target = self.busy_target(pool, config);
        burst_target(target, max_wait.unwrap_or(f64::INFINITY), burst, config)
    }

    /// Returns the factor by which to multiply a predicted wait of this level.
    pub(crate) fn correction(&self, pool: PoolId, level: u8, predicted: f64) -> f64 {
        let load = self.load(pool);
        load.map_or(1.0, |load| load.correction(level, predicted))
    }

    /// Returns the target in a standing queue for this pool, in seconds; infinite without one.
    fn busy_target(&self, pool: PoolId, config: &WaitingRoomConfig) -> f64 {
        match config.target_wait {
            TargetWait::Auto => {
                let slots = self.load(pool).map_or(1.0, |load| load.slots);
                // Until the service time is known, all predictions are missing, so this target is only reported.
                let service = self.service_seconds(pool).unwrap_or(0.0);
                service * AUTO_SERVICES.max(AUTO_WAITERS / slots)
            }
            TargetWait::After(target) => target.as_secs_f64(),
            TargetWait::Off => f64::INFINITY,
        }
    }

    /// Returns the time over which the idleness of slots is averaged, in seconds.
    fn memory(&self, pool: PoolId) -> f64 {
        let service = self.service_seconds(pool).unwrap_or(0.0);
        (MEMORY_SERVICES * service).clamp(MEMORY.0, MEMORY.1)
    }

    /// Returns the degree to which a burst of callers with deadlines is admitted, because slots were idle lately as a
    /// level sees it. `has_flows` is `true` for a lane that flows share.
    fn idle_burst(&self, level: u8, has_flows: bool, config: &WaitingRoomConfig) -> f64 {
        let idle = match has_flows && !config.level_weights.is_empty() {
            // Other levels used their slots by right, so only slots that all levels left free count as idle.
            true => self.idleness.share_of_all(),
            false => self.idleness.share(level),
        };
        degree(idle / IDLE)
    }
}

/// Returns the degree to which a burst is admitted, from 0 to 1. `left` is the unused part of the slots or of a share,
/// relative to the part that admits a burst fully. The degree is its square.
fn degree(left: f64) -> f64 {
    left.min(1.0).powi(2)
}

/// Returns the degree to which a burst without deadlines is admitted, if one with deadlines is admitted to the degree
/// `burst`.
///
/// A caller that names its deadline is still there when its turn comes. A silent caller may have left, so its burst has
/// to be over sooner. Otherwise the slots of the first seconds of an overload would go to callers that leave.
fn for_silent(burst: f64) -> f64 {
    burst.powi(2)
}

/// Returns the target while bursts are admitted to the degree `burst`. The target grows up to the room's bound, unless
/// it was configured.
fn burst_target(target: f64, max_wait: f64, burst: f64, config: &WaitingRoomConfig) -> f64 {
    if config.target_wait != TargetWait::Auto {
        return target;
    }
    let max_wait = match max_wait.is_finite() {
        true => max_wait,
        false => UNBOUNDED,
    };
    target + burst * (max_wait - target).max(0.0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::overload::Idleness;

    const SECOND: Nanos = 1_000_000_000;

    /// A room of one slot that serves a request in 1 s and was never idle. The arrival would wait for 10 s, and its
    /// caller has a deadline in 30 s.
    fn busy() -> (Overload, Arriving) {
        let mut overload = Overload::new(1, &Default::default());
        overload.idleness = Idleness::new(1, 0.0);
        let pool = overload.pool_mut(PoolId(0));
        pool.observe(SECOND, 1, true);
        for second in 2..=101 {
            pool.observe(second * SECOND, 1, false);
            pool.on_handed_over();
        }
        let arriving = Arriving {
            pool: PoolId(0),
            level: 0,
            lane_hash: 0,
            ahead: 1,
            flows: None,
            predicted: Some(10.0),
            deadline: Some(30.0),
            longest: 30.0,
            max_wait: 30.0,
            leased: 0,
        };
        (overload, arriving)
    }

    /// Returns the number of refusals among 100 such arrivals.
    fn refused(overload: &mut Overload, arriving: &Arriving, target: TargetWait) -> usize {
        let config = WaitingRoomConfig::default().target_wait(target);
        let admit = |_: &i32| {
            overload
                .admit(arriving, &Tenant::NONE, &config, SECOND)
                .is_err()
        };
        (0..100).filter(admit).count()
    }

    fn after(seconds: u64) -> TargetWait {
        std::time::Duration::from_secs(seconds).into()
    }

    #[test]
    fn refusals_rise_from_the_target_to_twice_the_target() {
        let (mut overload, arriving) = busy();
        for (target, expected) in [(10, 0), (8, 25), (5, 100), (1, 100)] {
            let refused = refused(&mut overload, &arriving, after(target));
            assert_eq!(refused, expected, "{target}");
        }
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Off), 0);
    }

    #[test]
    fn the_automatic_target_keeps_the_slots_busy() {
        let (mut overload, mut arriving) = busy();
        // Three services of 1 s on one slot.
        for (wait, expected) in [(3.0, 0), (4.5, 50), (6.0, 100)] {
            arriving.predicted = Some(wait);
            let refused = refused(&mut overload, &arriving, TargetWait::Auto);
            assert_eq!(refused, expected, "{wait}");
        }
        // With many slots the target is an eighth of a service time.
        overload.pool_mut(PoolId(0)).observe(101 * SECOND, 96, true);
        for (wait, expected) in [(0.125, 0), (0.25, 100)] {
            arriving.predicted = Some(wait);
            let refused = refused(&mut overload, &arriving, TargetWait::Auto);
            assert_eq!(refused, expected, "{wait}");
        }
    }

    #[test]
    fn the_first_in_line_is_let_in_unless_it_would_be_late() {
        let (mut overload, mut arriving) = busy();
        arriving.ahead = 0;
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 0);
        arriving.longest = 9.0;
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 100);
        // A caller without a deadline may wait for longer than the room lets it.
        arriving.deadline = None;
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 0);
    }

    #[test]
    fn a_configured_target_does_not_grow() {
        let (mut overload, arriving) = busy();
        for idle in [0.0, IDLE] {
            overload.idleness = Idleness::new(1, idle);
            for (target, expected) in [(10, 0), (8, 25), (5, 100)] {
                let refused = refused(&mut overload, &arriving, after(target));
                assert_eq!(refused, expected, "{target}, {idle} idle");
            }
        }
    }

    #[test]
    fn without_a_bound_a_burst_waits_as_long_as_with_the_default() {
        let (mut overload, mut arriving) = busy();
        (arriving.deadline, arriving.longest) = (None, f64::INFINITY);
        arriving.max_wait = f64::INFINITY;
        overload.idleness = Idleness::new(1, IDLE);
        for (wait, expected) in [(29.0, 0), (60.0, 100)] {
            arriving.predicted = Some(wait);
            let refused = refused(&mut overload, &arriving, TargetWait::Auto);
            assert_eq!(refused, expected, "{wait}");
        }
    }

    #[test]
    fn a_burst_is_let_in_where_slots_were_idle_as_long_as_it_is_in_time() {
        let (mut overload, mut arriving) = busy();
        overload.idleness = Idleness::new(1, IDLE);
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 0);
        arriving.longest = 9.5;
        assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 100);
    }

    #[test]
    fn a_request_is_late_if_most_waits_like_its_own_would_be() {
        let (mut overload, mut arriving) = busy();
        overload.idleness = Idleness::new(1, IDLE);
        // One wait in ten is half as long as predicted.
        for nth in 0..1_000 {
            let actual = if nth % 10 == 0 { 5.0 } else { 11.25 };
            let load = overload.pool_mut(PoolId(0));
            load.on_wait_ended(0, 10.0, actual, true);
        }
        for (longest, expected) in [(8.0, 0), (4.0, 100)] {
            arriving.longest = longest;
            let refused = refused(&mut overload, &arriving, TargetWait::Auto);
            assert_eq!(refused, expected, "{longest}");
        }
    }

    #[test]
    fn a_deadline_makes_no_target_shorter() {
        let (mut overload, mut arriving) = busy();
        // A target of 3 s, and a third of the way to 30 s.
        overload.idleness = Idleness::new(1, IDLE * (1.0_f64 / 3.0).sqrt());
        for longest in [30.0, 10.0] {
            arriving.longest = longest;
            assert_eq!(refused(&mut overload, &arriving, TargetWait::Auto), 0);
        }
    }

    const LANE: u32 = 7;
    const LEVEL: u8 = 1;

    /// Returns the measurements after an arrival with this predicted wait in seconds, at a target of 1 s.
    fn after_a_wait_of(predicted: Option<f64>, ahead: usize) -> Overload {
        let config = WaitingRoomConfig::default().target_wait(std::time::Duration::from_secs(1));
        let mut overload = Overload::new(config.levels.count(), &Default::default());
        let arriving = Arriving {
            pool: PoolId(0),
            lane_hash: LANE,
            level: LEVEL,
            ahead,
            flows: None,
            predicted,
            deadline: None,
            longest: f64::INFINITY,
            max_wait: f64::INFINITY,
            leased: 0,
        };
        overload.expect_short_waits(&arriving, &config, 0);
        overload
    }

    /// Returns the number of arrivals at `now` that need no prediction.
    fn unpredicted(overload: &mut Overload, level: u8, now: Nanos) -> usize {
        let arrivals = (0..100).filter(|_| overload.is_short(LANE, level, now));
        arrivals.count()
    }

    #[test]
    fn fifteen_arrivals_within_a_millisecond_need_no_prediction() {
        let overload = || after_a_wait_of(None, 0);
        assert_eq!(unpredicted(&mut overload(), LEVEL, SHORT_WAITS_IN), 15);
        assert_eq!(unpredicted(&mut overload(), LEVEL, SHORT_WAITS_IN + 1), 0);
        // They go before or behind other waiters than those of the predicted arrival.
        assert_eq!(unpredicted(&mut overload(), LEVEL - 1, 0), 0);
        assert!(!overload().is_short(LANE + 1, LEVEL, 0));
    }

    #[test]
    fn each_unpredicted_wait_is_far_below_the_target() {
        // With nine ahead, the fifteenth arrival has 25 turns to wait in place of 10: 2.5 times the time.
        for (seconds, expected) in [(0.19, 15), (0.21, 0)] {
            let mut overload = after_a_wait_of(Some(seconds), 9);
            assert_eq!(unpredicted(&mut overload, LEVEL, 0), expected, "{seconds}");
        }
    }

    #[test]
    fn another_configuration_ends_the_unpredicted_arrivals() {
        let mut overload = after_a_wait_of(None, 0);
        overload.set_config(&WaitingRoomConfig::default(), &Default::default());
        assert_eq!(unpredicted(&mut overload, LEVEL, 0), 0);
    }
}
