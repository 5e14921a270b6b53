//! The end of a start that was given up.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BoxFuture;

/// A place for the future that resolves when nothing is left of a start that was given up. Clones share it.
#[derive(Clone, Default)]
pub struct Cleanup(Arc<Mutex<Option<BoxFuture<()>>>>);

impl Cleanup {
    /// Sets the future that resolves when nothing is left of the start and its memory is free. It is polled once the start was
    /// dropped, or has panicked.
    pub fn set(&self, ended: impl Future<Output = ()> + Send + 'static) {
        *self.lock() = Some(Box::pin(ended));
    }

    /// Resolves when nothing is left of a dropped start and its memory is free. Without a future that was [set](Self::set),
    /// resolves at once.
    ///
    /// # Cancel safety
    ///
    /// After this is dropped, another call resolves at once.
    pub async fn wait(&self) {
        let ended = self.lock().take();
        if let Some(ended) = ended {
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BoxFuture<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup").finish_non_exhaustive()
    }
}
