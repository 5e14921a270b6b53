//! Callers that wait for the change of a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::durable::RequestId;

/// The requests that callers wait for. Other requests take no memory here.
#[derive(Default)]
pub(crate) struct Waits(Mutex<HashMap<RequestId, Arc<Notify>>>);

/// A registered wait for a request, until it is dropped. A caller that reads the request after registering misses no
/// change.
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    id: RequestId,
    pub(crate) notify: Arc<Notify>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, id: RequestId) -> Wait<'_> {
        let notify = Arc::clone(self.lock().entry(id).or_default());
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
        let notifies: Vec<_> = ids.iter().filter_map(|id| waits.get(id).cloned()).collect();
        drop(waits);
        // Callers are notified after the lock is released, so that woken callers need not wait for it.
        notifies.iter().for_each(|notify| notify.notify_waiters());
    }

    pub(crate) fn wake_all(&self) {
        let notifies: Vec<_> = self.lock().values().cloned().collect();
        notifies.iter().for_each(|notify| notify.notify_waiters());
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waits = self.waits.lock();
        // These two references are the table's and this one, so this was the last wait. If `wake` holds a third one at
        // this moment, the entry stays in the table.
        if Arc::strong_count(&self.notify) == 2 {
            waits.remove(&self.id);
        }
    }
}
