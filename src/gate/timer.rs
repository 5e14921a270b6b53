//! The one timer of a gate.
//!
//! A timer for each waiter would cost every queued request the making and unmaking of one. Instead a task
//! sleeps until the earliest end of a wait, answers everyone whose end has come, and goes on to the next.
//! It runs only while somebody with an end to their wait has come, and does not keep the gate alive.

#[cfg(not(loom))]
pub(crate) use running::Timer;
#[cfg(loom)]
pub(crate) use stopped::Timer;

#[cfg(not(loom))]
mod running {
    use std::sync::{Arc, Weak};

    use tokio::runtime::Handle;
    use tokio::sync::Notify;
    use tokio::time::timeout_at;

    use super::super::clock;
    use super::super::shared::Shared;
    use crate::admit::Capacity;
    use crate::sync::{AtomicU64, SeqCst};

    pub(crate) struct Timer {
        changed: Arc<Notify>,
        /// 1 while a task keeps the time.
        running: AtomicU64,
    }

    impl Timer {
        pub(crate) fn new() -> Self {
            Self {
                changed: Arc::new(Notify::new()),
                running: AtomicU64::new(0),
            }
        }

        /// Makes sure that a task sleeps no longer than until the gate's alarm.
        ///
        /// Outside a Tokio runtime there is none, and waits end only by a slot.
        pub(crate) fn arm<C: Capacity>(shared: &Arc<Shared<C>>) {
            let timer = &shared.timer;
            if timer.running.swap(1, SeqCst) == 1 {
                timer.changed.notify_one();
                return;
            }
            match Handle::try_current() {
                Ok(runtime) => {
                    let keeper = Keeper(Arc::downgrade(shared));
                    runtime.spawn(keeper.keep_time(Arc::clone(&timer.changed)));
                }
                Err(_) => drop(Keeper(Arc::downgrade(shared))),
            }
        }

        pub(crate) fn wake(&self) {
            self.changed.notify_one();
        }
    }

    /// The task. Dropped with its runtime, it leaves the place to the next one.
    struct Keeper<C: Capacity>(Weak<Shared<C>>);

    impl<C: Capacity> Keeper<C> {
        async fn keep_time(mut self, changed: Arc<Notify>) {
            while let Some(alarm) = self.0.upgrade().and_then(|shared| shared.ring()) {
                let _ = timeout_at(alarm.into(), changed.notified()).await;
            }
            self.0 = Weak::new();
        }
    }

    impl<C: Capacity> Drop for Keeper<C> {
        fn drop(&mut self) {
            if let Some(shared) = self.0.upgrade() {
                let mut state = shared.lock();
                state.alarm = None;
                shared.timer.running.store(0, SeqCst);
            }
        }
    }

    impl<C: Capacity> Shared<C> {
        /// Answers everyone whose wait has ended, and says when the next one's does. If nobody's does, the
        /// place of the task is free from then on.
        fn ring(self: &Arc<Self>) -> Option<std::time::Instant> {
            let now = clock::now();
            self.locked(|_, state, woken| {
                state.room.expire(now, woken);
                state.alarm = state.room.next_end();
                if state.alarm.is_none() {
                    self.timer.running.store(0, SeqCst);
                }
                state.alarm
            })
        }
    }
}

/// Under `loom` no time passes by itself.
#[cfg(loom)]
mod stopped {
    use super::super::shared::Shared;
    use crate::admit::Capacity;
    use crate::sync::Arc;

    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn arm<C: Capacity>(_: &Arc<Shared<C>>) {}

        pub(crate) fn wake(&self) {}
    }
}
