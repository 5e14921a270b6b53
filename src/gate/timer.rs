//! The one timer of a waiting room.
//!
//! A timer for each waiter would cost every queued request the making and unmaking of one. Instead a task
//! sleeps until the earliest end of a wait, answers everyone whose end has come, and goes on to the next.
//! It runs only while somebody with an end to their wait has come, and does not keep the room alive.

use std::time::Instant;

use crate::sync::Arc;

/// What has a waiting room and a lock around it, as far as its timer goes.
#[cfg_attr(loom, expect(dead_code, reason = "no time passes"))]
pub(crate) trait Timed: Send + Sync + 'static {
    fn timer(&self) -> &Timer;

    /// Answers everyone whose wait has ended, and says when to look again, which is not after the next one's does.
    /// If never, the place of the task is free from then on.
    fn ring(self: &Arc<Self>) -> Option<Instant>;

    /// The task is gone because its runtime was shut down, before it `ran` or later, or has no timer, where it
    /// never runs.
    fn timer_stopped(&self, ran: bool);
}

/// Until when the timer sleeps, while it runs. Kept under the room's lock.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Instant>);

impl Alarm {
    /// What the timer is to be told if it sleeps beyond the `next` end of a wait, or not at all.
    #[inline]
    pub(crate) fn call(&mut self, next: Option<Instant>) -> Option<Call> {
        let next = next?;
        if self.0.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        let call = Timer::call(self.0.is_some())?;
        self.0 = Some(next);
        Some(call)
    }

    /// Whether the timer runs, and sleeps no longer than it may.
    #[cfg(feature = "batch")]
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// It has looked at `now`: until when it sleeps. Where those who come are soon served, none of them is to start
    /// the task anew, so it stays until it was to look.
    pub(crate) fn looked(&mut self, now: Instant, next: Option<Instant>) -> Option<Instant> {
        let not_yet = self.0.filter(|&alarm| alarm > now);
        self.0 = next.or(not_yet);
        self.0
    }

    /// It does not run any more.
    pub(crate) fn stopped(&mut self) {
        self.0 = None;
    }
}

#[cfg(not(loom))]
pub(crate) use running::{Call, Timer};
#[cfg(loom)]
pub(crate) use stopped::{Call, Timer};

#[cfg(not(loom))]
mod running {
    use std::sync::{Arc, Weak};

    use tokio::runtime::Handle;
    use tokio::sync::Notify;
    use tokio::time::timeout_at;

    use super::Timed;

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
        pub(crate) fn take<S: Timed>(shared: &Arc<S>, call: Call) {
            let timer = shared.timer();
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

    /// The task. There is one while the room has an alarm.
    struct Keeper<S: Timed> {
        shared: Weak<S>,
        ran: bool,
    }

    impl<S: Timed> Keeper<S> {
        async fn keep_time(mut self, changed: Arc<Notify>) {
            while let Some(alarm) = self.shared.upgrade().and_then(|shared| shared.ring()) {
                // Panics in a runtime without a timer.
                let nap = timeout_at(alarm.into(), changed.notified());
                self.ran = true;
                let _ = nap.await;
            }
            self.shared = Weak::new();
        }
    }

    /// Its runtime was shut down, or has no timer.
    impl<S: Timed> Drop for Keeper<S> {
        fn drop(&mut self) {
            if let Some(shared) = self.shared.upgrade() {
                shared.timer_stopped(self.ran);
            }
        }
    }
}

/// Under `loom` no time passes by itself.
#[cfg(loom)]
mod stopped {
    use super::Timed;
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

        pub(crate) fn take<S: Timed>(_: &Arc<S>, call: Call) {
            match call {}
        }

        pub(crate) fn wake(&self) {}
    }
}
