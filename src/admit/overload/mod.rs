//! The decisions in overload: which arrivals to refuse because they would wait too long, and which waiters are no
//! longer worth a slot.
//!
//! In overload, a room that is bounded by number alone is always full. Its head has then waited for nearly as long as
//! its caller does, so the slots go to callers that are about to leave. The room therefore bounds waits by time. It
//! predicts the wait of each arrival from the work ahead of it ([`wait`]) and from the rate at which its pools hand
//! slots over ([`pool_load`]). It corrects predictions by the outcome of past ones. If the wait exceeds the target, the
//! arrival may be refused.
//!
//! Only measurements of the slots decide, because a client could manipulate whatever the room learned from clients.
//! While slots are never idle, a longer queue adds latency and no throughput. So the target is as short as keeps the
//! slots busy, which is a part of a service time. It grows if slots were idle lately ([`idleness`]), because a burst is
//! then worth a wait. It also grows for tenants, and for levels with weights, that had less than their share while
//! another had more ([`shares`]). A configured target stays as it is.
//!
//! A request with a deadline is refused because of the deadline only if 19 of 20 such waits would be too long. Too long
//! means that even the shortest service of its lane would end too late ([`service_times`]).
//!
//! The constants were tuned with a recorded hour of a language model's requests, at 1.2 to 2 times the load that can be
//! served (see `examples/overload`).

mod idleness;
mod pool_load;
mod report;
mod reserves;
mod sample;
mod service_times;
mod shares;
pub(crate) mod wait;

use std::collections::BTreeSet;

use super::flow::FlowKey;
use super::nanos::Nanos;
use super::{Discipline, PoolId, TargetWait, Tenant, WaitingRoomConfig};
use idleness::{IDLE, Idleness};
use pool_load::PoolLoad;
pub(crate) use reserves::Reserves;
pub use sample::ServiceSample;
use service_times::ServiceTimes;
use shares::Shares;

/// The measurements of a room.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// The measurements of each pool, by the pool's number.
    pools: Vec<PoolLoad>,
    levels: usize,
    idleness: Idleness,
    shares: Shares,
    pub(crate) service: ServiceTimes,
}

/// An arrival that found no slot, with the values that decide about its wait. Times are in seconds, and infinite
/// without a bound.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The first pool that could serve the request. Predictions use the corrections of this pool.
    pub(crate) pool: PoolId,
    pub(crate) level: u8,
    /// `true` if the arrival would be the head of its queue.
    pub(crate) is_first: bool,
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

/// The slots that could serve a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    /// At least one pool has its slots ready, without a break since this instant.
    Made { since: Nanos },
    /// The slots are being started.
    Making,
    /// The slots are stopped, and nothing starts them. They have been so since this instant.
    Unmade { since: Nanos },
}

/// The automatic target, as a number of waiters. Together with the services that start meanwhile, this many waiters
/// keep the pool's slots busy.
const AUTO_WAITERS: f64 = 3.0;
/// The shortest automatic target, in service times. It applies to pools of many slots.
const AUTO_SERVICES: f64 = 0.125;
/// The time over which idleness is averaged, in service times, followed by its bounds in seconds. With a shorter time,
/// a standing queue becomes short sooner. With a longer time, more of a burst is admitted.
const MEMORY_SERVICES: f64 = 10.0;
const MEMORY: (f64, f64) = (10.0, 60.0);
/// The share of idle slots that is assumed before the first measurement.
const INITIAL: f64 = 0.16;
/// The longest wait of a burst, in seconds, if waits are unbounded. It equals the default of `max_wait`.
const UNBOUNDED: f64 = 30.0;
/// The time over which the tenants' shares are averaged, in multiples of the time for idleness. It is longer because
/// one tenant is served less often than all of them together.
const SHARES_MEMORY: f64 = 6.0;
/// The unused part of a tenant's share from which on its requests are admitted like a burst.
const UNUSED: f64 = 0.05;
/// The number of pools that are measured apart. Higher numbers share the last entry, because a capacity is user code
/// and may number its pools as it likes.
const MAX_POOLS: usize = 1 << 16;

