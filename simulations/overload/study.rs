//! All policies, on one workload.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::bound::most_useful;
use crate::policies::{Entry, POLICIES, Setting};
use crate::report::Report;
use crate::simulation::simulate;
use crate::workload::Workload;

/// A workload, and the report of each policy, in the order of [`POLICIES`].
pub(crate) struct Study {
    pub(crate) workload: Workload,
    pub(crate) reports: Vec<Report>,
    /// The most useful work that any policy could do.
    pub(crate) bound: f64,
}

impl Study {
    pub(crate) fn of(workload: Workload, seed: u64) -> Self {
        let setting = Setting::of(&workload, seed);
        let run = |entry: &Entry| {
            let run = simulate(&workload, &mut *(entry.make)(&setting));
            Report::new(&workload, &run)
        };
        let reports = in_parallel(POLICIES, run);
        let bound = most_useful(&workload);
        Self {
            workload,
            reports,
            bound,
        }
    }
}

/// The results of `work` on each item, in their order, by as many threads as there are cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let at = next.fetch_add(1, Relaxed)
            && let Some(item) = items.get(at)
        {
            done.push((at, work(item)));
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .flat_map(|done| done.expect("a simulation panicked"))
            .collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
