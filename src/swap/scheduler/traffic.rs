//! When a model that requests use yields to a waiter for another one.

use super::{Effects, Head, ModelId, Nanos, Plan, Scheduler};

impl Scheduler {
    /// Whether one of the models to stop has to be kept for a while.
    pub(super) fn was_just_loaded(&mut self, plan: &Plan, now: Nanos) -> bool {
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
    pub(super) fn has_traffic(&self, id: ModelId, effects: &dyn Effects) -> bool {
        let model = self.model(id);
        effects.is_busy(id) || (model.is_open && model.waiter.is_some())
    }

    /// Whether the traffic of the models to stop, if there is any, has to end for a waiter: of each it is more urgent than
    /// the first waiter; or it has waited for long, and longer than that.
    pub(super) fn goes_before_traffic(
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
        let owed_until = owing.map_or(0, |since| since.saturating_add(self.settings.swap_after));
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
}
