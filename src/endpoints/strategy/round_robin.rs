//! `round_robin`: one after the other, with a counter for each model.

use super::{Candidates, Choice};

/// Each is given as many requests as the others: exactly, as long as none is busy.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.free().next()?;
    let count = candidates.all().count() as u64;
    let first = candidates.rotation().checked_rem(count)? as usize;
    // From the next endpoint of the rotation on, skip the busy ones.
    let from = candidates.all().skip(first);
    let wrapped = candidates.all().take(first);
    from.chain(wrapped)
        .find(|candidate| candidate.is_free())
        .map(Choice::new)
}
