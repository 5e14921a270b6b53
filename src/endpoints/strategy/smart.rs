//! `smart` picks the endpoint with the highest score, which weighs priority, load and latency.

use std::cmp::Ordering;

use super::candidates::Ties;
use super::{Candidate, Candidates, Choice};
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
    /// The weight of the share of the endpoint's slots that are in use. Default 30.
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

/// Chooses the free candidate with the highest score. Of equal candidates with the same priority number, each wins with the same
/// probability.
pub(crate) fn choose<'a>(weights: Weights, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let mut best = None;
    // The score that a candidate has to reach. Below it, the loop skips the clock and the division.
    let mut enough = 0;
    let mut ties = Ties::default();
    for candidate in candidates.free() {
        let at_once = at_once(weights, candidate.priority(), load(&candidate));
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
        if score < enough {
            continue;
        }
        let whole = score / 100;
        // Of equal scores, the lower priority number wins: one point of priority may be less than a whole of the score.
        let order = best.map_or(Ordering::Greater, |(best, most): (Candidate<'a>, u32)| {
            let by_priority = best.priority().cmp(&candidate.priority());
            whole.cmp(&most).then(by_priority)
        });
        let wins = match order {
            Ordering::Greater => {
                ties = Ties::default();
                true
            }
            Ordering::Equal => ties.takes_next(),
            Ordering::Less => false,
        };
        if wins {
            enough = whole * 100; // an equal one may be drawn, too
            best = Some((candidate, whole));
        }
    }
    best.map(|(candidate, whole)| Choice::new(candidate).score(whole))
}

/// Returns the share of the slots in use, in per cent.
#[inline]
fn load(candidate: &Candidate<'_>) -> u32 {
    let in_use = u64::from(candidate.in_flight()) * 100;
    in_use.checked_div(candidate.limit().into()).unwrap_or(100) as u32
}

// A score is a whole number from 0 to 100. The functions below return a hundred times that, which keeps the fractions.
// The formula is that of Nexus but for two terms. The load is a share of the slots, as `least_loaded` has it, because a
// number of requests means little without the number of slots. The latency counts by its logarithm: where answers come
// whole, their length makes the average vary by a factor of two, which must not outweigh a third of the slots.

/// Returns the score of an endpoint with a latency of zero, times 100. A priority or load above 100 counts as 100.
#[inline]
fn at_once(weights: Weights, priority: u32, load: u32) -> u32 {
    let goodness = |badness: u32| 100 - badness.min(100);
    goodness(priority) * weights.priority + goodness(load) * weights.load + 100 * weights.latency
}

/// Returns the part of the score that an endpoint loses by its latency, times 100: nothing at 0, about half at 180 ms, and all
/// from a second on.
#[inline]
fn lateness(weights: Weights, latency_micros: u32) -> u32 {
    if latency_micros == 0 {
        return 0;
    }
    let seconds = latency_micros as f32 / 1e6;
    let share = (1.0 + 20.0 * seconds).log2() / 21.0_f32.log2();
    // The cast rounds down, and turns what is above 100 into 100 by `min`.
    ((share * 100.0) as u32).min(100) * weights.latency
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
        for (weights, priority, load, ms, expected) in [
            (even, 0, 0, 0, 100),
            (even, 1, 0, 0, 99),
            (even, 1, 10, 0, 96),
            (even, 1, 2, 0, 98),
            (even, 1, 0, 50, 95),
            (even, 1, 0, 180, 89),
            (even, 1, 0, 1_000, 79),
            (even, 100, 100, 1_000, 0),
            (even, 1_000, 1_000, 1_000_000, 0),
            (even, 0, 0, 1, 100),
            (only(100, 0, 0), 7, 99, 999, 93),
            (only(0, 100, 0), 7, 99, 999, 1),
            (only(0, 0, 100), 7, 99, 990, 1),
        ] {
            let latency = ms * 1_000;
            let score = at_once(weights, priority, load) - lateness(weights, latency);
            assert_eq!(score / 100, expected, "{weights:?} {priority} {load} {ms}");
        }
        let worst = at_once(even, u32::MAX, u32::MAX) - lateness(even, u32::MAX);
        assert_eq!(worst, 0);
    }
}
