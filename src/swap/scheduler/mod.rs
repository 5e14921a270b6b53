//! The scheduler: which instances of models are started and stopped, and when.
//!
//! Events go in, effects come out. The scheduler has no queue: requests wait in the waiting room, and the scheduler knows the
//! first waiter of each instance. An instance that does not run, or is about to stop, gives no slots ([`Effects::close`]), so
//! its requests wait. [`decide`](Scheduler::decide) makes all decisions, after each event. It looks first which instances
//! became idle since the last decision ([`Effects::take_idled`]), because most uses of an instance are no event.
//!
//! - Events, `on_*`: [`on_head`](Scheduler::on_head), [`on_overtake`](Scheduler::on_overtake),
//!   [`on_swap_done`](Scheduler::on_swap_done), [`on_stopped`](Scheduler::on_stopped), [`on_exit`](Scheduler::on_exit),
//!   [`on_load`](Scheduler::on_load), [`on_unload`](Scheduler::on_unload), [`on_tick`](Scheduler::on_tick),
//!   [`on_reconfigure`](Scheduler::on_reconfigure), [`on_shutdown`](Scheduler::on_shutdown). After each event, ask for
//!   [`next_tick`](Scheduler::next_tick). At the beginning, call `on_load` for each instance that is to run from the start,
//!   or else `on_tick`.
//!
//! The state of each instance is its [`Schedule`], which lies in the caller's record of the instance. An instance keeps its
//! [`InstanceId`] for as long as the scheduler exists.

mod decide;
mod events;
mod instance_set;
mod plans;
mod preemptible;
mod schedule;
mod settings;
mod slots;
#[cfg(test)]
mod tests;
mod traffic;

use std::sync::Arc;

use self::plans::Plans;
pub(crate) use self::schedule::{InstancePhase, Schedule};
pub(crate) use self::settings::{InstanceSettings, SchedulerSettings, renumber_pools};
use super::swapper::{InstanceId, Plan, RunningInstance, Swapper};

/// An instant or a duration, in nanoseconds from a common start.
pub(crate) type Nanos = u64;

/// The first waiter of an instance. A lower level goes first, and then an earlier arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InstanceHead {
    pub(crate) level: u8,
    pub(crate) arrival: Nanos,
}

/// Identifies a swap or a stop, so that a late report of an earlier one has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// The instances, and the effects of decisions on them. Each effect begins something, and waits for nothing.
pub(crate) trait Effects {
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
    /// Stops the instances of the plan, and then starts the target. [`Scheduler::on_swap_done`] is to be called at the end.
    fn swap(&mut self, generation: Generation, target: InstanceId, plan: &Plan);
    /// Gives up a swap: its stops go on, and its target is not started, or is stopped again.
    /// [`Scheduler::on_swap_done`] is to be called at the end, with `has_started: false`.
    fn abort(&mut self, generation: Generation);
    /// Stops an instance, which serves requests only if it is unloaded at once. [`Scheduler::on_stopped`] is to be called at
    /// the end.
    fn stop(&mut self, generation: Generation, id: InstanceId);
    /// Tells the waiters of an instance that it failed to start, because it can't run beside the pinned ones.
    fn impossible(&mut self, id: InstanceId);
}

/// A swap in progress, until its end is reported.
#[derive(Debug)]
struct PendingSwap {
    generation: Generation,
    target: InstanceId,
    evict: Vec<InstanceId>,
    is_aborted: bool,
}

/// The scheduler of a set of instances, without their schedules.
pub(crate) struct Scheduler {
    settings: SchedulerSettings,
    swapper: Arc<dyn Swapper>,
    swaps: Vec<PendingSwap>,
    plans: Plans,
    last_generation: u64,
    /// The last time at which a request waited or ran. `None` once the default model was loaded after that.
    in_use_until: Option<Nanos>,
    /// The time of the next call of [`on_tick`](Self::on_tick).
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
            swaps: Vec::new(),
            plans: Plans::default(),
            last_generation: 0,
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

    /// Returns `true` while a busy instance is to be stopped once it is idle, because all together exceed the memory.
    pub(crate) fn has_excess(&self) -> bool {
        self.has_excess
    }

    fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }

    fn tick_at(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }
}

/// Returns the numbers of all instances in order.
fn ids<E: Effects>(effects: &E) -> impl Iterator<Item = InstanceId> + use<E> {
    (0..effects.count() as u32).map(InstanceId)
}
