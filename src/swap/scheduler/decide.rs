//! The decision after each event: which swaps begin, which models give slots, and which are stopped for being idle.

use std::sync::Arc;

use super::plans::Plans;
use super::{Effects, Head, ModelId, Nanos, Phase, Plan, Running, Scheduler, Swap};

/// How long a waiter may take to get the slot of the model that was loaded for it, in nanoseconds: with a
/// `swap_after` of 0 the model would be stopped before.
const TAKES_SLOT: Nanos = 1_000_000_000;

/// Why a model can't be started now.
pub(super) enum Blocked {
    /// Until an event, or the next tick.
    Waits(Waiting),
    /// What it needs serves requests, and gives no more slots until it was started.
    ByTraffic(Waiting),
    /// By instances of the same model, which serve its requests.
    ByItsOwn,
    /// By models that are never stopped.
    ForEver,
}

/// A model that waits to be started.
pub(super) struct Waiting {
    target: ModelId,
    level: u8,
    plan: Arc<Plan>,
    /// Whether it waits for another one that waits.
    is_behind: bool,
}

/// The models that wait before the one that is looked at, which must not make it harder for them.
#[derive(Default)]
pub(super) struct Before {
    waiting: Vec<Waiting>,
    /// By model: whether one of them has to stop it.
    is_taken: Vec<bool>,
}

impl Before {
    fn push(&mut self, waiting: Waiting) {
        for &ModelId(model) in &waiting.plan.evict {
            let model = model as usize;
            if self.is_taken.len() <= model {
                self.is_taken.resize(model + 1, false);
            }
            self.is_taken[model] = true;
        }
        self.waiting.push(waiting);
    }

    fn is_taken(&self, ModelId(model): ModelId) -> bool {
        self.is_taken
            .get(model as usize)
            .is_some_and(|taken| *taken)
    }
}

impl Scheduler {
    /// Does what can be done now.
    ///
    /// Ends because a model is looked at once, and a swap that begins is not looked at again.
    pub(super) fn decide(&mut self, now: Nanos, effects: &mut dyn Effects) {
        self.next_tick = None;
        let mut closed: Vec<ModelId> = Vec::new();
        if !self.is_closed {
            let mut plans = std::mem::take(&mut self.plans);
            plans.are_for(self.running(effects));
            let mut before = Before::default();
            for (head, target) in self.wanted(now) {
                match self.try_swap(target, head, &before, &mut plans, now, effects) {
                    Ok(()) => plans.are_for(self.running(effects)),
                    Err(Blocked::ByItsOwn) => {}
                    Err(Blocked::ForEver) => {
                        self.back_off(target, now);
                        effects.impossible(target);
                    }
                    Err(Blocked::Waits(waiting)) => before.push(waiting),
                    Err(Blocked::ByTraffic(waiting)) => {
                        closed.extend(&waiting.plan.evict);
                        before.push(waiting);
                    }
                }
            }
            self.return_to_default(&mut plans, now, effects);
            self.plans = plans;
        }
        for model in self.all() {
            self.stop_or_open(model, closed.contains(&model), now, effects);
        }
    }

    /// The models that are to be started, those that wait first before others.
    fn wanted(&mut self, now: Nanos) -> Vec<(Head, ModelId)> {
        let mut wanted = Vec::new();
        for id in self.all() {
            let model = self.model(id);
            if model.phase != Phase::Stopped || self.of(id).is_none() {
                continue;
            }
            let Some(head) = model.head() else { continue };
            match model.not_before {
                later if later > now => self.tick_at(later),
                _ => wanted.push((head, id)),
            }
        }
        wanted.sort_unstable();
        wanted
    }

    /// Starts a model if nothing is in the way.
    pub(super) fn try_swap(
        &mut self,
        target: ModelId,
        head: Head,
        before: &Before,
        plans: &mut Plans,
        now: Nanos,
        effects: &mut dyn Effects,
    ) -> Result<(), Blocked> {
        let plan = plans.plan(target, &*self.swapper);
        if plan.evict.iter().any(|&model| self.is_pinned(model)) {
            return Err(Blocked::ForEver);
        }
        if self.stops_its_own(target, &plan) {
            return Err(Blocked::ByItsOwn);
        }
        let waiting = |plan, is_behind| Waiting {
            target,
            level: head.level,
            plan,
            is_behind,
        };
        // What another one has to stop is left to it.
        if plan.evict.iter().any(|&model| before.is_taken(model)) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if self.is_changing(&plan)
            || self.was_just_loaded(&plan, now)
            || !self.goes_before_traffic(head, &plan, now, effects)
        {
            self.abort_spare(&plan, effects);
            return Err(Blocked::Waits(waiting(plan, false)));
        }
        // Of its own level only those count that wait for no other: for the rest there will be other plans by then.
        let counts = |other: &&Waiting| !other.is_behind || other.level < head.level;
        let hinders = |other: &Waiting| {
            let other = (other.target, &*other.plan);
            plans.hinders((target, &*plan), other, &*self.swapper)
        };
        if before.waiting.iter().filter(counts).any(hinders) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if plan.evict.iter().any(|&model| effects.is_busy(model)) {
            return Err(Blocked::ByTraffic(waiting(plan, false)));
        }
        for (nth, &model) in plan.evict.iter().enumerate() {
            // A request may have got a slot just now.
            if !effects.close_if_idle(model) {
                self.reopen(&plan.evict[..nth], effects);
                return Err(Blocked::Waits(waiting(plan, false)));
            }
            self.model_mut(model).is_open = false;
        }
        self.start(target, &plan, effects);
        Ok(())
    }

