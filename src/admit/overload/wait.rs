//! The wait of a request that competes for the slots of several pools.

/// The work that waits for one of the pools that could serve the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolBacklog {
    /// The number of slots that the pool hands over per second.
    pub(crate) per_second: f64,
    /// The number of requests of other groups that go first in this pool.
    pub(crate) others: f64,
}

/// Returns the wait of the last of `own` requests, in seconds, if all `pools` can serve each of them.
///
/// The method is water-filling. A pool's floor is the wait for the requests of others on it. The group's own requests
/// fill the pools with the lowest floors up to one level, which is the wait.
pub(crate) fn expected_wait(own: f64, pools: &mut [PoolBacklog]) -> f64 {
    let floor = |pool: &PoolBacklog| pool.others / pool.per_second;
    pools.sort_unstable_by(|a, b| floor(a).total_cmp(&floor(b)));
    let (mut rate, mut work) = (0.0, own);
    let mut level = f64::INFINITY;
    for pool in pools.iter() {
        // The pools before this one are filled to a level below its floor.
        if level <= floor(pool) {
            break;
        }
        rate += pool.per_second;
        work += pool.others;
        level = work / rate;
    }
    level
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn work_goes_where_the_least_waits() {
        let wait = |own: f64, pools: &[(f64, f64)]| {
            let pools = pools
                .iter()
                .map(|&(per_second, others)| PoolBacklog { per_second, others });
            expected_wait(own, &mut pools.collect::<Vec<_>>())
        };
        assert_eq!(wait(10.0, &[(5.0, 0.0)]), 2.0);
        assert_eq!(wait(10.0, &[(5.0, 5.0)]), 3.0);
        assert_eq!(wait(10.0, &[(5.0, 0.0), (5.0, 0.0)]), 1.0);
        // Other requests keep the second pool busy for 10 s.
        assert_eq!(wait(10.0, &[(5.0, 0.0), (1.0, 10.0)]), 2.0);
        assert_eq!(wait(20.0, &[(1.0, 2.0), (5.0, 0.0)]), 22.0 / 6.0);
        assert_eq!(wait(1.0, &[]), f64::INFINITY);
    }
}
