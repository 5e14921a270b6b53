//! `power_of_two` picks the better of two random endpoints. With a thousand endpoints, reading all of them costs more
//! than a slightly worse choice does.

use super::{Candidate, Candidates, Choice};

/// Draws two free endpoints and chooses the one with the smaller product of requests in flight and latency.
///
/// The latency is an average with peaks, so that a slow answer counts at once and is forgotten slowly.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let (place, first) = draw(candidates, None)?;
    let Some((_, second)) = draw(candidates, Some(place)) else {
        return Some(Choice::new(first));
    };
    let load = |candidate: &Candidate<'a>| {
        let latency = candidate
            .backend
            .state
            .latency
            .peak
            .micros(candidates.now())
            .max(1);
        u64::from(candidate.in_flight() + 1) * u64::from(latency)
    };
    Some(Choice::new(match load(&second) < load(&first) {
        true => second,
        false => first,
    }))
}

/// The largest number of indices that are drawn before all candidates are read. If half of the endpoints are free, one
/// draw in 256 reads them all.
const MAX_TRIES: usize = 8;

/// Draws a free candidate with its index, each with the same probability, and leaves out the index `except`.
///
/// A random index is drawn again until its candidate is free, because the next free one would favour endpoints that follow a
/// run of busy ones. If most endpoints are busy, one pass over all of them draws among those that are free.
fn draw<'a>(candidates: &Candidates<'a>, except: Option<usize>) -> Option<(usize, Candidate<'a>)> {
    let places = candidates.len();
    let free_at = |place: usize| {
        let candidate = candidates.get(place).filter(Candidate::is_free)?;
        (Some(place) != except).then_some((place, candidate))
    };
    // With one endpoint or none there is nothing to draw, and an empty range would panic.
    let tries = places.saturating_sub(1).min(MAX_TRIES);
    let drawn = (0..tries).find_map(|_| free_at(fastrand::usize(..places)));
    drawn.or_else(|| {
        // Each free candidate replaces the one before with probability 1/n, where n counts the free ones so far. In the
        // end all have the same probability.
        let free = (0..places).filter_map(free_at).zip(1..);
        free.reduce(|kept, next| match fastrand::usize(..next.1) {
            0 => next,
            _ => kept,
        })
        .map(|(drawn, _)| drawn)
    })
}
