//! Callers that wait for the change of a request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use tower_triage_durable::RequestId;

/// The requests that callers wait for. Other requests take no memory here.
#[derive(Default)]
pub(crate) struct Waits(Mutex<HashMap<RequestId, Waited>>);

/// A request that callers wait for.
#[derive(Default)]
struct Waited {
    notify: Arc<Notify>,
    /// The number of registered waits. The entry is removed with the last of them.
    waits: usize,
}

/// A registered wait for a request, until it is dropped. A caller that reads the request after registering misses no
/// change.
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    id: RequestId,
    pub(crate) notify: Arc<Notify>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Waited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, id: RequestId) -> Wait<'_> {
        let mut waits = self.lock();
        let waited = waits.entry(id).or_default();
        waited.waits += 1;
        let notify = Arc::clone(&waited.notify);
        drop(waits);
        Wait {
            waits: self,
            id,
            notify,
        }
    }

    /// Wakes all callers that wait for one of these requests.
    pub(crate) fn wake(&self, ids: &[RequestId]) {
        if ids.is_empty() {
            return;
        }
        let waits = self.lock();
        let waited = ids.iter().filter_map(|id| waits.get(id));
        let notifies: Vec<_> = waited.map(|waited| Arc::clone(&waited.notify)).collect();
        drop(waits);
        // Callers are notified after the lock is released, so that woken callers need not wait for it.
        notifies.iter().for_each(|notify| notify.notify_waiters());
    }

    pub(crate) fn wake_all(&self) {
        let waits = self.lock();
        let waited = waits.values();
        let notifies: Vec<_> = waited.map(|waited| Arc::clone(&waited.notify)).collect();
        drop(waits);
        notifies.iter().for_each(|notify| notify.notify_waiters());
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waits = self.waits.lock();
        if let Entry::Occupied(mut entry) = waits.entry(self.id) {
            entry.get_mut().waits -= 1;
            if entry.get().waits == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ends_while_it_is_woken_leaves_no_entry() {
        let waits = Waits::default();
        let id = RequestId::from_bits(1);
        let (first, second) = (waits.begin(id), waits.begin(id));
        // `wake` holds such a reference between the release of its lock and the notification.
        let held_by_wake = Arc::clone(&first.notify);
        drop(first);
        assert_eq!(waits.lock().len(), 1);
        drop(second);
        assert_eq!(waits.lock().len(), 0);
        drop(held_by_wake);
    }
}
