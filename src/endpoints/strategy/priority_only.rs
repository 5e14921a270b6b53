//! `priority_only`: the lowest priority number; of equals, the first in the registry.

use super::{Candidate, Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    let preferred = candidates.free().min_by_key(Candidate::priority);
    preferred.map(Choice::new)
}
