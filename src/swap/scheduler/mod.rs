//! The scheduler: which instances of models are started and stopped, and when.
//!
//! Events go in (`on_*`), effects come out ([`Effects`]). The scheduler has no queue: requests wait in the waiting room, and
//! the scheduler knows the first waiter of each instance. An instance that does not run, or is about to stop, gives no slots,
//! so its requests wait. [`decide`](Scheduler::decide) makes all decisions, after each event. It looks first which instances
//! became idle since the last decision ([`Effects::take_idled`]), because most uses of an instance are no event.
//!
//! After each event, ask for [`next_tick`](Scheduler::next_tick). At the beginning, call [`on_load`](Scheduler::on_load) for
//! each instance that is to run from the start, or else `decide`.
//!
//! The state of each instance is its [`Schedule`], which lies in the caller's record of the instance. An instance keeps its
//! [`InstanceId`] for as long as the scheduler exists.

mod decide;
mod events;
mod plans;
mod slots;
#[cfg(test)]
mod tests;
mod traffic;

use std::sync::Arc;

use self::plans::Plans;
use super::swapper::{InstanceId, Plan, RunningInstance, Swapper};

/// An instant or a duration, in nanoseconds from a common start.
pub(crate) type Nanos = u64;

/// The time for which an instance is not tried again after a failed start, which doubles with each failure in a row, and its
/// upper bound.
pub(crate) const BACKOFF: (Nanos, Nanos) = (1_000_000_000, 60_000_000_000);

/// The first waiter of an instance. A lower level goes first, and then an earlier arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InstanceHead {
    pub(crate) level: u8,
    pub(crate) arrival: Nanos,
}

/// The fate of a load when the last request that waited for it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum AbandonedLoad {
    /// The load goes on, so that a client with a timeout shorter than the load finds the model loaded when it comes back. A
    /// request for another model that needs the memory ends the load.
    #[default]
    Yield,
    /// The load is given up at once, unless another model was stopped for it. Then it yields as with `Yield`.
    Abort,
    /// The load goes on whoever needs its memory, and the model is idle once it is loaded.
    Finish,
}

/// The configuration of a scheduler that holds for all instances.
#[derive(Debug, Clone)]
pub(crate) struct SchedulerSettings {
    /// The wait after which a request for another model makes an instance yield.
    pub(crate) swap_after: Nanos,
    /// The time for which an instance serves after its load, before its traffic yields. An idle one yields at once.
    pub(crate) min_loaded: Nanos,
    /// The fate of a load when its last waiter has left.
    pub(crate) abandoned_load: AbandonedLoad,
    /// The instance that is loaded when no request has waited or run for `min_loaded`.
    pub(crate) default: Option<InstanceId>,
}

/// The configuration of one instance, as far as the scheduler needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InstanceSettings {
    /// The time for which it may be idle; 0 is for ever.
    pub(crate) ttl: Nanos,
    /// `true` if it stops neither for another instance nor because it is idle.
    pub(crate) is_pinned: bool,
    /// The first instance of its model, if the model has several. None of them is stopped for another one.
    pub(crate) first_of_model: Option<InstanceId>,
}

/// The phase of an instance, from one start to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InstancePhase {
    #[default]
    Stopped,
    /// The instance is the target of a swap, and its waiters wait for the load.
    Starting,
    /// The instance runs, and gives slots unless it is closed.
    Ready,
    /// The instance is being stopped, for a swap or alone, and still takes memory.
    Stopping,
}

/// The scheduler's state of an instance, in the caller's record of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schedule {
    /// The number of its [plan class](Swapper::plan_class), in the order in which classes are met.
    pub(super) class: usize,
    /// The configuration, or `None` if the instance has left it. The caller sets it before
    /// [`Scheduler::on_reconfigure`].
    pub(crate) settings: Option<InstanceSettings>,
    pub(crate) phase: InstancePhase,
    /// `true` while it gives slots, which only a ready instance does.
    pub(crate) is_open: bool,
    /// `true` if other instances were stopped for its current start.
    pub(super) has_evicted: bool,
    /// `true` if its current start was given up.
    pub(super) is_aborted: bool,
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
    /// The memory pool of the plan that started it. A new configuration may give the pool another number.
    pub(crate) pool: u32,
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
    fn is_wanted(&self) -> bool {
        self.phase == InstancePhase::Stopped && self.reason().is_some()
    }

    /// Returns the earliest time of the next start, if the last one failed.
    pub(crate) fn earliest_retry(&self) -> Option<Nanos> {
        (self.failures > 0).then_some(self.not_before)
    }

    /// Returns `true` if the instance is never stopped while it runs. One that is to stop all the same is not pinned any
    /// more.
    pub(super) fn is_pinned(&self) -> bool {
        let is_ending = self.is_leaving || self.phase == InstancePhase::Stopping;
        !is_ending && self.settings.is_some_and(|it| it.is_pinned)
    }
}

