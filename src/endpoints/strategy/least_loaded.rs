//! `least_loaded` picks the largest share of free slots among the endpoints with the lowest priority number. Of equal
//! endpoints, the first in the registry wins.

use super::{Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| {
        next.priority() < best.priority()
            || next.priority() == best.priority() && next.seen.is_idler_than(best.seen)
    })
}
