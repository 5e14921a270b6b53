//! `least_loaded`: the lowest priority number; of these, the largest share of slots free; of equals, the first in the
//! registry.

use super::{Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| {
        next.priority() < best.priority()
            || next.priority() == best.priority() && next.seen.is_idler_than(best.seen)
    })
}
