//! Open and closed instances, and those that are stopped because they are idle or exceed the memory.

use super::traffic::has_traffic;
use super::{Effects, InstanceId, InstancePhase, Nanos, Scheduler};

impl Scheduler {
    /// Stops an instance that is to be unloaded or was idle for too long, or else opens or closes it.
    pub(super) fn stop_or_open(
        &mut self,
        id: InstanceId,
        is_closed: bool,
        now: Nanos,
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
        let ttl = effects
            .schedule(id)
            .settings
            .map_or(0, |settings| settings.ttl);
        let is_kept =
            ttl == 0 || effects.schedule(id).is_pinned() || self.settings.default == Some(id);
        if is_closed || is_kept || instance.head.is_some() {
            return;
        }
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
            if effects.schedule(id).phase != InstancePhase::Ready
                || effects.schedule(id).is_pinned()
            {
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
    pub(super) fn stop(&mut self, id: InstanceId, effects: &mut impl Effects) {
        let generation = self.next_generation();
        close(id, effects);
        let instance = effects.schedule_mut(id);
        (instance.phase, instance.is_leaving) = (InstancePhase::Stopping(generation), false);
        effects.stop(generation, id);
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
