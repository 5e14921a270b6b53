//! `priority_only`: the lowest priority number; of equals, the first in the registry.

use super::{Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| next.priority() < best.priority())
}
