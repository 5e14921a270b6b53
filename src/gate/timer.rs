//! Timers that end waits, with one task for each Tokio runtime in which requests wait.
//!
//! If each waiter had its own timer, every queued request would create and drop a `Sleep`. Instead, a task sleeps until
//! the earliest end of a wait, ends all waits that are due, and sleeps until the next end. A single task for all
//! runtimes would fail while its runtime is busy computing or is not driven, because waits in other runtimes would not
//! end then. A task runs only while there are waits that end, and it does not keep the room alive.

use std::time::Instant;

use crate::sync::Arc;

/// A waiting room behind a lock, as its timers see it.
#[cfg_attr(all(test, loom), expect(dead_code, reason = "no time passes"))]
pub(crate) trait TimerHost: Send + Sync + 'static {
    /// Ends all waits that are due, and returns the time until which the timer of `runtime` sleeps. Returns `None` if
    /// the timer has been removed from [`Timers`], because it has finished its work.
    fn on_timer(self: &Arc<Self>, runtime: RuntimeId) -> Option<Instant>;

    /// Removes the timer of `runtime`, because the runtime was shut down and dropped the timer's task.
    ///
    /// `was_spawned` is `false` if the runtime dropped the task before it could run. The host must not wake waiters
    /// then, because a waiter might ask for the same timer over and over.
    fn on_timer_stopped(&self, runtime: RuntimeId, was_spawned: bool);
}

#[cfg(not(all(test, loom)))]
pub(crate) use running::{RuntimeId, TimerRequest, Timers};
#[cfg(all(test, loom))]
pub(crate) use stopped::{RuntimeId, TimerRequest, Timers};