/// The instances, and the effects of decisions on them. Each effect begins something, and waits for nothing.
pub(crate) trait Effects {
    /// Returns the time, which stands still during an event.
    fn now(&self) -> Nanos;
    /// Returns the number of instances, which are numbered from 0.
    fn count(&self) -> usize;
    fn schedule(&self, id: InstanceId) -> &Schedule;
    fn schedule_mut(&mut self, id: InstanceId) -> &mut Schedule;
    /// Returns `true` while the instance serves a request.
    fn is_busy(&self, id: InstanceId) -> bool;
    /// Returns the end of the last request, if the instance became idle since the last call.
    fn take_idled(&mut self, id: InstanceId) -> Option<Nanos>;
    /// Lets the instance give slots to requests.
    fn open(&mut self, id: InstanceId);
    /// Closes the instance: it gives no more slots, and requests that have one keep it.
    fn close(&mut self, id: InstanceId);
    /// Closes an idle instance, or returns `false` if it serves a request.
    fn close_if_idle(&mut self, id: InstanceId) -> bool;
    /// Stops the instances of the plan, and then starts the target. [`Scheduler::on_stopped`] is to be called at the end of
    /// each stop, and then [`Scheduler::on_swap_done`] at the end of the start.
    fn swap(&mut self, target: InstanceId, plan: &Plan);
    /// Gives up the swap to a target: its stops go on, and the target is not started, or is stopped again.
    /// [`Scheduler::on_swap_done`] is to be called at the end, with `has_started: false`.
    fn abort(&mut self, target: InstanceId);
    /// Stops an instance, which serves requests only if it is unloaded at once. [`Scheduler::on_stopped`] is to be called at
    /// the end.
    fn stop(&mut self, id: InstanceId);
    /// Tells the waiters of an instance that it failed to start, because it can't run beside the pinned ones.
    fn impossible(&mut self, id: InstanceId);
}

/// The scheduler of a set of instances, without their schedules.
pub(crate) struct Scheduler {
    settings: SchedulerSettings,
    swapper: Arc<dyn Swapper>,
    plans: Plans,
    /// The last time at which a request waited or ran. `None` once the default model was loaded after that.
    in_use_until: Option<Nanos>,
    /// The time of the next call of [`decide`](Self::decide).
    next_tick: Option<Nanos>,
    is_closed: bool,
    /// `true` while a busy instance is to be stopped once it is idle, because all together exceed the memory.
    has_excess: bool,
}

impl Scheduler {
    /// Returns a scheduler of these instances, which are all stopped.
    pub(crate) fn new(
        settings: SchedulerSettings,
        swapper: Arc<dyn Swapper>,
        effects: &mut impl Effects,
    ) -> Self {
        let scheduler = Self {
            settings,
            swapper,
            plans: Plans::default(),
            in_use_until: Some(0),
            next_tick: None,
            is_closed: false,
            has_excess: false,
        };
        scheduler.number_classes(effects);
        scheduler
    }

    /// Returns the time of the next decision that no event announces.
    pub(crate) fn next_tick(&self) -> Option<Nanos> {
        self.next_tick
    }

    /// Returns `true` if there is something to do as soon as an instance is idle.
    pub(crate) fn awaits_idleness(&self, effects: &impl Effects) -> bool {
        let awaits = |it: &Schedule| it.is_wanted() || it.is_leaving;
        self.settings.default.is_some()
            || self.has_excess
            || ids(effects).any(|id| awaits(effects.schedule(id)))
    }

    fn tick_at(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }
}

/// Returns the numbers of all instances in order.
fn ids<E: Effects>(effects: &E) -> impl Iterator<Item = InstanceId> + use<E> {
    (0..effects.count() as u32).map(InstanceId)
}
