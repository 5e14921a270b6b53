//! Which models give slots, and which are stopped for being idle.

use super::{Effects, ModelId, Nanos, Phase, Scheduler};

impl Scheduler {
    /// Stops a model that is to be unloaded or was idle for too long; or else lets it give slots, or not.
    pub(super) fn stop_or_open(
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

    /// Stops idle models while those that run exceed what there is. A model that serves is stopped once it is idle.
    pub(super) fn stop_excess(&mut self, effects: &mut dyn Effects) {
        let excess = self.swapper.excess(&self.running(effects));
        self.has_excess = false;
        for id in excess {
            if self.phase(id) != Phase::Ready || self.is_pinned(id) {
                continue;
            }
            if !self.has_traffic(id, effects) && effects.close_if_idle(id) {
                self.stop(id, effects);
            } else {
                self.has_excess = true;
            }
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

    pub(super) fn reopen(&mut self, models: &[ModelId], effects: &mut dyn Effects) {
        for &id in models {
            self.model_mut(id).is_open = true;
            effects.open(id);
        }
    }
}
