//! The scheduler: which models are started and stopped, and when.
//!
//! Events go in, effects come out. It has no queue: requests wait in the waiting room, of which it knows for each model
//! what its first waiter is. A model that does not run, or is about to stop, has no slot to give ([`Effects::close`]), so
//! its requests wait. All decisions are made in [`decide`](Scheduler::decide), after each event.

mod decide;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::swapper::{ModelId, Plan, Running, Swapper};

/// Instants and durations, in nanoseconds from a common start.
pub(crate) type Nanos = u64;

/// The first waiter of a model: a lower level, and then an earlier arrival, goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    pub(crate) level: u8,
    pub(crate) arrival: Nanos,
}

/// Names a swap or an unload: the end of one that was forgotten concerns no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// What the scheduler has done. Called under its lock: they begin something, and wait for nothing.
pub(crate) trait Effects {
    /// Whether the model serves a request.
    fn is_busy(&self, model: ModelId) -> bool;
    /// The model gives slots from now on.
    fn open(&mut self, model: ModelId);
    /// The model gives no more slots. Requests that have one keep it.
    fn close(&mut self, model: ModelId);
    /// The same, unless it serves a request. Returns whether it gives no more slots.
    fn close_if_idle(&mut self, model: ModelId) -> bool;
    /// Stops the plan's models, and then starts the target. [`Scheduler::on_swap_done`] is to be called at the end.
    fn swap(&mut self, generation: Generation, target: ModelId, plan: &Plan);
    /// Gives up a swap that stops no model. [`Scheduler::on_swap_done`] is to be called at the end.
    fn abort(&mut self, generation: Generation);
    /// Stops a model. [`Scheduler::on_stopped`] is to be called at the end.
    fn stop(&mut self, generation: Generation, model: ModelId);
}

/// The configuration of a scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// A model yields to another one's waiter that has waited for so long.
    pub(crate) swap_after: Nanos,
    /// A model that was loaded serves for so long before it yields.
    pub(crate) min_loaded: Nanos,
    /// Whether a load goes on when its last waiter has left.
    pub(crate) finishes_abandoned: bool,
    /// How long a model that failed to start is not tried again, the first time; doubled each time in a row.
    pub(crate) backoff: Nanos,
    /// And at most.
    pub(crate) max_backoff: Nanos,
    /// By model: how long it may be idle; 0: for ever.
    pub(crate) ttl: Vec<Nanos>,
}

/// What a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Stopped,
    /// The target of a swap.
    Starting(Generation),
    /// It gives slots unless it is closed.
    Ready,
    /// It is stopped, for a swap or alone.
    Stopping(Generation),
}

#[derive(Debug)]
struct Model {
    phase: Phase,
    /// Whether it gives slots. Only one that is ready does.
    is_open: bool,
    /// Whether it is to be stopped once it is idle.
    is_leaving: bool,
    waiter: Option<Head>,
    /// Whether it was loaded for a waiter and has served none since.
    owes_service: bool,
    pool: u32,
    ready_since: Nanos,
    last_used: Nanos,
    /// How often it failed to start, in a row.
    failures: u32,
    /// Before, it is not started again.
    not_before: Nanos,
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
    last_generation: u64,
    /// When to call [`on_tick`](Self::on_tick) next.
    next_tick: Option<Nanos>,
    is_closed: bool,
}

impl Scheduler {
    /// A scheduler of so many models, none of which runs.
    pub(crate) fn new(settings: Settings, swapper: Arc<dyn Swapper>, models: usize) -> Self {
        let model = || Model {
            phase: Phase::Stopped,
            is_open: false,
            is_leaving: false,
            waiter: None,
            owes_service: false,
            pool: 0,
            ready_since: 0,
            last_used: 0,
            failures: 0,
            not_before: 0,
        };
        Self {
            settings,
            swapper,
            models: std::iter::repeat_with(model).take(models).collect(),
            swaps: Vec::new(),
            last_generation: 0,
            next_tick: None,
            is_closed: false,
        }
    }