#[cfg(not(all(test, loom)))]
mod running {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Arc, Weak};
    use std::task::Poll;
    use std::time::Instant;

    use tokio::runtime::Handle;
    pub(crate) use tokio::runtime::Id as RuntimeId;
    use tokio::sync::Notify;

    use super::TimerHost;
    use crate::admit::nanos::{Epoch, NEVER, Nanos};
    use crate::clock;

    /// The timers of one room, kept under the room's lock.
    #[derive(Debug)]
    pub(crate) struct Timers {
        /// The epoch of the room's times.
        epoch: Epoch,
        timers: Vec<Timer>,
    }

    #[derive(Debug)]
    struct Timer {
        runtime: RuntimeId,
        /// The time at which the task wakes next, at the latest when the first wait of this runtime ends.
        until: Nanos,
        /// Tells the task that `until` is earlier now, or that the room is gone.
        changed: Arc<Notify>,
    }

    /// An action on timers, to be done once the lock is released.
    ///
    /// It has to wait for the release, because a runtime that was shut down drops a new task at once. The task's
    /// destructor then drops its references, too.
    #[must_use]
    pub(crate) enum TimerRequest {
        Wake(Vec<Arc<Notify>>),
        Start(Handle, Arc<Notify>),
    }

    impl Timers {
        pub(crate) fn new(epoch: Epoch) -> Self {
            let timers = Vec::new();
            Self { epoch, timers }
        }

        /// Arms the timer of the current runtime, in which a request waits until `until`.
        ///
        /// Outside a Tokio runtime this does nothing. The wait then ends by a slot or by the timer of another runtime.
        #[inline]
        pub(crate) fn arm_here(&mut self, until: Nanos) -> Option<TimerRequest> {
            match until {
                NEVER => None,
                _ => self.arm_until(until),
            }
        }

        fn arm_until(&mut self, until: Nanos) -> Option<TimerRequest> {
            let runtime = Handle::try_current().ok()?; // `None` outside of all runtimes
            match self.of(runtime.id()) {
                // The timer of the runtime nearly always runs, and wakes early enough.
                Some(timer) if timer.until <= until => None,
                Some(timer) => Some(timer.wake_for(until)),
                None => Some(self.start(runtime, until)),
            }
        }

        /// Adds a timer for a runtime that has none.
        #[cold]
        #[inline(never)]
        fn start(&mut self, runtime: Handle, until: Nanos) -> TimerRequest {
            let changed = Arc::new(Notify::new());
            self.timers.push(Timer {
                runtime: runtime.id(),
                until,
                changed: Arc::clone(&changed),
            });
            TimerRequest::Start(runtime, changed)
        }

        /// Arms all timers again, because waits that have begun may end earlier than before. The next wait ends at
        /// `next_end`.
        pub(crate) fn rearm_all(&mut self, next_end: Option<Instant>) -> Option<TimerRequest> {
            let until = self.epoch.nanos(next_end?);
            let late = self
                .timers
                .iter_mut()
                .filter_map(|timer| timer.rearm(until));
            Some(TimerRequest::Wake(late.collect()))
        }

        /// Sets the next sleep of the timer of `runtime`, which woke at `now`, and returns the time at which the sleep
        /// ends.
        ///
        /// The timer sleeps until `next_end`, the end of the next wait. If all waits are endless, it finishes its
        /// earlier sleep, so that in a room that serves its waiters soon the next waiter finds it running. After that
        /// it sleeps until `other`. If `other` is `None`, too, the timer is removed.
        pub(crate) fn on_woken(
            &mut self,
            runtime: RuntimeId,
            now: Instant,
            next_end: Option<Instant>,
            other: Option<Instant>,
        ) -> Option<Instant> {
            let epoch = self.epoch;
            let timer = self.of(runtime)?; // `None` if it was removed, because its runtime was shut down
            let as_it_was = Some(timer.until).filter(|&until| until > epoch.nanos(now));
            let as_it_was = as_it_was.and_then(|until| epoch.instant(until));
            let until = next_end.or(as_it_was).or(other);
            match until {
                Some(until) => timer.until = epoch.nanos(until),
                None => self.remove(runtime),
            }
            until
        }

        pub(crate) fn remove(&mut self, runtime: RuntimeId) {
            self.timers.retain(|timer| timer.runtime != runtime);
        }

        /// Wakes all timers, because the room is gone.
        pub(crate) fn wake_all(&self) {
            self.timers
                .iter()
                .for_each(|timer| timer.changed.notify_one());
        }

        fn of(&mut self, runtime: RuntimeId) -> Option<&mut Timer> {
            self.timers
                .iter_mut()
                .find(|timer| timer.runtime == runtime)
        }
    }

    impl Timer {
        /// Lets the task sleep until an earlier time.
        #[cold]
        #[inline(never)]
        fn wake_for(&mut self, until: Nanos) -> TimerRequest {
            TimerRequest::Wake(self.rearm(until).into_iter().collect())
        }

        /// Returns the task to wake, if the timer would sleep for longer than `until`.
        fn rearm(&mut self, until: Nanos) -> Option<Arc<Notify>> {
            let is_late = self.until > until;
            is_late.then(|| {
                self.until = until;
                Arc::clone(&self.changed)
            })
        }
    }

    impl TimerRequest {
        /// Performs the action. To be called without the lock.
        pub(crate) fn run<H: TimerHost>(self, host: &Arc<H>) {
            match self {
                Self::Wake(timers) => timers.iter().for_each(|timer| timer.notify_one()),
                Self::Start(runtime, changed) => {
                    let was_spawned = Arc::new(AtomicBool::new(false));
                    let task = TimerTask {
                        host: Arc::downgrade(host),
                        runtime: runtime.id(),
                        was_spawned: Arc::clone(&was_spawned),
                    };
                    // A runtime that was shut down drops the task in here, before the store below.
                    runtime.spawn(task.run(changed));
                    was_spawned.store(true, Relaxed); // relaxed, because other data does not depend on it
                }
            }
        }
    }

    struct TimerTask<H: TimerHost> {
        host: Weak<H>,
        runtime: RuntimeId,
        was_spawned: Arc<AtomicBool>,
    }

    impl<H: TimerHost> TimerTask<H> {
        /// Ends waits as they come due, until the timer is removed or the room is gone.
        async fn run(mut self, changed: Arc<Notify>) {
            while let Some(until) = self.on_timer() {
                match clock::sleep_until(until) {
                    Some(sleep) => either(sleep, changed.notified()).await,
                    // Without a time driver, the task only keeps the runtime's entry among the timers. Otherwise each
                    // waiter would start another task.
                    None => changed.notified().await,
                }
            }
            self.host = Weak::new(); // after a regular end, the destructor must not report a shutdown
        }

        fn on_timer(&self) -> Option<Instant> {
            self.host.upgrade()?.on_timer(self.runtime) // `None` if the room is gone
        }
    }

    /// Resolves as soon as one of the two futures does.
    async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
        let (mut a, mut b) = (pin!(a), pin!(b));
        poll_fn(|cx| match a.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            // `a` has the waker by now, so both futures wake the task.
            Poll::Pending => b.as_mut().poll(cx),
        })
        .await;
    }

    /// Tells the host that the runtime was shut down, unless the task has come to its end.
    impl<H: TimerHost> Drop for TimerTask<H> {
        fn drop(&mut self) {
            if let Some(host) = self.host.upgrade() {
                let was_spawned = self.was_spawned.load(Relaxed); // relaxed, because other data does not depend on it
                host.on_timer_stopped(self.runtime, was_spawned);
            }
        }
    }
}

/// Timers that do nothing, because time stands still under `loom`.
#[cfg(all(test, loom))]
mod stopped {
    use std::time::Instant;

    use super::TimerHost;
    use crate::admit::nanos::{Epoch, Nanos};
    use crate::sync::Arc;

    #[derive(Clone, Copy)]
    pub(crate) struct RuntimeId;

    #[derive(Debug)]
    pub(crate) struct Timers;

    pub(crate) enum TimerRequest {}

    impl Timers {
        pub(crate) fn new(_: Epoch) -> Self {
            Self
        }

        pub(crate) fn arm_here(&mut self, _: Nanos) -> Option<TimerRequest> {
            None
        }

        pub(crate) fn rearm_all(&mut self, _: Option<Instant>) -> Option<TimerRequest> {
            None
        }

        pub(crate) fn on_woken(
            &mut self,
            _: RuntimeId,
            _: Instant,
            _: Option<Instant>,
            _: Option<Instant>,
        ) -> Option<Instant> {
            None
        }

        pub(crate) fn remove(&mut self, _: RuntimeId) {}

        pub(crate) fn wake_all(&self) {}
    }

    impl TimerRequest {
        pub(crate) fn run<H: TimerHost>(self, _: &Arc<H>) {
            match self {}
        }
    }
}
