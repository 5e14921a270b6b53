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
//! - States: [`phase`](Scheduler::phase), [`is_leaving`](Scheduler::is_leaving),
//!   [`is_wanted`](Scheduler::is_wanted), [`is_configured`](Scheduler::is_configured),
//!   [`earliest_retry`](Scheduler::earliest_retry).
//!
//! An instance keeps its [`InstanceId`] for as long as the scheduler exists.

mod decide;
mod events;
mod instance_set;
mod plans;
mod preemptible;
mod settings;
mod slots;
#[cfg(test)]
mod tests;
mod traffic;

use std::sync::Arc;

use self::plans::Plans;
pub(crate) use self::settings::{InstanceSettings, SchedulerSettings};
use super::swapper::{InstanceId, Plan, Running, Swapper};

/// An instant or a duration, in nanoseconds from a common start.
pub(crate) type Nanos = u64;

/// The first waiter of an instance. A lower level goes first, and then an earlier arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    pub(crate) level: u8,
    pub(crate) arrival: Nanos,
}

/// Identifies a swap or a stop, so that a late report of an earlier one has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// The effects of decisions. Each method begins something, and waits for nothing.
pub(crate) trait Effects {
    /// Returns `true` while the instance serves a request.
    fn is_busy(&self, id: InstanceId) -> bool;
    /// Returns the end of the last request, if the instance became idle since the last call.
    fn take_idled(&mut self, id: InstanceId) -> Option<Nanos>;
    /// Lets the instance give slots.
    fn open(&mut self, id: InstanceId);
    /// Lets the instance give no more slots. Requests that have one keep it.
    fn close(&mut self, id: InstanceId);
    /// Closes an idle instance. Returns `false`, and changes nothing, if it serves a request.
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

/// The phase of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Stopped,
    /// It is the target of a swap.
    Starting(Generation),
    /// It gives slots unless it is closed.
    Ready,
    /// It is being stopped, for a swap or alone.
    Stopping(Generation),
}

/// The scheduler's state of an instance.
#[derive(Debug, Default)]
struct Scheduled {
    /// The number of its [plan class](Swapper::plan_class), in the order in which classes are met.
    class: usize,
    phase: Phase,
    /// `true` while it gives slots. Only a ready instance does.
    is_open: bool,
    /// `true` if it is to be stopped once it is idle.
    is_leaving: bool,
    head: Option<Head>,
    /// The level of the last of its requests that overtook a more urgent one of another instance, and the time.
    overtake: Option<Head>,
    /// The time of a request to load it without a waiter, until it is loaded or has failed.
    load_requested: Option<Nanos>,
    /// `true` if it was loaded for a waiter, and has not served a request since.
    awaits_first_use: bool,
    /// `true` if it is being loaded, or was, and no request waits for it: it yields to any request at once.
    is_preemptible: bool,
    /// The memory pool of the plan that started it.
    pool: u32,
    /// The memory of the plan that started it.
    memory: u64,
    ready_since: Nanos,
    last_used: Nanos,
    /// The number of failed starts in a row.
    failures: u32,
    /// The earliest time of the next start.
    not_before: Nanos,
}

impl Scheduled {
    /// Returns what it is to be started for: its first waiter, or a request to load it.
    fn reason(&self) -> Option<Head> {
        let requested = self.load_requested.map(|arrival| Head {
            level: u8::MAX,
            arrival,
        });
        self.head.or(requested)
    }
}

/// A swap in progress.
#[derive(Debug)]
struct PendingSwap {
    generation: Generation,
    target: InstanceId,
    evict: Vec<InstanceId>,
    is_aborted: bool,
}

/// The scheduler of a set of instances.
pub(crate) struct Scheduler {
    settings: SchedulerSettings,
    swapper: Arc<dyn Swapper>,
    instances: Vec<Scheduled>,
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
    /// Returns a scheduler of the instances in the settings. All of them are stopped.
    pub(crate) fn new(settings: SchedulerSettings, swapper: Arc<dyn Swapper>) -> Self {
        let mut instances = Vec::new();
        instances.resize_with(settings.instances.len(), Scheduled::default);
        let mut scheduler = Self {
            settings,
            swapper,
            instances,
            swaps: Vec::new(),
            plans: Plans::default(),
            last_generation: 0,
            in_use_until: Some(0),
            next_tick: None,
            is_closed: false,
            has_excess: false,
        };
        scheduler.number_classes();
        scheduler
    }

    /// Returns the time of the next decision that no event announces.
    pub(crate) fn next_tick(&self) -> Option<Nanos> {
        self.next_tick
    }

    pub(crate) fn phase(&self, id: InstanceId) -> Phase {
        self.get(id).phase
    }

    /// Returns `true` if the instance may give slots.
    pub(crate) fn gives_slots(&self, id: InstanceId) -> bool {
        self.get(id).is_open
    }

    /// Returns `true` if a stopped instance is to be started.
    pub(crate) fn is_wanted(&self, id: InstanceId) -> bool {
        let instance = self.get(id);
        instance.phase == Phase::Stopped && instance.reason().is_some()
    }

    /// Returns `true` if the instance is in the settings.
    pub(crate) fn is_configured(&self, id: InstanceId) -> bool {
        self.settings_of(id).is_some()
    }

    /// Returns `true` if a ready instance is to be stopped once it is idle.
    pub(crate) fn is_leaving(&self, id: InstanceId) -> bool {
        self.get(id).is_leaving
    }

    /// Returns `true` while a busy instance is to be stopped once it is idle, because all together exceed the memory.
    pub(crate) fn has_excess(&self) -> bool {
        self.has_excess
    }

    /// Returns the earliest time of the next start, if the last one failed.
    pub(crate) fn earliest_retry(&self, id: InstanceId) -> Option<Nanos> {
        let instance = self.get(id);
        (instance.failures > 0).then_some(instance.not_before)
    }

    fn get(&self, InstanceId(id): InstanceId) -> &Scheduled {
        &self.instances[id as usize]
    }

    fn get_mut(&mut self, InstanceId(id): InstanceId) -> &mut Scheduled {
        &mut self.instances[id as usize]
    }

    fn ids(&self) -> impl Iterator<Item = InstanceId> + use<> {
        (0..self.instances.len() as u32).map(InstanceId)
    }

    fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }

    fn tick_at(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }
}
