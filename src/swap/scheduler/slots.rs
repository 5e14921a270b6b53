//! Open and closed instances, those that are stopped because they are idle or exceed the memory, and preemptible loads.
//!
//! A preemptible load yields to any request: the load of the default model, and one that all waiters have left.

use super::decide::Blocking;
use super::traffic::has_traffic;
use super::{
    AbandonedLoad, Effects, InstanceHead, InstanceId, InstancePhase, Plan, Scheduler, ids,
};

impl Scheduler {
    /// Stops an instance that is to be unloaded or was idle for too long, or else opens or closes it.
    pub(super) fn stop_or_open(
        &mut self,
        id: InstanceId,
        is_closed: bool,
        effects: &mut impl Effects,
    ) {
        let instance = effects.schedule(id);
        if instance.phase != InstancePhase::Ready {
            return;
        }
        if instance.is_leaving {
            if !effects.is_busy(id) {
                self.stop(id, effects);
            }
            return;
        }
        match (is_closed, instance.is_open) {
            (true, true) => return close(id, effects),
            (false, false) => reopen(&[id], effects),
            _ => {}
        }
        let instance = effects.schedule(id);
        let ttl = instance.settings.map_or(0, |settings| settings.ttl);
        let is_kept = ttl == 0 || instance.is_pinned() || self.settings.default == Some(id);
        if is_closed || is_kept || instance.head.is_some() {
            return;
        }
        let now = effects.now();
        if effects.is_busy(id) {
            return self.tick_at(now.saturating_add(ttl)); // it may become idle without an event
        }
        let ends = instance.last_used.saturating_add(ttl);
        if ends > now {
            self.tick_at(ends);
        } else if effects.close_if_idle(id) {
            self.stop(id, effects);
        }
    }

    /// Stops idle instances while all together exceed the memory. A busy one is stopped once it is idle.
    pub(super) fn stop_excess(&mut self, effects: &mut impl Effects) {
        let excess = self.swapper.excess(&self.running(effects));
        self.has_excess = false;
        for id in excess {
            let instance = effects.schedule(id);
            if instance.phase != InstancePhase::Ready || instance.is_pinned() {
                continue;
            }
            if !has_traffic(id, effects) && effects.close_if_idle(id) {
                self.stop(id, effects);
            } else {
                self.has_excess = true;
            }
        }
    }

    // ## Ready => Stopping
    pub(super) fn stop(&self, id: InstanceId, effects: &mut impl Effects) {
        close(id, effects);
        let instance = effects.schedule_mut(id);
        (instance.phase, instance.is_leaving) = (InstancePhase::Stopping, false);
        effects.stop(id);
    }

    /// Makes the load of an instance that all waiters have left preemptible, or gives it up.
    pub(super) fn abandon(&self, id: InstanceId, effects: &mut impl Effects) {
        let instance = effects.schedule(id);
        let is_wanted = instance.reason().is_some();
        if is_wanted || instance.phase != InstancePhase::Starting {
            return;
        }
        let fate = match self.settings.default == Some(id) {
            true => AbandonedLoad::Yield,
            false => self.settings.abandoned_load,
        };
        match fate {
            AbandonedLoad::Finish => {}
            // If other instances were stopped for the load, it goes on, or they would have been stopped in vain.
            AbandonedLoad::Abort if !instance.has_evicted => self.abort(id, effects),
            AbandonedLoad::Abort | AbandonedLoad::Yield => {
                effects.schedule_mut(id).is_preemptible = true;
            }
        }
    }

    /// Gives up the start of an instance, if there is one.
    pub(super) fn abort(&self, id: InstanceId, effects: &mut impl Effects) {
        let target = effects.schedule_mut(id);
        let is_starting = target.phase == InstancePhase::Starting;
        if is_starting && !std::mem::replace(&mut target.is_aborted, true) {
            effects.abort(id);
        }
    }

    /// Gives up the preemptible loads that a plan has to stop.
    pub(super) fn abort_preemptible(&self, plan: &Plan, effects: &mut impl Effects) {
        for &id in &plan.evict {
            if effects.schedule(id).is_preemptible {
                self.abort(id, effects);
            }
        }
    }

    /// Loads the default model if no request has waited or run for a while.
    pub(super) fn return_to_default(&mut self, effects: &mut impl Effects) {
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
        let now = effects.now();
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
        if self.try_swap(id, head, &none, effects).is_ok() {
            effects.schedule_mut(id).is_preemptible = true;
        }
    }
}

pub(super) fn close(id: InstanceId, effects: &mut impl Effects) {
    effects.schedule_mut(id).is_open = false;
    effects.close(id);
}

pub(super) fn reopen(ids: &[InstanceId], effects: &mut impl Effects) {
    for &id in ids {
        effects.schedule_mut(id).is_open = true;
        effects.open(id);
    }
}

/// Returns `true` if a request waits or runs, or an instance is being loaded or is to be.
fn is_in_use(effects: &impl Effects) -> bool {
    ids(effects).any(|id| {
        let instance = effects.schedule(id);
        let is_used = match instance.phase {
            InstancePhase::Ready => effects.is_busy(id),
            InstancePhase::Starting => true,
            InstancePhase::Stopped | InstancePhase::Stopping => false,
        };
        is_used || instance.reason().is_some()
    })
}
