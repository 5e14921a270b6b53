//! The decision after each event: which swaps begin, which models give slots, and which are stopped for being idle.

use super::{Effects, Generation, Head, ModelId, Nanos, Phase, Plan, Running, Scheduler, Swap};

/// How many models with waiters are looked at for one decision, in the order of their waiters. Further ones are looked at
/// once some of these have what they want.
const MAX_LOOKS: usize = 16;

/// Why a model can't be started now.
enum Blocked {
    /// Until an event, or the next tick.
    Waits,
    /// These serve requests, and give no more slots until it was started.
    ByTraffic(Vec<ModelId>),
}

impl Scheduler {
    /// Does what can be done now.
    ///
    /// Ends because a model is looked at once, and a swap that begins is not looked at again.
    pub(super) fn decide(&mut self, now: Nanos, effects: &mut dyn Effects) {
        self.next_tick = None;
        let mut closed: Vec<ModelId> = Vec::new();
        if !self.is_closed {
            // The models that wait before the one that is looked at. It must not make it harder for them.
            let mut before: Vec<ModelId> = Vec::new();
            for (head, target) in self.wanted(now) {
                match self.try_swap(target, head, &before, now, effects) {
                    Ok(()) => continue,
                    Err(Blocked::Waits) => {}
                    Err(Blocked::ByTraffic(models)) => closed.extend(models),
                }
                before.push(target);
            }
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
            let Some(head) = model.waiter.filter(|_| model.phase == Phase::Stopped) else {
                continue;
            };
            match model.not_before {
                later if later > now => self.tick_at(later),
                _ => wanted.push((head, id)),
            }
        }
        wanted.sort_unstable();
        wanted.truncate(MAX_LOOKS);
        wanted
    }

    /// Starts a model if nothing is in the way.
    fn try_swap(
        &mut self,
        target: ModelId,
        head: Head,
        before: &[ModelId],
        now: Nanos,
        effects: &mut dyn Effects,
    ) -> Result<(), Blocked> {
        let running = self.running(effects);
        let plan = self.swapper.plan(target, &running);
        if self.collides(&plan) {
            return Err(Blocked::Waits);
        }
        // Also while it has to wait for others, as what is in its way is in theirs.
        if before
            .iter()
            .any(|&other| self.hinders(target, other, &plan, &running))
        {
            return Err(Blocked::Waits);
        }
        let loaded = plan
            .evict
            .iter()
            .map(|&model| self.model(model).ready_since);
        let kept_until = loaded
            .max()
            .map_or(0, |since| since.saturating_add(self.settings.min_loaded));
        if kept_until > now {
            self.tick_at(kept_until);
            return Err(Blocked::Waits);
        }
        let has_traffic = plan
            .evict
            .iter()
            .any(|&model| self.has_traffic(model, effects));
        if has_traffic && !self.goes_before_traffic(head, &plan.evict, now) {
            return Err(Blocked::Waits);
        }
        if plan.evict.iter().any(|&model| effects.is_busy(model)) {
            return Err(Blocked::ByTraffic(plan.evict));
        }
        // A request may have got a slot just now.
        let mut closed = Vec::new();
        for &model in &plan.evict {
            if !effects.close_if_idle(model) {
                self.reopen(&closed, effects);
                return Err(Blocked::Waits);
            }
            self.model_mut(model).is_open = false;
            closed.push(model);
        }
        self.start(target, plan, effects);
        Ok(())
    }

    /// Whether a model serves a request, or is about to.
    fn has_traffic(&self, id: ModelId, effects: &dyn Effects) -> bool {
        let model = self.model(id);
        effects.is_busy(id) || (model.is_open && model.waiter.is_some())
    }

    /// Whether the traffic of these models has to end for a waiter: of each it is more urgent than the first waiter; or it
    /// has waited for long, and longer than that.
    fn goes_before_traffic(&mut self, head: Head, models: &[ModelId], now: Nanos) -> bool {
        let models = || models.iter().map(|&model| self.model(model));
        // A model was loaded for a waiter: that one at least is served.
        if models().any(|model| model.owes_service) {
            return false;
        }
        let is_above = |other: &Head| other.level > head.level;
        if models().all(|model| model.waiter.as_ref().is_some_and(is_above)) {
            return true;
        }
        let due = head.arrival.saturating_add(self.settings.swap_after);
        if models().any(|model| {
            model
                .waiter
                .is_some_and(|other| other.arrival < head.arrival)
        }) {
            return false; // until that waiter is gone, which is an event
        }
        if due > now {
            self.tick_at(due);
        }
        due <= now
    }

    /// Whether a plan and a swap that has begun want to stop the same, or each other.
    fn collides(&self, plan: &Plan) -> bool {
        let is_changing = |model: &ModelId| {
            matches!(
                self.model(*model).phase,
                Phase::Starting(_) | Phase::Stopping(_)
            )
        };
        plan.evict.iter().any(is_changing)
    }

    /// Whether `other`, which waits before `target`, would have to wait for longer if that were started.
    fn hinders(&self, target: ModelId, other: ModelId, plan: &Plan, running: &[Running]) -> bool {
        let mut then: Vec<Running> = running.to_vec();
        then.retain(|one| !plan.evict.contains(&one.model));
        then.push(Running {
            model: target,
            pool: plan.pool,
            last_used: Nanos::MAX,
            is_busy: true,
        });
        let others = self.swapper.plan(other, &then);
        others.evict.contains(&target)
    }

    /// All models that take memory, or are to.
    fn running(&self, effects: &dyn Effects) -> Vec<Running> {
        let all = self.all().filter_map(|id| {
            let model = self.model(id);
            let is_busy = match model.phase {
                Phase::Stopped => return None,
                Phase::Ready => self.has_traffic(id, effects),
                Phase::Starting(_) | Phase::Stopping(_) => true,
            };
            Some(Running {
                model: id,
                pool: model.pool,
                last_used: model.last_used,
                is_busy,
            })
        });
        all.collect()
    }

    fn start(&mut self, target: ModelId, plan: Plan, effects: &mut dyn Effects) {
        let generation = self.next_generation();
        for &model in &plan.evict {
            self.model_mut(model).phase = Phase::Stopping(generation);
        }
        let started = self.model_mut(target);
        (started.phase, started.pool) = (Phase::Starting(generation), plan.pool);
        self.swapper.on_swap_start(target, &plan);
        effects.swap(generation, target, &plan);
        self.swaps.push(Swap {
            generation,
            target,
            evict: plan.evict,
            is_aborted: false,
        });
    }

    /// Gives up the load of a model that no request waits for any more.
    pub(super) fn abandon(&mut self, model: ModelId, effects: &mut dyn Effects) {
        if self.settings.finishes_abandoned {
            return;
        }
        let swap = self.swaps.iter_mut().find(|swap| swap.target == model);
        // What was stopped for it would have been stopped in vain.
        if let Some(swap) = swap.filter(|swap| swap.evict.is_empty() && !swap.is_aborted) {
            swap.is_aborted = true;
            effects.abort(swap.generation);
        }
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
        let ttl = self.settings.ttl[id.0 as usize];
        if is_closed || ttl == 0 || model.waiter.is_some() || effects.is_busy(id) {
            return;
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

    fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }

    fn tick_at(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }
}
