//! `random` picks any free endpoint, each with the same probability.

use super::{Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    // The endpoint at a random index is usually free, so the others need not be read. An empty range would panic.
    let places = candidates.len();
    let guess = candidates.get(fastrand::usize(..places.max(1)));
    if let Some(candidate) = guess.filter(|candidate| candidate.is_free()) {
        return Some(Choice::new(candidate));
    }
    let count = candidates.free().count();
    let one = candidates.free().nth(fastrand::usize(..count.max(1)));
    one.or_else(|| candidates.free().next()).map(Choice::new)
}
