//! Requests that were refused although the store may have them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shared::Front;
use crate::RequestId;

/// The requests that are cancelled as soon as the store answers.
#[derive(Default)]
pub(super) struct Refused(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    ids: VecDeque<RequestId>,
    /// `true` while a task cancels them.
    has_task: bool,
}

/// The largest number of requests that wait for their cancellation. Those refused beyond it may run.
const MAX: usize = 65_536;

impl Refused {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front {
    /// Cancels a request that was refused, as soon as the store answers. One task does so for all, so that an outage
    /// doesn't end with a crowd of calls.
    pub(super) fn cancel_refused(self: &Arc<Self>, id: RequestId) {
        let mut waiting = self.refused.lock();
        if waiting.ids.len() >= MAX {
            return;
        }
        waiting.ids.push_back(id);
        if !std::mem::replace(&mut waiting.has_task, true) {
            tokio::spawn(cancel_all(Arc::clone(self)));
        }
    }
}

async fn cancel_all(front: Arc<Front>) {
    loop {
        let next = {
            let mut waiting = front.refused.lock();
            let next = waiting.ids.pop_front();
            waiting.has_task = next.is_some();
            next
        };
        let Some(id) = next else { return };
        let canceled = front.health.until_done(|| front.store.cancel(id));
        if front.shutdown.run_until_cancelled(canceled).await.is_none() {
            return;
        }
    }
}
