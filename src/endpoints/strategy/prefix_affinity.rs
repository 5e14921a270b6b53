//! `prefix_affinity` sends prompts that begin alike to the same endpoint, which has their beginning in its cache.
//!
//! It uses rendezvous hashing with bounded loads. Each endpoint has a weight for each beginning, and the endpoint with
//! the highest weight gets the prompt. When endpoints come and go, only the prompts of those endpoints move.

use super::{Candidate, Candidates, Choice, simple};

/// Chooses by the prefix, or like `least_loaded` if the prefix is unknown or does not lead to an endpoint with room.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let prefix = candidates.prefix();
    match prefix.and_then(|prefix| by_prefix(prefix, candidates)) {
        Some(candidate) => Some(Choice::new(candidate)),
        None => simple::least_loaded(candidates),
    }
}

/// Returns the endpoint for `prefix`, if an endpoint has room.
fn by_prefix<'a>(prefix: u64, candidates: &Candidates<'a>) -> Option<Candidate<'a>> {
    let (mut in_flight, mut slots) = (1, 0); // includes the request itself
    let mut rendezvous = Rendezvous::of(prefix);
    for candidate in candidates.all() {
        in_flight += u64::from(candidate.in_flight());
        slots += u64::from(candidate.limit());
        if candidate.is_free() {
            rendezvous.consider(candidate);
        }
    }
    let has_room = |it: &Candidate<'a>| has_room(it.in_flight(), it.limit(), in_flight, slots);
    let preferred = rendezvous.pick()?;
    if has_room(&preferred) {
        return Some(preferred);
    }
    // The preferred endpoint is overloaded. The greatest weight among those with room still sends equal prefixes to one
    // endpoint.
    let mut rendezvous = Rendezvous::of(prefix);
    let roomy = candidates.free().filter(has_room);
    roomy.for_each(|candidate| rendezvous.consider(candidate));
    rendezvous.pick()
}

/// A search for the candidate with the greatest weight, which has seen some of the candidates.
struct Rendezvous<'a> {
    prefix: u64,
    best: Option<(u64, Candidate<'a>)>,
}

impl<'a> Rendezvous<'a> {
    fn of(prefix: u64) -> Self {
        Self { prefix, best: None }
    }

    #[inline]
    fn consider(&mut self, candidate: Candidate<'a>) {
        let weight = weight(self.prefix, candidate.backend.state.hash);
        if self.best.is_none_or(|(most, _)| most < weight) {
            self.best = Some((weight, candidate));
        }
    }

    fn pick(self) -> Option<Candidate<'a>> {
        self.best.map(|(_, candidate)| candidate)
    }
}

/// Returns `true` if an endpoint that serves `own` requests with `limit` slots has room for one more.
///
/// It has room while fewer than half of its slots are taken, or while it serves less than 5/4 of its share of all requests in
/// flight, which its slots determine.
fn has_room(own: u32, limit: u32, in_flight: u64, slots: u64) -> bool {
    let (own, limit) = (u128::from(own), u128::from(limit));
    2 * own < limit || 4 * own * u128::from(slots) < 5 * u128::from(in_flight) * limit
}

/// Mixes a prefix with an endpoint's hash by the finaliser of SplitMix64, so that weights are spread evenly.
fn weight(prefix: u64, endpoint: u64) -> u64 {
    let mut mixed = prefix ^ endpoint;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_125_percent_or_half_the_slots() {
        for (limit, in_flight, slots, most) in [
            (4, 1, 16, 2),
            (4, 8, 16, 3),
            (4, 16, 16, 5),
            (8, 12, 16, 8),
            (1, 1, 4, 1),
            (0, 1, 0, 0),
            (1 << 29, 1 << 39, 1 << 40, 5 << 26),
        ] {
            let room = |own| has_room(own, limit, in_flight, slots);
            assert!(!room(most), "{limit} {in_flight} {slots}");
            assert!(most == 0 || room(most - 1), "{limit} {in_flight} {slots}");
        }
    }
}
