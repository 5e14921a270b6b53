//! Sense in overload: which arrivals are refused because they would wait too long, and which waiters are not worth a slot.
//!
//! A room that is bounded by number alone is full in overload, and its head has waited for nearly as long as its caller
//! does: the slots are spent on requests whose callers are about to leave. What matters is time. So the room predicts the
//! wait of each arrival from the work ahead of it ([`wait`]) and from how fast its pools hand slots over
//! ([`pool_load`]), which is corrected by how past predictions came out. Where that is longer than the target, the arrival
//! is refused.
//!
//! Only what the slots do decides, because whatever is learned from clients can be taught by clients. While the slots are
//! never idle, a longer queue serves no request more, so the target is what keeps them busy: a part of a service time. It
//! grows if slots were idle lately ([`idleness`]), because a burst is then worth a wait; and for tenants, or levels with
//! weights, that had less than their share while another had more ([`shares`]). A target that was configured stays as it is.
//! A caller that names a deadline is refused for it only if 19 of 20 such waits would be so long that even the shortest
//! service of its lane would end too late ([`service_times`]).
//!
//! The constants are those with which a recorded hour of a language model's requests, at 1.2 to 2 times the load that can
//! be served, is served best: see `examples/overload`.

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
    /// By pool.
    pools: Vec<PoolLoad>,
    levels: usize,
    idleness: Idleness,
    shares: Shares,
    pub(crate) service: ServiceTimes,
}

/// An arrival that found no slot, as far as its wait is concerned. Times are in seconds; infinite without a bound.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The first pool that could serve the request; its corrections apply.
    pub(crate) pool: PoolId,
    pub(crate) level: u8,
    /// `true` if no waiter goes before it.
    pub(crate) is_first: bool,
    /// The discipline of its lane, if that is shared by flows.
    pub(crate) flows: Option<Discipline>,
    /// The wait that the work ahead leads to, if that is known.
    pub(crate) predicted: Option<f64>,
    /// The time until the deadline that the caller named.
    pub(crate) deadline: Option<f64>,
    /// The longest wait that the room allows and after which the answer may still come in time. Below 0 if the answer would
    /// come too late without a wait.
    pub(crate) longest: f64,
    /// The time until the room's own bound on its wait.
    pub(crate) max_wait: f64,
    /// The number of leases that the capacity has given so far.
    pub(crate) leased: u64,
}

/// The slots that could serve a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    /// Some are there, without a break since then.
    Made { since: Nanos },
    /// They are being made.
    Making,
    /// They are not there, and nothing is done for that since then.
    Unmade { since: Nanos },
}

/// The automatic target, in services that start meanwhile on the pool's slots: so many waiters keep the slots busy.
const AUTO_WAITERS: f64 = 3.0;
/// The least automatic target, in service times, for pools of many slots.
const AUTO_SERVICES: f64 = 0.125;
/// The time over which idleness is averaged, in service times, and its bounds in seconds. The shorter it is, the sooner a
/// standing queue is short again; the longer, the more of a burst is let in.
const MEMORY_SERVICES: f64 = 10.0;
const MEMORY: (f64, f64) = (10.0, 60.0);
/// The share of idle slots that is assumed before one was measured.
const INITIAL: f64 = 0.16;
/// The longest wait of a burst where a wait has no bound, in seconds: the default of `max_wait`.
const UNBOUNDED: f64 = 30.0;
/// Over how long the tenants' shares are averaged, in multiples of the time for idleness: one tenant is served less often
/// than all together.
const SHARES_MEMORY: f64 = 6.0;
/// From this unused part of its share on, what a tenant sends is let in like a burst.
const UNUSED: f64 = 0.05;
/// Pools beyond that are measured as one: a capacity is user code, and may number them as it likes.
const MAX_POOLS: usize = 1 << 16;

