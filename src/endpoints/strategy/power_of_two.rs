//! `power_of_two`: the better of two random endpoints. With a thousand of them, reading all costs more than the second
//! best does.

use super::{Candidate, Candidates, Choice};

/// Of two at random, the one with less in flight times latency. The latency is a peak average: a slow answer
/// counts at once, and is forgotten slowly.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let places = candidates.len();
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

/// The first with a free slot at `start` or after it, but for the one at `except`; and its place.
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
