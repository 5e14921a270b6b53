//! An endpoint that has just read a prompt's beginning answers the next one with that beginning in a fraction
//! of the time. Spread evenly, every endpoint reads everything.
//!
//! This is consistent hashing with bounded loads, by rendezvous: each endpoint has a weight for each
//! beginning, and the highest wins. When endpoints come and go, only what was theirs moves.

use super::least_loaded::LeastLoaded;
use super::{Candidate, Candidates, Choice, Strategy};

/// Requests with the same beginning go to the same endpoint, unless that has more than its share.
#[derive(Debug)]
pub(in crate::route) struct PrefixAffinity;

impl Strategy for PrefixAffinity {
    fn name(&self) -> &'static str {
        "prefix_affinity"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let Some(prefix) = candidates.prefix() else {
            return LeastLoaded.choose(candidates);
        };
        let (mut in_flight, mut slots) = (1, 0); // with the request itself
        for candidate in candidates.all() {
            in_flight += u64::from(candidate.in_flight());
            slots += u64::from(candidate.limit());
        }
        let has_room = |candidate: &Candidate<'a>| {
            u64::from(candidate.in_flight()) < bound(candidate.limit().into(), in_flight, slots)
        };
        let warmest = candidates
            .free()
            .filter(has_room)
            .max_by_key(|candidate| weight(prefix, candidate.server.hash));
        match warmest {
            Some(candidate) => Some(Choice::new(candidate)),
            None => LeastLoaded.choose(candidates),
        }
    }
}

/// How many requests an endpoint with `limit` slots may have before others get what is its own: a quarter more
/// than its share of what is in flight, and half of its slots in any case.
fn bound(limit: u64, in_flight: u64, slots: u64) -> u64 {
    let share = (5 * in_flight * limit).div_ceil(4 * slots.max(1));
    share.max(limit.div_ceil(2))
}

/// Evenly spread over all endpoints and beginnings (the finaliser of SplitMix64).
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
    fn the_bound_is_a_quarter_more_than_the_share_or_half_the_slots() {
        for (limit, in_flight, slots, expected) in [
            (4, 1, 16, 2),
            (4, 8, 16, 3),
            (4, 16, 16, 5),
            (8, 12, 16, 8),
            (1, 1, 4, 1),
            (0, 1, 0, 0),
        ] {
            assert_eq!(bound(limit, in_flight, slots), expected);
        }
    }
}
