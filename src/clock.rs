//! The current time and a timer. Both follow Tokio's clock, so a test can pause them.

use std::time::Instant;

/// Returns the current time of Tokio's clock. A call takes about 25 ns.
#[cfg(not(all(test, loom)))]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns an instant that stays the same for the whole process. Under `loom` time stands still, and each model says
/// when a deadline has passed.
#[cfg(all(test, loom))]
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

    /// The latest 64 runtimes that turned out to lack a time driver. The list is bounded because a runtime's end cannot
    /// be observed.
    static WITHOUT_TIME: Mutex<Vec<Id>> = Mutex::new(Vec::new());
    /// `true` while `WITHOUT_TIME` has an entry. A reader checks this first, so that it rarely takes the lock.
    static ANY_WITHOUT_TIME: AtomicBool = AtomicBool::new(false);
    /// The largest number of runtimes that `WITHOUT_TIME` may hold.
    const MOST_REMEMBERED: usize = 64;

    /// Returns a sleep until `end`. Returns `None` outside a Tokio runtime, and in a runtime without a time driver. The
    /// missing driver is logged as a warning once for each runtime.
    pub(crate) fn sleep_until(end: Instant) -> Option<Sleep> {
        let runtime = Handle::try_current().ok()?.id();
        // Relaxed is enough, because the lock orders the list itself. A stale `false` costs one more panic below, which
        // is caught.
        if ANY_WITHOUT_TIME.load(Relaxed) && without_time(|known| known.contains(&runtime)) {
            return None;
        }
        // This panics without a time driver. Tokio offers no other way to find out, so the panic is caught.
        match catch_unwind(|| tokio::time::sleep_until(end.into())) {
            Ok(sleep) => Some(sleep),
            Err(_) => {
                remember(runtime);
                None
            }
        }
    }

    /// Records a runtime without a time driver, and logs a warning when the runtime is new.
    #[cold]
    fn remember(runtime: Id) {
        let is_new = without_time(|known| {
            let is_new = !known.contains(&runtime);
            if is_new {
                if known.len() == MOST_REMEMBERED {
                    // The oldest entry goes, because its runtime has most likely shut down.
                    known.remove(0);
                }
                known.push(runtime);
            }
            is_new
        });
        // This store follows the entry, so that `true` implies an entry. A late `true` is harmless.
        ANY_WITHOUT_TIME.store(true, Relaxed);
        if is_new {
            tracing::warn!(
                "this Tokio runtime has no time driver, so that no wait in it times out; \
                 build it with `enable_time` or `enable_all`"
            );
        }
    }

    /// Calls `look` with the list of runtimes under its lock.
    fn without_time<R>(look: impl FnOnce(&mut Vec<Id>) -> R) -> R {
        // A panic cannot leave the list half changed, so a poisoned lock is safe to use.
        look(&mut WITHOUT_TIME.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
