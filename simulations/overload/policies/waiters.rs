//! Waiting requests in some order, each with an end of its wait perhaps.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::policy::RequestId;

/// Waiting requests in the order of a key; of equal keys, in that of arrival.
#[derive(Debug)]
pub(crate) struct Waiters<K> {
    order: BTreeSet<(K, RequestId)>,
    ends: BTreeSet<(Duration, RequestId)>,
    by_id: HashMap<RequestId, (K, Option<Duration>)>,
}

impl<K: Ord + Copy> Waiters<K> {
    pub(crate) fn new() -> Self {
        Self {
            order: BTreeSet::new(),
            ends: BTreeSet::new(),
            by_id: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn push(&mut self, id: RequestId, key: K, end: Option<Duration>) {
        self.order.insert((key, id));
        self.ends.extend(end.map(|end| (end, id)));
        self.by_id.insert(id, (key, end));
    }

    pub(crate) fn pop_first(&mut self) -> Option<RequestId> {
        let (_, id) = *self.order.first()?;
        self.remove(id);
        Some(id)
    }

    pub(crate) fn pop_last(&mut self) -> Option<RequestId> {
        let (_, id) = *self.order.last()?;
        self.remove(id);
        Some(id)
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, id: RequestId) -> bool {
        let Some((key, end)) = self.by_id.remove(&id) else {
            return false;
        };
        self.order.remove(&(key, id));
        if let Some(end) = end {
            self.ends.remove(&(end, id));
        }
        true
    }

    /// The earliest end of a wait.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Removes a waiter if its wait has ended by `now`.
    pub(crate) fn pop_ended(&mut self, now: Duration) -> Option<RequestId> {
        let (end, id) = *self.ends.first()?;
        (end <= now).then(|| self.remove(id))?;
        Some(id)
    }
}
