//! Callers that wait until a request changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::durable::RequestId;

/// The requests that are waited for. One that is not costs nothing.
#[derive(Default)]
pub(crate) struct Waits(Mutex<HashMap<RequestId, Arc<Notify>>>);

/// A wait for a request, until it is dropped. Who looks at the request after it has begun misses no change.
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

    /// Wakes all that wait for one of these requests.
    pub(crate) fn wake(&self, ids: &[RequestId]) {
        if ids.is_empty() {
            return;
        }
        let waits = self.lock();
        let notifies: Vec<_> = ids.iter().filter_map(|id| waits.get(id).cloned()).collect();
        drop(waits);
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
        // The table's and this one, and no other can be made while the table is locked.
        if Arc::strong_count(&self.notify) == 2 {
            waits.remove(&self.id);
        }
    }
}
