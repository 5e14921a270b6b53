//! The strategies that need a few lines each. Of equal endpoints, each wins with the same probability.

use super::{Candidates, Choice};

/// Picks the lowest priority number.
pub(crate) fn priority_only<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| next.priority() < best.priority())
}

/// Picks the largest share of free slots among the endpoints with the lowest priority number.
pub(crate) fn least_loaded<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| {
        next.priority() < best.priority()
            || next.priority() == best.priority() && next.seen.is_idler_than(best.seen)
    })
}

/// Picks the endpoints of a model one after the other. Each gets the same number of requests, exactly, as long as all
/// have slots free.
pub(crate) fn round_robin<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.free().next()?;
    let count = candidates.all().count() as u64;
    let first = candidates.rotation().checked_rem(count)? as usize;
    // The search begins at the next endpoint of the rotation and skips those that are busy.
    let from = candidates.all().skip(first);
    let wrapped = candidates.all().take(first);
    from.chain(wrapped)
        .find(|candidate| candidate.is_free())
        .map(Choice::new)
}

/// Picks any free endpoint, each with the same probability.
pub(crate) fn random<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
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
