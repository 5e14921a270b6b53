//! Loads that no request waits for: of the default model, and those that were abandoned. They yield to any request.

use super::decide::Before;
use super::plans::Plans;
use super::{Effects, Head, ModelId, Nanos, Phase, Plan, Scheduler};

impl Scheduler {
    /// Gives up the load of a model that no request waits for any more, or lets it yield.
    pub(super) fn abandon(&mut self, id: ModelId, effects: &mut dyn Effects) {
        let model = self.model(id);
        let is_wanted = model.head().is_some();
        if is_wanted || !matches!(model.phase, Phase::Starting(_)) {
            return;
        }
        let is_default = self.settings.default == Some(id);
        if self.settings.finishes_abandoned && !is_default {
            return;
        }
        let swap = self.swaps.iter().find(|swap| swap.target == id);
        // What was stopped for it would have been stopped in vain.
        let is_free = swap.is_some_and(|swap| swap.evict.is_empty());
        match is_free && !is_default {
            true => self.abort(id, effects),
            false => self.model_mut(id).is_spare = true,
        }
    }

    /// Gives up a swap, if the model is the target of one.
    pub(super) fn abort(&mut self, target: ModelId, effects: &mut dyn Effects) {
        let swap = self.swaps.iter_mut().find(|swap| swap.target == target);
        if let Some(swap) = swap.filter(|swap| !swap.is_aborted) {
            swap.is_aborted = true;
            effects.abort(swap.generation);
        }
    }

    /// Gives up the loads that no request waits for, if they are in the way of `plan`.
    pub(super) fn abort_spare(&mut self, plan: &Plan, effects: &mut dyn Effects) {
        for &model in &plan.evict {
            if self.model(model).is_spare {
                self.abort(model, effects);
            }
        }
    }

    /// Loads the default model if no request has waited or run for a while.
    pub(super) fn return_to_default(
        &mut self,
        plans: &mut Plans,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let (Some(id), Some(since)) = (self.settings.default, self.in_use_until) else {
            return;
        };
        match self.model(id).phase {
            Phase::Stopped => {}
            // Were it unloaded now, it would be loaded again after the next use of any.
            Phase::Ready => return self.in_use_until = None,
            _ => return,
        }
        if self.is_in_use(effects) {
            return;
        }
        let due = since.saturating_add(self.settings.min_loaded);
        let due = due.max(self.model(id).not_before);
        if due > now {
            return self.tick_at(due);
        }
        let head = Head {
            level: u8::MAX,
            arrival: now,
        };
        let none = Before::new(self.models.len());
        if self.try_swap(id, head, &none, plans, now, effects).is_ok() {
            self.model_mut(id).is_spare = true;
        }
    }

    /// Whether a request waits or runs, or something is to be loaded.
    fn is_in_use(&self, effects: &dyn Effects) -> bool {
        self.all().any(|id| {
            let model = self.model(id);
            let is_used = match model.phase {
                Phase::Ready => effects.is_busy(id),
                Phase::Starting(_) => true,
                Phase::Stopped | Phase::Stopping(_) => false,
            };
            is_used || model.head().is_some()
        })
    }
}
