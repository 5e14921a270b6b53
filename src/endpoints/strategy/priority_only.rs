//! `priority_only` picks the lowest priority number. Of equal endpoints, the first in the registry wins.

use super::{Candidates, Choice};

pub(crate) fn choose<'a>(candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    candidates.best(|next, best| next.priority() < best.priority())
}
