//! The times for which requests are served until their answer begins: the latest samples of each lane.
//!
//! A waiter with less time left than the shortest of them is not started, because its answer would come too late even if it
//! were as quick as any was. Each lane has its own samples, as a small model answers in a tenth of the time of a large one.

use std::collections::HashMap;
use std::collections::VecDeque;

/// The samples of all lanes, by the hashes of their names.
#[derive(Debug, Default)]
pub(crate) struct ServiceTimes {
    lanes: HashMap<u32, Samples>,
    /// The number of samples that came so far, over all lanes.
    count: u64,
}

/// The latest samples of one lane.
#[derive(Debug, Default)]
struct Samples {
    /// The number of samples that came so far.
    count: u64,
    /// The latest samples that are shorter than all after them, in seconds, with their numbers. The first is the shortest; each
    /// of the others becomes the shortest when those before it are too old.
    shortest: VecDeque<(u64, f64)>,
    /// The number of the latest one among those of all lanes.
    latest: u64,
}

/// The number of samples that are kept of a lane. The more, the less often is a short request among long ones taken to be as
/// long as they are.
const KEPT: u64 = 512;
/// The number of samples from which on the shortest counts.
const MIN_SAMPLES: u64 = 20;
/// The number of lanes of which samples are kept, because demands may name any number of lanes.
const MAX_LANES: usize = 256;

impl ServiceTimes {
    /// Records that a request of this lane was served for so many seconds until its answer began.
    pub(crate) fn add(&mut self, lane: u32, seconds: f64) {
        if !self.lanes.contains_key(&lane) && self.lanes.len() >= MAX_LANES {
            self.forget_one();
        }
        self.count += 1;
        let samples = self.lanes.entry(lane).or_default();
        samples.latest = self.count;
        samples.add(seconds);
    }

    /// Returns the shortest of a lane's samples, in seconds; `None` before enough are known.
    pub(crate) fn shortest(&self, lane: u32) -> Option<f64> {
        let samples = self.lanes.get(&lane)?;
        let shortest = samples.shortest.front().map(|&(_, seconds)| seconds);
        shortest.filter(|_| samples.count >= MIN_SAMPLES)
    }

    /// Forgets the lane whose latest sample is the oldest. O(lanes), and only where more lanes are in use than are kept.
    fn forget_one(&mut self) {
        let oldest = self.lanes.iter().min_by_key(|(_, samples)| samples.latest);
        if let Some(lane) = oldest.map(|(&lane, _)| lane) {
            self.lanes.remove(&lane);
        }
    }
}

impl Samples {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        // Each sample is removed at most once.
        while self
            .shortest
            .back()
            .is_some_and(|&(_, other)| other >= seconds)
        {
            self.shortest.pop_back();
        }
        self.shortest.push_back((self.count, seconds));
        // At most one has become too old.
        let is_old = |&(nth, _): &(u64, f64)| nth + KEPT <= self.count;
        if self.shortest.front().is_some_and(is_old) {
            self.shortest.pop_front();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_is_that_of_the_latest_samples() {
        let mut times = ServiceTimes::default();
        for nth in 1..20 {
            times.add(7, f64::from(nth));
        }
        assert_eq!(times.shortest(7), None);
        times.add(7, 20.0);
        assert_eq!(times.shortest(7), Some(1.0));
        for _ in 0..KEPT {
            times.add(7, 2.5);
        }
        assert_eq!(times.shortest(7), Some(2.5));
        assert_eq!(times.shortest(8), None);
    }

    #[test]
    fn the_lanes_that_are_kept_are_the_latest() {
        let mut times = ServiceTimes::default();
        for lane in 0..1_000 {
            for _ in 0..MIN_SAMPLES {
                times.add(lane, 1.0);
            }
            times.add(0, 1.0);
        }
        assert_eq!(times.lanes.len(), MAX_LANES);
        let known = |lane| times.shortest(lane).is_some();
        assert!(known(0) && known(999) && !known(1));
    }
}
