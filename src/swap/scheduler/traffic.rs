//! The traffic of an instance, and when it yields to a waiter for another one.

use super::{Effects, InstanceHead, InstanceId, Nanos, Plan, Scheduler};

/// The time that a waiter may take to get the slot of the instance that was loaded for it, in nanoseconds. With a
/// `swap_after` of 0 the instance would be stopped before.
const TAKES_SLOT: Nanos = 1_000_000_000;

impl Scheduler {
    /// Returns `true` if an instance of the plan has traffic, and was loaded less than `min_loaded` ago.
    pub(super) fn was_just_loaded(&mut self, plan: &Plan, effects: &impl Effects) -> bool {
        let used = plan.evict.iter().filter(|&&id| has_traffic(id, effects));
        let loaded = used.map(|&id| effects.schedule(id));
        let loaded = loaded.filter(|instance| !instance.is_preemptible);
        let since = loaded.map(|instance| instance.ready_since).max();
        let until = since.map_or(0, |since| since.saturating_add(self.settings.min_loaded));
        let is_too_soon = until > effects.now();
        if is_too_soon {
            self.tick_at(until);
        }
        is_too_soon
    }

    /// Returns `true` if the instances of the plan yield to a waiter. They do in three cases:
    ///
    /// - They have no traffic.
    /// - The waiter is more urgent than the first waiter of each of them, or than a request that overtook it if none waits.
    /// - The waiter has waited for `swap_after`, and goes before all those first waiters.
    pub(super) fn yields_to(
        &mut self,
        head: InstanceHead,
        plan: &Plan,
        effects: &impl Effects,
    ) -> bool {
        let used = plan.evict.iter().filter(|&&id| has_traffic(id, effects));
        let (now, mut owed_until) = (effects.now(), 0);
        let (mut has_traffic, mut is_above_all, mut is_behind) = (false, true, false);
        for &id in used {
            has_traffic = true;
            let instance = effects.schedule(id);
            // The waiter that it was loaded for is served first, if it takes the slot in time.
            if instance.awaits_first_use && !effects.is_busy(id) {
                let longest = self.settings.swap_after.max(TAKES_SLOT);
                let until = instance.ready_since.saturating_add(longest);
                owed_until = until.max(owed_until);
            }
            // Requests that find free slots are known only if they have overtaken this waiter.
            let overtake = instance.overtake.filter(|it| it.arrival >= head.arrival);
            let is_above = |other: InstanceHead| other.level > head.level;
            is_above_all &= instance.head.or(overtake).is_some_and(is_above);
            let goes_before =
                |other: InstanceHead| other.level <= head.level && other.arrival < head.arrival;
            is_behind |= instance.head.is_some_and(goes_before);
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

/// Returns `true` if an instance serves a request, or is about to.
pub(super) fn has_traffic(id: InstanceId, effects: &impl Effects) -> bool {
    let instance = effects.schedule(id);
    effects.is_busy(id) || (instance.is_open && instance.head.is_some())
}
