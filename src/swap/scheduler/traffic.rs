//! When a model that requests use yields to a waiter for another one.

use super::{Effects, Head, ModelId, Nanos, Plan, Scheduler};

/// How long a waiter may take to get the slot of the model that was loaded for it, in nanoseconds: with a
/// `swap_after` of 0 the model would be stopped before.
const TAKES_SLOT: Nanos = 1_000_000_000;

impl Scheduler {
    /// Returns `true` if one of the models to stop has traffic and was loaded less than `min_loaded` ago.
    pub(super) fn was_just_loaded(
        &mut self,
        plan: &Plan,
        now: Nanos,
        effects: &dyn Effects,
    ) -> bool {
        let used = plan.evict.iter().copied();
        let used = used.filter(|&model| self.has_traffic(model, effects));
        let loaded = used.map(|model| self.model(model));
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

    /// Whether the models to stop give way to a waiter. They do if none of them has traffic; if the waiter is more
    /// urgent than the first waiter of each (where none waits, than a request that passed it); or if it has waited for
    /// `swap_after`, and none of those first waiters goes before it.
    pub(super) fn goes_before_traffic(
        &mut self,
        head: Head,
        plan: &Plan,
        now: Nanos,
        effects: &dyn Effects,
    ) -> bool {
        let models = plan.evict.iter().copied();
        let models = models.filter(|&model| self.has_traffic(model, effects));
        let mut owed_until = 0;
        let (mut has_traffic, mut is_above_all, mut is_behind) = (false, true, false);
        for id in models {
            has_traffic = true;
            let model = self.model(id);
            // It was loaded for a waiter: that one at least is served, if it takes the slot.
            if model.owes_service && !effects.is_busy(id) {
                let longest = self.settings.swap_after.max(TAKES_SLOT);
                let until = model.ready_since.saturating_add(longest);
                owed_until = until.max(owed_until);
            }
            // Of requests that find slots free one is known once it has passed this waiter.
            let passed = model.passed.filter(|passed| passed.arrival >= head.arrival);
            let is_above = |other: Head| other.level > head.level;
            is_above_all &= model.waiter.or(passed).is_some_and(is_above);
            let came_before =
                |other: Head| other.level <= head.level && other.arrival < head.arrival;
            is_behind |= model.waiter.is_some_and(came_before);
        }
        if !has_traffic {
            return true;
        }
        if owed_until > now {
            self.tick_at(owed_until);
            return false;
        }
        if is_above_all {
            return true;
        }
        if is_behind {
            return false; // until that waiter is gone, which is an event
        }
        let due = head.arrival.saturating_add(self.settings.swap_after);
        if due > now {
            self.tick_at(due);
        }
        due <= now
    }
}
