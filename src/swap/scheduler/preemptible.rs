//! Preemptible loads, which yield to any request: those of the default model, and those that all waiters have left.

use super::decide::Blocking;
use super::plans::Plans;
use super::{Effects, InstanceHead, InstanceId, InstancePhase, Nanos, Plan, Scheduler, ids};

impl Scheduler {
    /// Gives up the load of an instance that all waiters have left, or makes it preemptible.
    pub(super) fn abandon(&mut self, id: InstanceId, effects: &mut impl Effects) {
        let instance = effects.schedule(id);
        let is_wanted = instance.reason().is_some();
        if is_wanted || !matches!(instance.phase, InstancePhase::Starting(_)) {
            return;
        }
        let is_default = self.settings.default == Some(id);
        if self.settings.finishes_abandoned && !is_default {
            return;
        }
        let swap = self.swaps.iter().find(|swap| swap.target == id);
        // If other instances were stopped for the load, it goes on, or they would have been stopped in vain.
        let is_free = swap.is_some_and(|swap| swap.evict.is_empty());
        match is_free && !is_default {
            true => self.abort(id, effects),
            false => effects.schedule_mut(id).is_preemptible = true,
        }
    }

    /// Gives up the swap to an instance, if there is one.
    pub(super) fn abort(&mut self, target: InstanceId, effects: &mut impl Effects) {
        let swap = self.swaps.iter_mut().find(|swap| swap.target == target);
        if let Some(swap) = swap.filter(|swap| !swap.is_aborted) {
            swap.is_aborted = true;
            effects.abort(swap.generation);
        }
    }

    /// Gives up the preemptible loads that a plan has to stop.
    pub(super) fn abort_preemptible(&mut self, plan: &Plan, effects: &mut impl Effects) {
        for &id in &plan.evict {
            if effects.schedule(id).is_preemptible {
                self.abort(id, effects);
            }
        }
    }

    /// Loads the default model if no request has waited or run for a while.
    pub(super) fn return_to_default(
        &mut self,
        plans: &mut Plans,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        let (Some(id), Some(since)) = (self.settings.default, self.in_use_until) else {
            return;
        };
        match effects.schedule(id).phase {
            InstancePhase::Stopped => {}
            // After an unload, the next use of any model loads it again.
            InstancePhase::Ready => return self.in_use_until = None,
            _ => return,
        }
        if is_in_use(effects) {
            return;
        }
        let due = since.saturating_add(self.settings.min_loaded);
        let due = due.max(effects.schedule(id).not_before);
        if due > now {
            return self.tick_at(due);
        }
        let head = InstanceHead {
            level: u8::MAX,
            arrival: now,
        };
        let none = Blocking::new(effects.count());
        if self.try_swap(id, head, &none, plans, now, effects).is_ok() {
            effects.schedule_mut(id).is_preemptible = true;
        }
    }
}

/// Returns `true` if a request waits or runs, or an instance is being loaded or is to be.
fn is_in_use(effects: &impl Effects) -> bool {
    ids(effects).any(|id| {
        let instance = effects.schedule(id);
        let is_used = match instance.phase {
            InstancePhase::Ready => effects.is_busy(id),
            InstancePhase::Starting(_) => true,
            InstancePhase::Stopped | InstancePhase::Stopping(_) => false,
        };
        is_used || instance.reason().is_some()
    })
}
