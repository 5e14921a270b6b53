//! `smart` picks the endpoint with the highest score, which weighs priority, load and latency.

use super::{Candidates, Choice};
use crate::setters::setters;

/// The weights of the strategy `smart`, which are shares of 100.
///
/// ```
/// use tower_triage::endpoints::Weights;
/// use tower_triage::route::RoutingConfig;
///
/// let by_load = Weights::default().priority(0).load(100).latency(0);
/// assert!(RoutingConfig::default().weights(by_load).validate().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct Weights {
    /// The weight of the endpoint's priority number. Default 50.
    pub priority: u32,
    /// The weight of the number of requests that the endpoint has in flight. Default 30.
    pub load: u32,
    /// The weight of the time that the endpoint takes to answer. Default 20.
    pub latency: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            priority: 50,
            load: 30,
            latency: 20,
        }
    }
}

impl Weights {
    setters! {
        priority: u32,
        load: u32,
        latency: u32,
    }
}

/// Chooses the free candidate with the highest score. Of equal candidates, the first in the registry wins.
pub(crate) fn choose<'a>(weights: Weights, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let mut best = None;
    // The score that a candidate has to reach. Below it, the loop skips the clock and the division.
    let mut enough = 0;
    for candidate in candidates.free() {
        let at_once = at_once(weights, candidate.priority(), candidate.in_flight());
        if at_once < enough {
            continue;
        }
        let latency = match weights.latency {
            0 => 0,
            _ => candidate
                .backend
                .state
                .latency
                .first_byte
                .micros(candidates.now()),
        };
        // The score at once includes the full weight of the latency, so the difference cannot be negative.
        let score = at_once - lateness(weights, latency);
        if score >= enough {
            let whole = score / 100;
            enough = (whole + 1) * 100;
            best = Some(Choice::new(candidate).score(whole));
        }
    }
    best
}

// A score is a whole number from 0 to 100. The functions below return a hundred times that, which keeps the fractions.
// The formula is that of Nexus. A priority or load above 100 counts as 100, and a latency above a second as a second.

/// Returns the score of an endpoint with a latency of zero, times 100.
#[inline]
fn at_once(weights: Weights, priority: u32, in_flight: u32) -> u32 {
    let goodness = |badness: u32| 100 - badness.min(100);
    goodness(priority) * weights.priority
        + goodness(in_flight) * weights.load
        + 100 * weights.latency
}

/// Returns the part of the score that an endpoint loses by its latency, times 100.
#[inline]
fn lateness(weights: Weights, latency_micros: u32) -> u32 {
    (latency_micros / 10_000).min(100) * weights.latency
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
            let score = at_once(weights, priority, in_flight) - lateness(weights, latency);
            assert_eq!(
                score / 100,
                expected,
                "{weights:?} {priority} {in_flight} {ms}"
            );
        }
        let worst = at_once(even, u32::MAX, u32::MAX) - lateness(even, u32::MAX);
        assert_eq!(worst, 0);
    }
}
