//! What time it is, and sleeping: by Tokio's clock, so that a paused clock pauses everything here.

use std::time::Instant;

#[cfg(not(loom))]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Under `loom` time stands still, and the models say when a deadline has passed.
#[cfg(loom)]
pub(crate) fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}

pub(crate) use sleep::sleep_until;

mod sleep {
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Mutex, PoisonError};
    use std::time::Instant;

    use tokio::runtime::{Handle, Id};
    use tokio::time::Sleep;

    /// Runtimes that were found to have no time driver. The latest, for there is no telling when one is shut down.
    static WITHOUT_TIME: Mutex<Vec<Id>> = Mutex::new(Vec::new());
    /// Whether there is any, which costs less to ask.
    static ANY_WITHOUT_TIME: AtomicBool = AtomicBool::new(false);
    const MOST_REMEMBERED: usize = 64;

    /// Sleeps until `end`. `None` outside a Tokio runtime, or in one without a time driver: then there is a warning in
    /// the log, once for each runtime.
    pub(crate) fn sleep_until(end: Instant) -> Option<Sleep> {
        let runtime = Handle::try_current().ok()?.id();
        if ANY_WITHOUT_TIME.load(Relaxed) && without_time(|known| known.contains(&runtime)) {
            return None;
        }
        // Tokio has no way to ask whether there is a time driver. Without one it panics.
        match catch_unwind(|| tokio::time::sleep_until(end.into())) {
            Ok(sleep) => Some(sleep),
            Err(_) => {
                remember(runtime);
                None
            }
        }
    }

    #[cold]
    fn remember(runtime: Id) {
        let is_new = without_time(|known| {
            let is_new = !known.contains(&runtime);
            if is_new {
                if known.len() == MOST_REMEMBERED {
                    known.remove(0);
                }
                known.push(runtime);
            }
            is_new
        });
        ANY_WITHOUT_TIME.store(true, Relaxed);
        if is_new {
            tracing::warn!(
                "this Tokio runtime has no time driver, so that no wait in it times out; \
                 build it with `enable_time` or `enable_all`"
            );
        }
    }

    fn without_time<R>(look: impl FnOnce(&mut Vec<Id>) -> R) -> R {
        look(&mut WITHOUT_TIME.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
