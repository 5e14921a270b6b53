//! The times from the grant of a slot to the beginning of the answer, as the latest samples of each lane.
//!
//! If a waiter has less time left than the shortest sample of its lane, the room does not start it. Its answer would
//! come too late even if it were as quick as the quickest. Each lane has its own samples, because a small model answers
//! in a tenth of the time of a large one.

use std::collections::{HashMap, VecDeque};

use crate::admit::nanos::Nanos;

/// The beginning of a request's service, from which a waiting room learns the service times of the request's lane.
/// Created by [`WaitingRoom::served`](crate::admit::WaitingRoom::served).
#[derive(Debug)]
pub struct ServiceSample {
    pub(crate) started: Nanos,
    /// The hash that identifies the request's lane in the service times.
    pub(crate) lane_hash: u32,
}

/// The samples of all lanes, by the hashes of their names.
#[derive(Debug, Default)]
pub(crate) struct ServiceTimes {
    lanes: HashMap<u32, Samples>,
    /// The number of samples so far, over all lanes.
    count: u64,
}

/// The latest samples of one lane.
#[derive(Debug, Default)]
struct Samples {
    /// The number of samples so far.
    count: u64,
    /// The samples, in seconds, that are shorter than all samples after them, with their numbers. The first one is the
    /// shortest. Each of the others becomes the shortest when those before it are too old.
    shortest: VecDeque<(u64, f64)>,
    /// The number of this lane's latest sample in the count over all lanes.
    latest: u64,
}

/// The number of samples that are kept for each lane. With more samples, a short request among long ones is less often
/// mistaken for a long one.
const KEPT: u64 = 512;
/// The number of samples from which on the shortest one is used.
const MIN_SAMPLES: u64 = 20;
/// The number of lanes with samples. It is bounded because demands may name any number of lanes.
const MAX_LANES: usize = 256;

impl ServiceTimes {
    /// Records that the answer to a request of this lane began after `seconds`.
    pub(crate) fn add(&mut self, lane: u32, seconds: f64) {
        if !self.lanes.contains_key(&lane) && self.lanes.len() >= MAX_LANES {
            // Forgets the lane whose latest sample is the oldest. This takes O(lanes), and happens only if more lanes
            // are in use than are kept.
            let oldest = self.lanes.iter().min_by_key(|(_, samples)| samples.latest);
            if let Some(lane) = oldest.map(|(&lane, _)| lane) {
                self.lanes.remove(&lane);
            }
        }
        self.count += 1;
        let samples = self.lanes.entry(lane).or_default();
        samples.latest = self.count;
        samples.add(seconds);
    }

    /// Returns the shortest of a lane's samples, in seconds, or `None` before the lane has enough samples.
    pub(crate) fn shortest(&self, lane: u32) -> Option<f64> {
        let samples = self.lanes.get(&lane)?;
        let shortest = samples.shortest.front().map(|&(_, seconds)| seconds);
        shortest.filter(|_| samples.count >= MIN_SAMPLES)
    }
}

impl Samples {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        // The loop is cheap, because each sample is removed at most once.
        while self
            .shortest
            .back()
            .is_some_and(|&(_, other)| other >= seconds)
        {
            self.shortest.pop_back();
        }
        self.shortest.push_back((self.count, seconds));
        // At most one sample has become too old since the last call.
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
