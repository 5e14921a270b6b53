//! `power_of_two` picks the better of two random endpoints. With a thousand endpoints, reading all of them costs more
//! than a slightly worse choice does.

use super::{Candidate, Candidates, Choice};

/// Draws two free endpoints and chooses the one with the smaller product of requests in flight and latency.
///
/// The latency is an average with peaks, so that a slow answer counts at once and is forgotten slowly.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let places = candidates.len();
    // The range has at least one index, because an empty range would panic.
    let (place, first) = free_from(candidates, fastrand::usize(..places.max(1)), None)?;
    let start = fastrand::usize(..places.max(1));
    let Some((_, second)) = free_from(candidates, start, Some(place)) else {
        return Some(Choice::new(first));
    };
    let load = |candidate: &Candidate<'a>| {
        let latency = candidate.peak_micros(candidates.now()).max(1);
        u64::from(candidate.in_flight() + 1) * u64::from(latency)
    };
    Some(Choice::new(match load(&second) < load(&first) {
        true => second,
        false => first,
    }))
}

/// Returns the first free candidate at index `start` or after it, with its index. The search wraps around, and skips
/// the index `except`.
fn free_from<'a>(
    candidates: &Candidates<'a>,
    start: usize,
    except: Option<usize>,
) -> Option<(usize, Candidate<'a>)> {
    let places = candidates.len();
    (start..places)
        .chain(0..start.min(places))
        .filter(|&place| Some(place) != except)
        .find_map(|place| Some((place, candidates.get(place).filter(Candidate::is_free)?)))
}
