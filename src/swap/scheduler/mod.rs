//! The scheduler: which models are started and stopped, and when.
//!
//! Events go in, effects come out. It has no queue: requests wait in the waiting room, of which it knows for each model
//! what its first waiter is. A model that does not run, or is about to stop, has no slot to give ([`Effects::close`]), so
//! its requests wait. All decisions are made in [`decide`](Scheduler::decide), after each event. Each begins with a look at
//! which models have become idle since the last one ([`Effects::take_idled`]), because most uses of a model are no event.
//!
//! - Events, `on_*`: [`on_waiter`](Scheduler::on_waiter), [`on_passed`](Scheduler::on_passed),
//!   [`on_swap_done`](Scheduler::on_swap_done), [`on_stopped`](Scheduler::on_stopped), [`on_exit`](Scheduler::on_exit),
//!   [`on_load`](Scheduler::on_load), [`on_unload`](Scheduler::on_unload), [`on_tick`](Scheduler::on_tick),
//!   [`on_reconfigure`](Scheduler::on_reconfigure), [`on_shutdown`](Scheduler::on_shutdown). After each, ask for
//!   [`next_tick`](Scheduler::next_tick). To begin with, call `on_load` for each model that is to run from the start, or
//!   else `on_tick`.
//! - States: [`phase`](Scheduler::phase), [`is_leaving`](Scheduler::is_leaving),
//!   [`is_wanted`](Scheduler::is_wanted), [`is_configured`](Scheduler::is_configured),
//!   [`earliest_retry`](Scheduler::earliest_retry).
//!
//! A [`ModelId`] is the number of an instance: a process that may run. It keeps its number for as long as the scheduler
//! is there.

mod decide;
mod events;
mod marks;
mod plans;
mod settings;
mod slots;
mod spare;
#[cfg(test)]
mod tests;
mod traffic;

use std::sync::Arc;

use self::plans::Plans;
pub(crate) use self::settings::{ModelSettings, Settings};
use super::swapper::{ModelId, Plan, Running, Swapper};

/// Instants and durations, in nanoseconds from a common start.
pub(crate) type Nanos = u64;

/// The first waiter of a model: a lower level, and then an earlier arrival, goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    pub(crate) level: u8,
    pub(crate) arrival: Nanos,
}

/// Identifies a swap or an unload, so that the end of an earlier one is not taken for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// What the scheduler asks for. Each method begins something, and waits for nothing.
pub(crate) trait Effects {
    /// Whether the model serves a request.
    fn is_busy(&self, model: ModelId) -> bool;
    /// Returns when the model last served a request, if it has become idle since the last call.
    fn take_idled(&mut self, model: ModelId) -> Option<Nanos>;
    /// The model gives slots from now on.
    fn open(&mut self, model: ModelId);
    /// The model gives no more slots. Requests that have one keep it.
    fn close(&mut self, model: ModelId);
    /// The same, unless it serves a request. Returns whether it gives no more slots.
    fn close_if_idle(&mut self, model: ModelId) -> bool;
    /// Stops the plan's models, and then starts the target. [`Scheduler::on_swap_done`] is to be called at the end.
    fn swap(&mut self, generation: Generation, target: ModelId, plan: &Plan);
    /// Gives up a swap: what it is stopping is stopped, and its target is not started, or stopped if it was.
    /// [`Scheduler::on_swap_done`] is to be called at the end, with `has_started: false`.
    fn abort(&mut self, generation: Generation);
    /// Stops a model. [`Scheduler::on_stopped`] is to be called at the end. The model serves requests only if it was
    /// unloaded at once.
    fn stop(&mut self, generation: Generation, model: ModelId);
    /// The model's waiters are to be told that it failed to start: it can't run beside the models that are never stopped.
    fn impossible(&mut self, model: ModelId);
}

/// What a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Stopped,
    /// The target of a swap.
    Starting(Generation),
    /// It gives slots unless it is closed.
    Ready,
    /// It is stopped, for a swap or alone.
    Stopping(Generation),
}

