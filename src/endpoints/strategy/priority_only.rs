//! `priority_only`: the lowest priority number; of equals, the first in the registry.

use super::{Candidate, Candidates, Choice, Strategy};

#[derive(Debug)]
pub(crate) struct PriorityOnly;

impl Strategy for PriorityOnly {
    fn name(&self) -> &'static str {
        "priority_only"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let preferred = candidates.free().min_by_key(Candidate::priority);
        preferred.map(Choice::new)
    }
}
