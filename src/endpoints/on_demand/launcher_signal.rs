//! The signals from a router to the launchers of its endpoints.

use std::sync::atomic::Ordering::SeqCst; // what a launcher asks for and what happens meanwhile are a store-load pair
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::admit::Priority;

/// The signal that wakes one launcher, and the events for which it waits. The endpoints of the launcher share it.
#[derive(Debug)]
pub(crate) struct LauncherSignal {
    notify: Notify,
    /// The level of the most urgent request that waits for a stopped endpoint of the launcher, or else the lowest level.
    most_urgent: AtomicU8,
    /// `true` if the launcher takes suspicions. Otherwise a request without an answer closes no endpoint.
    takes_suspicions: AtomicBool,
    /// `true` if the launcher is gone, so that others may take the names of its endpoints.
    is_gone: AtomicBool,
}

impl Default for LauncherSignal {
    fn default() -> Self {
        Self {
            notify: Notify::new(),
            most_urgent: AtomicU8::new(u8::MAX),
            takes_suspicions: AtomicBool::new(true),
            is_gone: AtomicBool::new(false),
        }
    }
}

impl LauncherSignal {
    /// Waits until requests wait for other endpoints than before, or until an event comes for which the launcher waits.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Wakes the launcher.
    pub(crate) fn notify(&self) {
        self.notify.notify_one();
    }

    /// Sets the level of the most urgent request that waits for a stopped endpoint. The launcher is notified when a less
    /// urgent request gets a slot of another of its endpoints.
    pub(crate) fn await_overtakes(&self, most_urgent: Option<Priority>) {
        let level = most_urgent.map_or(u8::MAX, |level| level.0); // above which there is none
        self.most_urgent.store(level, SeqCst);
    }

    /// Sets whether the launcher takes suspicions.
    pub(crate) fn watch_suspicions(&self, takes_suspicions: bool) {
        self.takes_suspicions.store(takes_suspicions, SeqCst);
    }

    pub(super) fn takes_suspicions(&self) -> bool {
        self.takes_suspicions.load(SeqCst)
    }

    /// Records that the launcher is gone.
    pub(crate) fn leave(&self) {
        self.watch_suspicions(false);
        self.is_gone.store(true, SeqCst);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    /// Returns `true` if a request of this level overtakes one for which the launcher waits.
    pub(super) fn is_overtaken_by(&self, level: Priority) -> bool {
        level.0 > self.most_urgent.load(SeqCst)
    }
}

/// The launchers of a router's endpoints.
#[derive(Debug, Default)]
pub(in crate::endpoints) struct Launchers {
    /// `true` once there has been a launcher.
    is_on: AtomicBool,
    all: Mutex<Vec<Weak<LauncherSignal>>>,
}

impl Launchers {
    /// Returns `true` if endpoints are started on demand.
    #[inline]
    pub(in crate::endpoints) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    pub(super) fn add(&self, launcher: &Arc<LauncherSignal>) {
        self.lock().push(Arc::downgrade(launcher));
        self.is_on.store(true, SeqCst);
    }

    /// Wakes all launchers, and forgets those that are gone.
    pub(in crate::endpoints) fn notify(&self) {
        self.lock().retain(|launcher| {
            let launcher = launcher.upgrade();
            launcher.inspect(|launcher| launcher.notify()).is_some()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<LauncherSignal>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Launchers {
    /// Wakes the launchers, which end with their router.
    fn drop(&mut self) {
        self.notify();
    }
}