    /// Whether some of the models to stop are being started or stopped.
    fn is_changing(&self, plan: &Plan) -> bool {
        let mut phases = plan.evict.iter().map(|&model| self.phase(model));
        phases.any(|phase| matches!(phase, Phase::Starting(_) | Phase::Stopping(_)))
    }

    /// Whether one of the models to stop has to be kept for a while.
    fn was_just_loaded(&mut self, plan: &Plan, now: Nanos) -> bool {
        let loaded = plan.evict.iter().map(|&model| self.model(model));
        let loaded = loaded.filter(|model| !model.is_spare);
        let since = loaded.map(|model| model.ready_since).max();
        let until = since.map_or(0, |since| since.saturating_add(self.settings.min_loaded));
        if until > now {
            self.tick_at(until);
        }
        until > now
    }

    /// Whether a model serves a request, or is about to.
    fn has_traffic(&self, id: ModelId, effects: &dyn Effects) -> bool {
        let model = self.model(id);
        effects.is_busy(id) || (model.is_open && model.waiter.is_some())
    }

    /// Whether the traffic of the models to stop, if there is any, has to end for a waiter: of each it is more urgent than the first waiter; or it
    /// has waited for long, and longer than that.
    fn goes_before_traffic(
        &mut self,
        head: Head,
        plan: &Plan,
        now: Nanos,
        effects: &dyn Effects,
    ) -> bool {
        let models = plan.evict.iter().copied();
        let models: Vec<_> = models
            .filter(|&model| self.has_traffic(model, effects))
            .collect();
        if models.is_empty() {
            return true;
        }
        let waiters = || models.iter().map(|&model| self.model(model).waiter);
        // A model was loaded for a waiter: that one at least is served, if it takes the slot.
        let owing = models
            .iter()
            .filter(|&&model| self.model(model).owes_service && !effects.is_busy(model));
        let owing = owing.map(|&model| self.model(model).ready_since).max();
        let longest = self.settings.swap_after.max(TAKES_SLOT);
        let owed_until = owing.map_or(0, |since| since.saturating_add(longest));
        if owed_until > now {
            self.tick_at(owed_until);
            return false;
        }
        let is_above = |other: &Head| other.level > head.level;
        if waiters().all(|waiter| waiter.as_ref().is_some_and(is_above)) {
            return true;
        }
        let due = head.arrival.saturating_add(self.settings.swap_after);
        let came_before = |other: Head| other.level <= head.level && other.arrival < head.arrival;
        if waiters().flatten().any(came_before) {
            return false; // until that waiter is gone, which is an event
        }
        if due > now {
            self.tick_at(due);
        }
        due <= now
    }

    /// All models that take memory, or are to.
    fn running(&self, effects: &dyn Effects) -> Vec<Running> {
        let regards_use = self.swapper.regards_use();
        let all = self.all().filter_map(|id| {
            let model = self.model(id);
            let is_busy = match model.phase {
                Phase::Stopped => return None,
                Phase::Ready => self.has_traffic(id, effects),
                Phase::Starting(_) => !model.is_spare,
                Phase::Stopping(_) => false,
            };
            Some(Running {
                model: id,
                pool: model.pool,
                memory: model.memory,
                last_used: u64::from(regards_use) * model.last_used,
                is_busy: regards_use && is_busy,
                is_stopping: matches!(model.phase, Phase::Stopping(_)),
                is_pinned: self.is_pinned(id),
            })
        });
        all.collect()
    }

    fn start(&mut self, target: ModelId, plan: &Plan, effects: &mut dyn Effects) {
        let generation = self.next_generation();
        for &model in &plan.evict {
            self.model_mut(model).phase = Phase::Stopping(generation);
        }
        let started = self.model_mut(target);
        started.phase = Phase::Starting(generation);
        (started.pool, started.memory) = (plan.pool, plan.memory);
        started.is_spare = false;
        self.swapper.on_swap_start(target, plan);
        effects.swap(generation, target, plan);
        self.swaps.push(Swap {
            generation,
            target,
            evict: plan.evict.clone(),
            is_aborted: false,
        });
    }

    /// Stops a model that is to be unloaded or was idle for too long; or else lets it give slots, or not.
    fn stop_or_open(
        &mut self,
        id: ModelId,
        is_closed: bool,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let model = self.model(id);
        if model.phase != Phase::Ready {
            return;
        }
        if model.is_leaving {
            if !effects.is_busy(id) {
                self.stop(id, effects);
            }
            return;
        }
        match (is_closed, model.is_open) {
            (true, true) => return self.close(id, effects),
            (false, false) => self.reopen(&[id], effects),
            _ => {}
        }
        let model = self.model(id);
        let ttl = self.of(id).map_or(0, |model| model.ttl);
        let is_kept = ttl == 0 || self.is_pinned(id) || self.settings.default == Some(id);
        if is_closed || is_kept || model.waiter.is_some() {
            return;
        }
        if effects.is_busy(id) {
            return self.tick_at(now.saturating_add(ttl)); // its end may not be told before
        }
        let ends = model.last_used.saturating_add(ttl);
        if ends > now {
            self.tick_at(ends);
        } else if effects.close_if_idle(id) {
            self.stop(id, effects);
        }
    }

    pub(super) fn stop(&mut self, id: ModelId, effects: &mut dyn Effects) {
        let generation = self.next_generation();
        self.close(id, effects);
        let model = self.model_mut(id);
        (model.phase, model.is_leaving) = (Phase::Stopping(generation), false);
        effects.stop(generation, id);
    }

    pub(super) fn close(&mut self, id: ModelId, effects: &mut dyn Effects) {
        self.model_mut(id).is_open = false;
        effects.close(id);
    }

    fn reopen(&mut self, models: &[ModelId], effects: &mut dyn Effects) {
        for &id in models {
            self.model_mut(id).is_open = true;
            effects.open(id);
        }
    }
}
