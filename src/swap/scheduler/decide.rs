//! The decision after each event: which swaps begin.

use std::sync::Arc;

use super::plans::Plans;
use super::{Effects, Head, ModelId, Nanos, Phase, Plan, Running, Scheduler, Swap};

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
            for (head, _, target) in self.wanted(now) {
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

    /// The models that are to be started, those that wait first before others; of equal ones, those that were not used for
    /// longer.
    fn wanted(&mut self, now: Nanos) -> Vec<(Head, Nanos, ModelId)> {
        let mut wanted = Vec::new();
        for id in self.all() {
            let model = self.model(id);
            if model.phase != Phase::Stopped || self.of(id).is_none() {
                continue;
            }
            let Some(head) = model.head() else { continue };
            match model.not_before {
                later if later > now => self.tick_at(later),
                _ => wanted.push((head, model.last_used, id)),
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
        // What another one has to stop is left to it. That spares the plans for what would be.
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
        (started.is_leaving, started.is_spare) = (false, false);
        effects.swap(generation, target, plan);
        self.swaps.push(Swap {
            generation,
            target,
            evict: plan.evict.clone(),
            is_aborted: false,
        });
    }
}
