//! Contended clocks: the time in which requests of a fair lane waited for the slots of a pool.
//!
//! Slots that no other request wants are free of charge. A pool's contended clock stands still in such times, so the
//! price of a slot is its time by this clock. Each pool has a clock of its own, because a wait for one model makes the
//! slots of another one no dearer.

use crate::admit::capacity::PoolId;
use crate::admit::nanos::Nanos;

/// The contended clocks of all pools, by pool. They go on when the lanes are rebuilt.
#[derive(Debug, Default)]
pub(crate) struct Contention(Vec<ContendedClock>);

#[derive(Debug, Clone, Copy, Default)]
struct ContendedClock {
    /// The number of groups with waiters that the pool can serve. The clock runs while it is above 0.
    groups: usize,
    /// The instant since which the clock runs.
    since: Nanos,
    /// The contended time up to `since`.
    total: Nanos,
}

impl ContendedClock {
    fn at(&self, now: Nanos) -> Nanos {
        match self.groups {
            0 => self.total,
            _ => self.total + now.saturating_sub(self.since),
        }
    }

    fn stop(&mut self, now: Nanos) {
        self.total = self.at(now);
        self.groups = 0;
    }
}

impl Contention {
    /// Records that a group of lanes that these pools can serve got its first waiter.
    pub(super) fn begin(&mut self, pools: &[PoolId], now: Nanos) {
        for &PoolId(pool) in pools {
            let pool = pool as usize;
            // Pools are numbered densely, so the vector can be indexed by them.
            if pool >= self.0.len() {
                self.0.resize(pool + 1, ContendedClock::default());
            }
            let clock = &mut self.0[pool];
            if clock.groups == 0 {
                clock.since = now;
            }
            clock.groups += 1;
        }
    }

    /// Records that the last waiter of such a group has left.
    pub(super) fn end(&mut self, pools: &[PoolId], now: Nanos) {
        for &PoolId(pool) in pools {
            if let Some(clock) = self.0.get_mut(pool as usize) {
                match clock.groups {
                    0 | 1 => clock.stop(now),
                    _ => clock.groups -= 1,
                }
            }
        }
    }

    /// Stops all clocks, before the waiters are linked anew.
    pub(super) fn stop_all(&mut self, now: Nanos) {
        self.0.iter_mut().for_each(|clock| clock.stop(now));
    }

    /// Returns the contended time of a pool up to `now`.
    pub(crate) fn at(&self, PoolId(pool): PoolId, now: Nanos) -> Nanos {
        let clock = self.0.get(pool as usize);
        clock.map_or(0, |clock| clock.at(now))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pools_clock_runs_while_any_of_its_groups_waits() {
        let [both, second] = [&[PoolId(0), PoolId(1)][..], &[PoolId(1)]];
        let mut contention = Contention::default();
        contention.begin(both, 10);
        contention.begin(second, 15);
        contention.end(both, 20);
        contention.end(second, 40);
        contention.begin(second, 100);
        assert_eq!(contention.at(PoolId(0), 200), 10);
        assert_eq!(contention.at(PoolId(1), 200), 130);
        contention.stop_all(200);
        assert_eq!(contention.at(PoolId(1), 300), 130);
        assert_eq!(contention.at(PoolId(7), 300), 0);
    }
}