impl Overload {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            levels,
            idleness: Idleness::new(levels, INITIAL),
            ..Self::default()
        }
    }

    /// Applies another configuration.
    pub(crate) fn set_config(&mut self, config: &WaitingRoomConfig) {
        self.shares.set_config(config);
        let levels = config.levels.count();
        // The same number of levels counts as the same levels, whatever their names.
        if self.levels != levels {
            self.levels = levels;
            self.idleness = Idleness::new(levels, INITIAL);
            self.pools
                .iter_mut()
                .for_each(|pool| pool.set_levels(levels));
        }
    }

    /// Sets the pools that are in service from now on. The measurements of other pools are kept until they return to
    /// service.
    pub(crate) fn set_in_service(&mut self, pools: &[PoolId], now: Nanos) {
        let known = self.pools.len();
        let pools: BTreeSet<usize> = pools.iter().map(|&pool| index(pool)).collect();
        let count = pools.last().map_or(0, |last| last + 1).max(known);
        let levels = self.levels;
        self.pools.resize_with(count, || PoolLoad::new(levels));
        for (nth, load) in self.pools.iter_mut().enumerate() {
            // A pool without an observation before was out of service.
            load.is_in_service &= nth < known;
            load.set_in_service(now, pools.contains(&nth));
        }
    }

    /// Returns the measurements of a pool.
    #[inline]
    pub(crate) fn pool_mut(&mut self, pool: PoolId) -> &mut PoolLoad {
        let (pool, levels) = (index(pool), self.levels);
        if pool >= self.pools.len() {
            self.pools.resize_with(pool + 1, || PoolLoad::new(levels));
        }
        &mut self.pools[pool]
    }

    /// Returns the state of the slots of these pools together.
    pub(crate) fn slots_of(&self, pools: &[PoolId]) -> Slots {
        let loads = || pools.iter().filter_map(|&pool| self.load(pool));
        // A pool without observations counts as ready. Without a pool there is nothing to wait for.
        if loads().count() < pools.len() || pools.is_empty() {
            return Slots::Made { since: 0 };
        }
        // With slots on demand, a pool that came back counts only from its return, because the other pools may have
        // been starting slots until then.
        let is_on_demand = loads().any(PoolLoad::is_on_demand);
        let made_since = loads().filter_map(|load| {
            let since = load.made_since()?;
            Some(match is_on_demand {
                true => since.max(load.in_service_since()),
                false => since,
            })
        });
        match made_since.min() {
            Some(since) => Slots::Made { since },
            None if loads().any(PoolLoad::is_making) => Slots::Making,
            None => Slots::Unmade {
                since: loads().map(PoolLoad::load_ended).max().unwrap_or(0),
            },
        }
    }

    /// Returns the measurements of a pool, or `None` if it was never observed.
    fn load(&self, pool: PoolId) -> Option<&PoolLoad> {
        self.pools.get(index(pool))
    }

    /// Records that a request of this level got a slot.
    #[inline]
    pub(crate) fn on_served(&mut self, level: u8) {
        self.idleness.on_served(level);
    }

    /// Records that a request of this flow got a slot. Called only if flows have shares.
    pub(crate) fn on_flow_served(
        &mut self,
        flow: FlowKey<'_>,
        cost: f64,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) {
        self.shares.on_served(flow, cost, config, now);
    }

    /// Returns the number of slots that a pool hands over per second, if that is certain.
    pub(crate) fn per_second(&self, pool: PoolId) -> Option<f64> {
        let load = self.load(pool)?;
        load.per_second().filter(|_| load.is_certain())
    }

    /// Returns the number of slots that all pools together hand over per second. `None` if the rate of each pool is
    /// unknown.
    pub(crate) fn total_per_second(&self) -> Option<f64> {
        let known = self.pools.iter().filter(|pool| pool.is_in_service);
        let known = known.filter_map(PoolLoad::per_second);
        // The sum is 0 if all rates are unknown.
        Some(known.sum()).filter(|&total| total > 0.0)
    }

    /// Returns the mean time for which a request holds a slot of this pool, in seconds, if that is certain.
    pub(crate) fn service_seconds(&self, pool: PoolId) -> Option<f64> {
        let load = self.load(pool)?;
        load.service_seconds().filter(|_| load.is_certain())
    }

    /// Returns the target in a standing queue for this pool, in seconds; infinite without one.
    fn busy_target(&self, pool: PoolId, config: &WaitingRoomConfig) -> f64 {
        match config.target_wait {
            TargetWait::Auto => {
                let slots = self.slots(pool);
                // Until the service time is known, all predictions are missing, so this target is only reported.
                let service = self.service_seconds(pool).unwrap_or(0.0);
                service * AUTO_SERVICES.max(AUTO_WAITERS / slots)
            }
            TargetWait::After(target) => target.as_secs_f64(),
            TargetWait::Off => f64::INFINITY,
        }
    }

    /// Returns the number of slots of a pool, as it was last observed; at least 1.
    fn slots(&self, pool: PoolId) -> f64 {
        self.load(pool).map_or(1.0, PoolLoad::slots)
    }

    /// Returns the time over which the idleness of slots is averaged, in seconds.
    fn memory(&self, pool: PoolId) -> f64 {
        let service = self.service_seconds(pool).unwrap_or(0.0);
        (MEMORY_SERVICES * service).clamp(MEMORY.0, MEMORY.1)
    }

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
        let level = arriving.level;
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
        let Some(predicted) = arriving.predicted else {
            return Ok(0.0);
        };
        let target = self.target(arriving, tenant, config, now);
        let load = self.pool_mut(arriving.pool);
        // The corrected wait decides. The uncorrected one is returned, because the corrections are learned from it.
        let wait = predicted * load.correction(level, predicted);
        // Most predictions err to one side or the other. A request is refused as late only if its answer is most likely
        // to be late, because callers would otherwise do better without naming a deadline.
        // The quantile lags behind the mean after predictions that were far too long, so the smaller of the two counts.
        let longer_than = load.exceeded(level, predicted).min(wait);
        let is_late = longer_than > arriving.longest;
        // The first in line is admitted, because the slot that is free next might stay idle without it.
        // The probe is asked last, because asking uses it up.
        if arriving.is_first
            && (!is_late
                || arriving
                    .deadline
                    .is_none_or(|time| load.is_probed_by(now, time)))
        {
            return Ok(predicted);
        }
        let excess = wait - target;
        // The answer would come too late, in a burst as well as in a standing queue.
        if is_late {
            // A configured target may be longer than the wait, and then `excess` is below 0.
            return Err(excess.max(longer_than - arriving.longest));
        }
        if excess <= 0.0 {
            return Ok(predicted);
        }
        // The probability of a refusal rises from 0 at the target to 1 at twice the target.
        match load.refuses(level, (excess / target).min(1.0)) {
            true => Err(excess),
            false => Ok(predicted),
        }
    }

    /// Returns the wait above which a request may be refused, in seconds.
    pub(crate) fn target(
        &mut self,
        arriving: &Arriving,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> f64 {
        let level = arriving.level;
        let target = self.busy_target(arriving.pool, config);
        let idle = burst(self.idle_for(level, arriving.flows.is_some(), config) / IDLE);
        let mut unused_share = 0.0;
        if let Some(discipline) = arriving.flows {
            self.shares
                .observe(now, SHARES_MEMORY * self.memory(arriving.pool));
            let flow = FlowKey::new(level, tenant, discipline, config);
            let unused = self.shares.unused(flow, config, now);
            unused_share = burst(unused / UNUSED);
        }
        // A near deadline leaves the target as it is, because callers would otherwise do better without naming one.
        // If flows have shares, a flow needs a queue to get its share from the first second of a flood on. Its silent
        // callers are therefore treated like those with a deadline.
        let idle = match (arriving.deadline, arriving.flows) {
            (None, None) => for_silent(idle),
            _ => idle,
        };
        let burst = idle.max(unused_share);
        burst_target(target, arriving.max_wait, burst, config)
    }

    /// Returns the share of the slots that was idle lately, as a level sees it. `has_flows` is `true` for a lane that
    /// flows share.
    fn idle_for(&self, level: u8, has_flows: bool, config: &WaitingRoomConfig) -> f64 {
        match has_flows && !config.level_weights.is_empty() {
            // Other levels used their slots by right, so only slots that all levels left free count as idle.
            true => self.idleness.share_of_all(),
            false => self.idleness.share(level),
        }
    }
}

/// Returns the index of a pool's measurements.
fn index(PoolId(pool): PoolId) -> usize {
    (pool as usize).min(MAX_POOLS - 1)
}

/// Returns the degree to which a burst is admitted, from 0 to 1. `left` is the unused part of the slots or of a share,
/// relative to the part that admits a burst fully. The degree is its square.
fn burst(left: f64) -> f64 {
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

    const SECOND: Nanos = 1_000_000_000;

    /// A room of one slot that serves a request in 1 s and was never idle. The arrival would wait for 10 s, and its
    /// caller has a deadline in 30 s.
    fn busy() -> (Overload, Arriving) {
        let mut overload = Overload::new(1);
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
            is_first: false,
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
        arriving.is_first = true;
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
}
