//! The task of a store, which brings the state up to date whenever an event is due.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

use super::shared::Shared;

/// A slot for the task of a store. The task starts when the first operation runs in a Tokio runtime.
#[derive(Default)]
pub(crate) struct Driver(Mutex<Option<(Id, JoinHandle<()>)>>);

impl Driver {
    /// Starts the task in the current runtime, unless it is already running. A task ends early if its runtime is shut
    /// down.
    pub(crate) fn ensure(&self, shared: &Arc<Shared>) {
        let mut task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = &*task
            && !task.is_finished()
        {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // A task that has ended in this runtime would end again, because the runtime has no timer.
        if let Some((id, _)) = &*task
            && *id == runtime.id()
        {
            return;
        }
        let run = run(Arc::downgrade(shared));
        *task = Some((runtime.id(), runtime.spawn(run)));
    }

    pub(crate) fn stop(&self) {
        let task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = &*task {
            task.abort();
        }
    }
}

/// Runs until the store is closed, fails, or is dropped. Dropping the store aborts the task.
async fn run(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        // Each change first brings the state up to date, so an empty one is enough.
        if shared.change(|_| Ok(())).await.is_err() {
            return;
        }
        let next = shared.set_driver_until();
        let instant = next.and_then(|next| shared.clock.instant(next));
        let earlier = shared.earlier.notified();
        match instant {
            Some(instant) => tokio::select! {
                () = tokio::time::sleep_until(instant.into()) => {}
                () = earlier => {}
            },
            None => earlier.await,
        }
    }
}
