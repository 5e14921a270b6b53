//! The task that looks after a store: it brings the state up to date whenever something is due.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

use super::shared::Shared;

/// The task of a store, once an operation has begun in a runtime.
#[derive(Default)]
pub(crate) struct Driver(Mutex<Option<(Id, JoinHandle<()>)>>);

impl Driver {
    /// Starts the task in the present runtime, if it does not run; for instance because its runtime was shut down.
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
        // One that ended in this runtime ends again: the runtime has no timer.
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

/// Ends with the store: that aborts it.
async fn run(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        // It also brings the state up to date.
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