#[derive(Debug, Default)]
struct Model {
    /// The number of its kind: [`Swapper::kind`], in the order in which kinds are met.
    kind: usize,
    phase: Phase,
    /// Whether it gives slots. Only one that is ready does.
    is_open: bool,
    /// Whether it is to be stopped once it is idle.
    is_leaving: bool,
    waiter: Option<Head>,
    /// The last of its requests that passed a more urgent one of another model, and when it did.
    passed: Option<Head>,
    /// Since when it is to be loaded without a waiter, until it is or has failed.
    asked: Option<Nanos>,
    /// Whether it was loaded for a waiter and has served none since.
    owes_service: bool,
    /// Whether it is being loaded, or was, for no request: it yields to any at once.
    is_spare: bool,
    /// Of the plan that started it.
    pool: u32,
    /// Of the plan that started it.
    memory: u64,
    ready_since: Nanos,
    last_used: Nanos,
    /// How often it failed to start, in a row.
    failures: u32,
    /// Before, it is not started again.
    not_before: Nanos,
}

impl Model {
    /// What it is to be started for.
    fn head(&self) -> Option<Head> {
        let asked = self.asked.map(|arrival| Head {
            level: u8::MAX,
            arrival,
        });
        self.waiter.or(asked)
    }
}

/// A swap on its way.
#[derive(Debug)]
struct Swap {
    generation: Generation,
    target: ModelId,
    evict: Vec<ModelId>,
    is_aborted: bool,
}

/// The scheduler of a set of models.
pub(crate) struct Scheduler {
    settings: Settings,
    swapper: Arc<dyn Swapper>,
    models: Vec<Model>,
    swaps: Vec<Swap>,
    plans: Plans,
    last_generation: u64,
    /// When a request last waited or ran. `None` once the default model was loaded after that.
    in_use_until: Option<Nanos>,
    /// When to call [`on_tick`](Self::on_tick) next.
    next_tick: Option<Nanos>,
    is_closed: bool,
    /// `true` while a model that serves is to be stopped once it is idle, because all together exceed the memory.
    has_excess: bool,
}

impl Scheduler {
    /// A scheduler of the models that the settings have. None of them runs.
    pub(crate) fn new(settings: Settings, swapper: Arc<dyn Swapper>) -> Self {
        let mut models = Vec::new();
        models.resize_with(settings.models.len(), Model::default);
        let mut scheduler = Self {
            settings,
            swapper,
            models,
            swaps: Vec::new(),
            plans: Plans::default(),
            last_generation: 0,
            in_use_until: Some(0),
            next_tick: None,
            is_closed: false,
            has_excess: false,
        };
        scheduler.number_kinds();
        scheduler
    }

    /// When something is to be decided that no event announces.
    pub(crate) fn next_tick(&self) -> Option<Nanos> {
        self.next_tick
    }

    /// What a model does.
    pub(crate) fn phase(&self, model: ModelId) -> Phase {
        self.model(model).phase
    }

    /// Whether a model gives slots.
    pub(crate) fn gives_slots(&self, model: ModelId) -> bool {
        self.model(model).is_open
    }

    /// Whether a model that does not run is to be started.
    pub(crate) fn is_wanted(&self, model: ModelId) -> bool {
        let model = self.model(model);
        model.phase == Phase::Stopped && model.head().is_some()
    }

    /// Whether a model was configured when that was last said.
    pub(crate) fn is_configured(&self, model: ModelId) -> bool {
        self.of(model).is_some()
    }

    /// Whether a model that is ready is to be stopped once it serves no request.
    pub(crate) fn is_leaving(&self, model: ModelId) -> bool {
        self.model(model).is_leaving
    }

    /// Returns `true` while a model that serves is to be stopped once it is idle, because all together exceed what there is.
    pub(crate) fn has_excess(&self) -> bool {
        self.has_excess
    }

    /// When a model that failed to start is tried again, at the earliest. `None` if its last start did not fail.
    pub(crate) fn earliest_retry(&self, model: ModelId) -> Option<Nanos> {
        let model = self.model(model);
        (model.failures > 0).then_some(model.not_before)
    }

    fn model(&self, ModelId(model): ModelId) -> &Model {
        &self.models[model as usize]
    }

    fn model_mut(&mut self, ModelId(model): ModelId) -> &mut Model {
        &mut self.models[model as usize]
    }

    fn all(&self) -> impl Iterator<Item = ModelId> + use<> {
        (0..self.models.len() as u32).map(ModelId)
    }

    fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }

    fn tick_at(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }
}
