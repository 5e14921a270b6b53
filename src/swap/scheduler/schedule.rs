//! The schedule of an instance, which is its state as the scheduler sees it.

use super::{Generation, InstanceHead, InstanceSettings, Nanos};
#[cfg(doc)]
use super::{Scheduler, Swapper};

/// The phase of an instance, from one start to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InstancePhase {
    #[default]
    Stopped,
    /// The instance is the target of a swap, and its waiters wait for the load.
    Starting(Generation),
    /// The instance runs, and gives slots unless it is closed.
    Ready,
    /// The instance is being stopped, for a swap or alone, and still takes memory.
    Stopping(Generation),
}

/// The scheduler's state of an instance, in the caller's record of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schedule {
    /// The number of its [plan class](Swapper::plan_class), in the order in which classes are met.
    pub(super) class: usize,
    /// The configuration, or `None` if the instance has left it. The caller sets it before
    /// [`Scheduler::on_reconfigure`], and only reads the other fields.
    pub(crate) settings: Option<InstanceSettings>,
    pub(crate) phase: InstancePhase,
    /// `true` while it gives slots, which only a ready instance does.
    pub(crate) is_open: bool,
    /// `true` if it is to be stopped once it is idle.
    pub(crate) is_leaving: bool,
    /// The first waiter.
    pub(crate) head: Option<InstanceHead>,
    /// The level of the last of its requests that overtook a more urgent one of another instance, and the time.
    pub(super) overtake: Option<InstanceHead>,
    /// The time of a request to load it without a waiter, until it is loaded or has failed.
    pub(super) load_requested: Option<Nanos>,
    /// `true` if it was loaded for a waiter, and has not served a request since.
    pub(super) awaits_first_use: bool,
    /// `true` if it is being loaded, or was, without a waiter, and so yields to any request at once.
    pub(super) is_preemptible: bool,
    /// The memory pool of the plan that started it.
    pub(super) pool: u32,
    /// The memory of the plan that started it.
    pub(super) memory: u64,
    pub(super) ready_since: Nanos,
    pub(super) last_used: Nanos,
    /// The number of failed starts in a row.
    pub(super) failures: u32,
    /// The earliest time of the next start, after one that failed.
    pub(super) not_before: Nanos,
}

impl Schedule {
    /// Returns what it is to be started for: its first waiter, or a request to load it.
    pub(super) fn reason(&self) -> Option<InstanceHead> {
        let requested = self.load_requested.map(|arrival| InstanceHead {
            level: u8::MAX,
            arrival,
        });
        self.head.or(requested)
    }

    /// Returns `true` if a stopped instance is to be started.
    pub(crate) fn is_wanted(&self) -> bool {
        self.phase == InstancePhase::Stopped && self.reason().is_some()
    }

    /// Returns the earliest time of the next start, if the last one failed.
    pub(crate) fn earliest_retry(&self) -> Option<Nanos> {
        (self.failures > 0).then_some(self.not_before)
    }

    /// Returns `true` if the instance is never stopped while it runs. One that is to stop all the same is not pinned any
    /// more.
    pub(super) fn is_pinned(&self) -> bool {
        let is_ending = self.is_leaving || matches!(self.phase, InstancePhase::Stopping(_));
        !is_ending && self.settings.is_some_and(|it| it.is_pinned)
    }
}
