//! `least_loaded`: the lowest priority number; of these, the largest share of slots free; of equals, the first in the
//! registry.

use super::{Candidate, Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let is_better = |next: &Candidate<'a>, best: &Candidate<'a>| {
        next.priority() < best.priority()
            || next.priority() == best.priority() && next.seen.is_idler_than(best.seen)
    };
    let mut free = candidates.free();
    let mut best = free.next()?;
    for next in free {
        if is_better(&next, &best) {
            best = next;
        }
    }
    Some(Choice::new(best))
}
