//! `round_robin` picks endpoints one after the other, with a counter for each model.

use super::{Candidates, Choice};

/// Gives each endpoint the same number of requests. The numbers are exactly equal as long as all endpoints have slots
/// free.
pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
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
