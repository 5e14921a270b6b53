//! The time and the timer, both by Tokio's clock, so that a test can pause them.

use std::time::Instant;

/// The present time. Takes about 25 ns.
#[cfg(not(loom))]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The present time. Under `loom` it stands still, and the models say when a deadline has passed.
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

    /// The latest 64 runtimes that were found to have no time driver. Bounded, because a runtime's end cannot be observed.
    static WITHOUT_TIME: Mutex<Vec<Id>> = Mutex::new(Vec::new());
    /// Whether `WITHOUT_TIME` has an entry: spares its lock.
    static ANY_WITHOUT_TIME: AtomicBool = AtomicBool::new(false);
    /// How many runtimes `WITHOUT_TIME` may hold.
    const MOST_REMEMBERED: usize = 64;

    /// A sleep until `end`. `None` outside a Tokio runtime, and in one without a time driver, which is logged as a warning
    /// once for each runtime.
    pub(crate) fn sleep_until(end: Instant) -> Option<Sleep> {
        let runtime = Handle::try_current().ok()?.id();
        // Relaxed: the lock orders the list itself. A stale `false` costs one more panic below, which is caught.
        if ANY_WITHOUT_TIME.load(Relaxed) && without_time(|known| known.contains(&runtime)) {
            return None;
        }
        // Panics without a time driver, and Tokio offers no other way to find out.
        match catch_unwind(|| tokio::time::sleep_until(end.into())) {
            Ok(sleep) => Some(sleep),
            Err(_) => {
                remember(runtime);
                None
            }
        }
    }

    /// Notes a runtime without a time driver, and warns of it the first time.
    #[cold]
    fn remember(runtime: Id) {
        let is_new = without_time(|known| {
            let is_new = !known.contains(&runtime);
            if is_new {
                if known.len() == MOST_REMEMBERED {
                    // The oldest: it is most likely shut down.
                    known.remove(0);
                }
                known.push(runtime);
            }
            is_new
        });
        // After the entry, so that `true` is never too early; a late one is harmless.
        ANY_WITHOUT_TIME.store(true, Relaxed);
        if is_new {
            tracing::warn!(
                "this Tokio runtime has no time driver, so that no wait in it times out; \
                 build it with `enable_time` or `enable_all`"
            );
        }
    }

    /// Looks at the list of runtimes under its lock.
    fn without_time<R>(look: impl FnOnce(&mut Vec<Id>) -> R) -> R {
        // A panic cannot leave the list half changed: poisoning says nothing.
        look(&mut WITHOUT_TIME.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