impl Overload {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            levels,
            idleness: Idleness::new(levels, INITIAL),
            ..Self::default()
        }
    }

    /// Takes another configuration.
    pub(crate) fn set_config(&mut self, config: &WaitingRoomConfig) {
        self.shares.set_config(config);
        let levels = config.levels.count();
        // The same number of levels is taken to be the same levels, whatever their names.
        if self.levels != levels {
            self.levels = levels;
            self.idleness = Idleness::new(levels, INITIAL);
            self.pools
                .iter_mut()
                .for_each(|pool| pool.set_levels(levels));
        }
    }

    /// Sets the pools that are in service from now on. The measurements of others are kept until they are again.
    pub(crate) fn set_in_service(&mut self, pools: &[PoolId], now: Nanos) {
        let known = self.pools.len();
        let pools: BTreeSet<usize> = pools.iter().map(|&pool| index(pool)).collect();
        let count = pools.last().map_or(0, |last| last + 1).max(known);
        let levels = self.levels;
        self.pools.resize_with(count, || PoolLoad::new(levels));
        for (nth, load) in self.pools.iter_mut().enumerate() {
            // One that was never observed was not in service.
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

    /// Returns the state of the slots that any of these pools has.
    pub(crate) fn slots_of(&self, pools: &[PoolId]) -> Slots {
        let loads = || pools.iter().filter_map(|&pool| self.load(pool));
        // One that was never observed gives slots as far as is known. Without a pool, nothing is waited for.
        if loads().count() < pools.len() || pools.is_empty() {
            return Slots::Made { since: 0 };
        }
        // Until a pool came back that has slots, those of the others may have been made.
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

    /// Returns the measurements of a pool that was observed.
    fn load(&self, pool: PoolId) -> Option<&PoolLoad> {
        self.pools.get(index(pool))
    }

    /// Records that a request of this level got a slot.
    #[inline]
    pub(crate) fn on_served(&mut self, level: u8) {
        self.idleness.on_served(level);
    }

    /// Records that a request of this flow got a slot, where flows have shares.
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

    /// Returns the number of slots that all pools hand over per second, if that is known of any.
    pub(crate) fn total_per_second(&self) -> Option<f64> {
        let known = self.pools.iter().filter(|pool| pool.is_in_service);
        let known = known.filter_map(PoolLoad::per_second);
        // Nothing is known where the sum is empty.
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
                // Until it is known, no wait is: the target is for reports then.
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

    /// Decides about an arrival. If it may wait, returns the wait as it was predicted, for [`PoolLoad::on_wait_ended`]; 0 if
    /// it is not known.
    ///
    /// # Errors
    ///
    /// If the arrival is refused: by how many seconds its wait would exceed the target.
    pub(crate) fn admit(
        &mut self,
        arriving: &Arriving,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) -> Result<f64, f64> {
        let level = arriving.level;
        let memory = self.memory(arriving.pool);
        // Without a known rate it is unknown what was possible: the averages keep their initial value.
        if self.total_per_second().is_some() {
            let pools = &mut self.pools;
            // Called only if a measurement is due, because it takes what was counted.
            let possible = |time| pools.iter_mut().map(|pool| pool.take_possible(time)).sum();
            self.idleness
                .observe(now, arriving.leased, possible, memory);
        }
        // No request is refused for a wait that is not known.
        let Some(predicted) = arriving.predicted else {
            return Ok(0.0);
        };
        let target = self.target(arriving, tenant, config, now);
        let load = self.pool_mut(arriving.pool);
        // The corrected wait decides. The other one is returned, from which corrections are learned.
        let wait = predicted * load.correction(level, predicted);
        // Most predictions err to one side or the other. Only where its answer is most likely to be late is a request
        // refused for that: otherwise to name a deadline would be worse than to be silent.
        // The quantile lags behind the mean where predictions have been far too long.
        let longer_than = load.exceeded(level, predicted).min(wait);
        let is_late = longer_than > arriving.longest;
        // If it is refused, the slot that is free next may be idle.
        // The probe comes last: asking for it uses it up.
        if arriving.is_first
            && (!is_late
                || arriving
                    .deadline
                    .is_none_or(|time| load.is_probed_by(now, time)))
        {
            return Ok(predicted);
        }
        let excess = wait - target;
        // Its answer would come too late, burst or not.
        if is_late {
            // A target that was configured may be longer than the wait: `excess` is below 0 then.
            return Err(excess.max(longer_than - arriving.longest));
        }
        if excess <= 0.0 {
            return Ok(predicted);
        }
        // With a probability from 0 at the target to 1 at twice the target.
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
        // A nearer deadline makes no target shorter, or it would be worse to name one than to be silent.
        // Where flows have shares, a flow needs a queue to get its share from the first second of a flood on.
        let idle = match (arriving.deadline, arriving.flows) {
            (None, None) => for_silent(idle),
            _ => idle,
        };
        let burst = idle.max(unused_share);
        burst_target(target, arriving.max_wait, burst, config)
    }

    /// Returns the share of the slots that was idle lately, as a level sees it. `has_flows`: of a lane that flows share.
    fn idle_for(&self, level: u8, has_flows: bool, config: &WaitingRoomConfig) -> f64 {
        match has_flows && !config.level_weights.is_empty() {
            // What other levels had, they had by right: only what was left by all is idle.
            true => self.idleness.share_of_all(),
            false => self.idleness.share(level),
        }
    }
}

/// Returns the index of a pool's measurements.
fn index(PoolId(pool): PoolId) -> usize {
    (pool as usize).min(MAX_POOLS - 1)
}

/// Returns how far a burst is let in, from 0 to 1, for what was left of the slots or of a share, in terms of what lets it in
/// fully: the square.
fn burst(left: f64) -> f64 {
    left.min(1.0).powi(2)
}

/// Returns how far a burst is let in whose callers name no deadline, where those that name one are let in so far.
///
/// A caller that names its deadline is there when its turn comes. One that is silent may have left, so its burst has to be
/// over sooner: otherwise the slots of the first seconds of an overload go to requests whose callers leave.
fn for_silent(burst: f64) -> f64 {
    burst.powi(2)
}

/// Returns the target where bursts are let in so far: up to the room's bound, unless it was configured.
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

    /// A room of one slot that serves a request in 1 s and was never idle, and an arrival that would wait for 10 s, of a
    /// caller with a deadline in 30 s.
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

    /// Returns how many of 100 such arrivals are refused.
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
        // An eighth of a service where there are many slots.
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
