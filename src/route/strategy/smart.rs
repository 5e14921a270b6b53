//! A little of everything: how much an endpoint is preferred, how busy it is, how long it takes.

use super::{Candidates, Choice, Strategy};
use crate::route::Weights;

/// The highest score wins; of equals, the first in the registry.
#[derive(Debug)]
pub(in crate::route) struct Smart {
    weights: Weights,
}

impl Smart {
    pub(in crate::route) fn new(weights: Weights) -> Self {
        Self { weights }
    }
}

impl Strategy for Smart {
    fn name(&self) -> &'static str {
        "smart"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let mut best: Option<Choice<'a>> = None;
        for candidate in candidates.free() {
            let latency = match self.weights.latency {
                0 => 0,
                _ => candidates.first_byte_micros(&candidate),
            };
            let score = score(
                self.weights,
                candidate.priority(),
                candidate.in_flight(),
                latency,
            );
            if best.is_none_or(|best| best.score < Some(score)) {
                best = Some(Choice::new(candidate).score(score));
            }
        }
        best
    }
}

/// 0 to 100, in whole numbers. Nexus' formula: what is worse than 100 is as bad as 100, and a latency of a
/// second is as bad as any.
fn score(weights: Weights, priority: u32, in_flight: u32, latency_micros: u32) -> u32 {
    let goodness = |badness: u32| 100 - badness.min(100);
    (goodness(priority) * weights.priority
        + goodness(in_flight) * weights.load
        + goodness(latency_micros / 10_000) * weights.latency)
        / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_formula() {
        let even = Weights::default();
        let only = |priority, load, latency| Weights {
            priority,
            load,
            latency,
        };
        for (weights, priority, in_flight, ms, expected) in [
            (even, 0, 0, 0, 100),
            (even, 1, 0, 0, 99),
            (even, 1, 10, 0, 96),
            (even, 1, 2, 0, 98),
            (even, 1, 0, 50, 98),
            (even, 1, 0, 200, 95),
            (even, 100, 100, 1_000, 0),
            (even, 1_000, 1_000, 1_000_000, 0),
            (even, 0, 0, 9, 100),
            (only(100, 0, 0), 7, 99, 999, 93),
            (only(0, 100, 0), 7, 99, 999, 1),
            (only(0, 0, 100), 7, 99, 999, 1),
        ] {
            let latency = ms * 1_000;
            let got = score(weights, priority, in_flight, latency);
            assert_eq!(got, expected, "{weights:?} {priority} {in_flight} {ms}");
        }
        assert_eq!(score(even, u32::MAX, u32::MAX, u32::MAX), 0);
    }
}