    /// The first waiter of a model is another one, or there is none any more.
    pub(crate) fn on_waiter(
        &mut self,
        model: ModelId,
        waiter: Option<Head>,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let old = self.model(model).waiter;
        let changed = self.model_mut(model);
        changed.waiter = waiter;
        // The first one got a slot, or left.
        changed.owes_service &= waiter.is_some() && waiter <= old;
        if waiter.is_none() {
            self.abandon(model, effects);
        }
        self.decide(now, effects);
    }

    /// A model serves no request any more.
    pub(crate) fn on_idle(&mut self, model: ModelId, now: Nanos, effects: &mut dyn Effects) {
        self.model_mut(model).last_used = now;
        self.decide(now, effects);
    }

    /// A swap has ended: its target runs, or could not be started. Returns whether the target's waiters are to be told
    /// that it failed.
    pub(crate) fn on_swap_done(
        &mut self,
        generation: Generation,
        has_started: bool,
        now: Nanos,
        effects: &mut dyn Effects,
    ) -> bool {
        let Some(nth) = self
            .swaps
            .iter()
            .position(|swap| swap.generation == generation)
        else {
            return false; // forgotten
        };
        let swap = self.swaps.swap_remove(nth);
        for &model in &swap.evict {
            self.model_mut(model).phase = Phase::Stopped;
        }
        let (backoff, longest) = (self.settings.backoff, self.settings.max_backoff);
        let target = self.model_mut(swap.target);
        if has_started {
            target.phase = Phase::Ready;
            target.failures = 0;
            (target.ready_since, target.last_used) = (now, now);
            target.is_open = true;
            target.owes_service = target.waiter.is_some();
            effects.open(swap.target);
        } else {
            target.phase = Phase::Stopped;
            if !swap.is_aborted {
                let wait = backoff
                    .saturating_mul(1 << target.failures.min(32))
                    .min(longest);
                target.not_before = now.saturating_add(wait);
                target.failures += 1;
            }
        }
        self.decide(now, effects);
        !has_started && !swap.is_aborted
    }

    /// A model that was to be stopped has stopped.
    pub(crate) fn on_stopped(
        &mut self,
        generation: Generation,
        model: ModelId,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let stopped = self.model_mut(model);
        if stopped.phase == Phase::Stopping(generation) {
            stopped.phase = Phase::Stopped;
        }
        self.decide(now, effects);
    }

    /// A model that was ready has ended by itself. It is started again when it is asked for.
    pub(crate) fn on_exit(&mut self, model: ModelId, now: Nanos, effects: &mut dyn Effects) {
        let ended = self.model_mut(model);
        if ended.phase == Phase::Ready {
            ended.phase = Phase::Stopped;
            ended.is_leaving = false;
            self.close(model, effects);
        }
        self.decide(now, effects);
    }

    /// A model has to stop, once it serves no request any more, or at once.
    pub(crate) fn on_unload(
        &mut self,
        model: ModelId,
        at_once: bool,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        if self.model(model).phase == Phase::Ready {
            self.close(model, effects);
            self.model_mut(model).is_leaving = true;
            if at_once {
                self.stop(model, effects);
            }
        }
        self.abandon(model, effects);
        self.decide(now, effects);
    }

    /// The time for which [`next_tick`](Self::next_tick) asked has come.
    pub(crate) fn on_tick(&mut self, now: Nanos, effects: &mut dyn Effects) {
        self.decide(now, effects);
    }

    /// No model is started any more.
    pub(crate) fn on_shutdown(&mut self) {
        self.is_closed = true;
    }

    /// When something is to be decided that no event announces.
    pub(crate) fn next_tick(&self) -> Option<Nanos> {
        self.next_tick
    }

    /// What a model does.
    pub(crate) fn phase(&self, model: ModelId) -> Phase {
        self.model(model).phase
    }

    /// When a model that failed to start may be tried again.
    pub(crate) fn earliest_retry(&self, model: ModelId) -> Option<Nanos> {
        Some(self.model(model).not_before)
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
}
