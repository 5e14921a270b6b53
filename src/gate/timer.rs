//! The one timer of a gate.
//!
//! A timer for each waiter would cost every queued request the making and unmaking of one. Instead a task
//! sleeps until the earliest end of a wait, answers everyone whose end has come, and goes on to the next.
//! It runs only while somebody with an end to their wait has come, and does not keep the gate alive.

#[cfg(not(loom))]
pub(crate) use running::{Call, Timer};
#[cfg(loom)]
pub(crate) use stopped::{Call, Timer};

#[cfg(not(loom))]
mod running {
    use std::sync::{Arc, Weak};
    use std::task::Waker;
    use std::time::Instant;

    use tokio::runtime::Handle;
    use tokio::sync::Notify;
    use tokio::time::timeout_at;

    use super::super::clock;
    use super::super::shared::Shared;
    use crate::admit::{Capacity, Woken};

    pub(crate) struct Timer {
        changed: Arc<Notify>,
    }

    /// What the timer is told: to look again, or to start here.
    pub(crate) enum Call {
        Look,
        Start(Handle),
    }

    impl Timer {
        pub(crate) fn new() -> Self {
            Self {
                changed: Arc::new(Notify::new()),
            }
        }

        /// What to tell it. Outside a Tokio runtime it can't start, and waits end only by a slot.
        pub(crate) fn call(runs: bool) -> Option<Call> {
            if runs {
                return Some(Call::Look);
            }
            Handle::try_current().ok().map(Call::Start)
        }

        /// Takes the call, without the lock: a runtime that was shut down drops the task at once.
        pub(crate) fn take<C: Capacity>(shared: &Arc<Shared<C>>, call: Call) {
            let timer = &shared.timer;
            match call {
                Call::Look => timer.wake(),
                Call::Start(runtime) => {
                    let keeper = Keeper {
                        shared: Arc::downgrade(shared),
                        ran: false,
                    };
                    runtime.spawn(keeper.keep_time(Arc::clone(&timer.changed)));
                }
            }
        }

        pub(crate) fn wake(&self) {
            self.changed.notify_one();
        }
    }

    /// The task. There is one while the gate has an alarm.
    struct Keeper<C: Capacity> {
        shared: Weak<Shared<C>>,
        ran: bool,
    }

    impl<C: Capacity> Keeper<C> {
        async fn keep_time(mut self, changed: Arc<Notify>) {
            self.ran = true;
            while let Some(alarm) = self.shared.upgrade().and_then(|shared| shared.ring()) {
                let _ = timeout_at(alarm.into(), changed.notified()).await;
            }
            self.shared = Weak::new();
        }
    }

    /// Its runtime was shut down. Those who wait on another one are told, to start the timer there.
    impl<C: Capacity> Drop for Keeper<C> {
        fn drop(&mut self) {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let mut woken = Woken::new();
            let mut state = shared.lock();
            state.alarm = None;
            if self.ran {
                state.room.take_notes(&mut woken);
            }
            drop(state);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    impl<C: Capacity> Shared<C> {
        /// Answers everyone whose wait has ended, and says when the next one's does. If nobody's does, the
        /// place of the task is free from then on.
        fn ring(self: &Arc<Self>) -> Option<Instant> {
            let now = clock::now();
            self.locked(|_, state, woken| {
                state.room.expire(now, woken);
                state.alarm = state.room.next_end();
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

    pub(crate) enum Call {}

    impl Timer {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn call(_runs: bool) -> Option<Call> {
            None
        }

        pub(crate) fn take<C: Capacity>(_: &Arc<Shared<C>>, call: Call) {
            match call {}
        }

        pub(crate) fn wake(&self) {}
    }
}
