//! The events of the scheduler, each of which ends with a decision.

use super::slots::close;
use super::{Effects, Generation, InstanceHead, InstanceId, InstancePhase, Nanos, Scheduler};

impl Scheduler {
    /// Records that the first waiter of an instance has changed, or that none is left.
    pub(crate) fn on_head(
        &mut self,
        id: InstanceId,
        head: Option<InstanceHead>,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        self.in_use_until = Some(now);
        let instance = effects.schedule_mut(id);
        // A later head says that the one before got a slot, or left.
        instance.awaits_first_use &= head.is_some() && head <= instance.head;
        instance.is_preemptible &= head.is_none();
        instance.head = head;
        self.abandon(id, effects);
        self.decide(now, effects);
    }

    /// Records that a request got a slot of the instance as it arrived, though a more urgent one waits for another
    /// instance. `overtake` has the request's level, and the time.
    pub(crate) fn on_overtake(
        &mut self,
        id: InstanceId,
        overtake: InstanceHead,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        let last = effects.schedule_mut(id).overtake.replace(overtake);
        if last != Some(overtake) {
            self.decide(now, effects);
        }
    }

    /// Records the end of a swap: its target runs, or could not be started. Returns `true` if the waiters of the target are
    /// to be told that it failed.
    pub(crate) fn on_swap_done(
        &mut self,
        generation: Generation,
        has_started: bool,
        now: Nanos,
        effects: &mut impl Effects,
    ) -> bool {
        let Some(nth) = self
            .swaps
            .iter()
            .position(|swap| swap.generation == generation)
        else {
            return false; // a late report of an earlier swap
        };
        let swap = self.swaps.swap_remove(nth);
        for &id in &swap.evict {
            has_stopped(id, generation, effects);
        }
        let target = effects.schedule_mut(swap.target);
        if has_started {
            // ## Starting => Ready
            target.phase = InstancePhase::Ready;
            target.failures = 0;
            (target.ready_since, target.last_used) = (now, now);
            target.awaits_first_use = target.head.is_some();
            target.is_leaving = swap.is_aborted;
            target.is_open = !swap.is_aborted;
            if !swap.is_aborted {
                target.load_requested = None;
                effects.open(swap.target);
            }
        } else {
            // ## Starting => Stopped
            target.phase = InstancePhase::Stopped;
            if !swap.is_aborted {
                self.back_off(swap.target, now, effects);
            }
        }
        self.decide(now, effects);
        !has_started && !swap.is_aborted
    }

    /// Keeps an instance that failed to start from the next try for a while.
    pub(super) fn back_off(&self, id: InstanceId, now: Nanos, effects: &mut impl Effects) {
        let (backoff, longest) = (self.settings.backoff, self.settings.max_backoff);
        let instance = effects.schedule_mut(id);
        let wait = backoff.saturating_mul(1 << instance.failures.min(32));
        instance.not_before = now.saturating_add(wait.min(longest));
        instance.failures = instance.failures.saturating_add(1);
        instance.load_requested = None;
    }

    /// Records that an instance has stopped. Optional for instances that a swap stops. Without it, their memory becomes free
    /// when the swap ends.
    pub(crate) fn on_stopped(
        &mut self,
        generation: Generation,
        id: InstanceId,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        has_stopped(id, generation, effects);
        self.decide(now, effects);
    }

    /// Records that a ready instance has ended by itself, so that the next request starts it again.
    pub(crate) fn on_exit(&mut self, id: InstanceId, now: Nanos, effects: &mut impl Effects) {
        let instance = effects.schedule_mut(id);
        if instance.phase == InstancePhase::Ready {
            // ## Ready => Stopped
            instance.phase = InstancePhase::Stopped;
            instance.is_leaving = false;
            close(id, effects);
        }
        self.decide(now, effects);
    }

    /// Loads an instance without a waiter, as if a request of the lowest level had come, until it is loaded or has failed.
    /// An instance in back-off is tried at once.
    pub(crate) fn on_load(&mut self, id: InstanceId, now: Nanos, effects: &mut impl Effects) {
        if effects.schedule(id).settings.is_none() {
            return;
        }
        let instance = effects.schedule_mut(id);
        if instance.phase != InstancePhase::Ready || instance.is_leaving {
            instance.load_requested.get_or_insert(now);
        }
        instance.is_preemptible = false;
        instance.not_before = now;
        self.decide(now, effects);
    }

    /// Stops an instance once it is idle, or `at_once`, or gives up its start.
    ///
    /// Its waiters are to be rejected before, because they would start it again.
    pub(crate) fn on_unload(
        &mut self,
        id: InstanceId,
        at_once: bool,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        effects.schedule_mut(id).load_requested = None;
        self.leave(id, effects);
        if at_once && effects.schedule(id).phase == InstancePhase::Ready {
            self.stop(id, effects);
        }
        self.decide(now, effects);
    }

    /// Lets an instance stop once it is idle, or gives up its start.
    pub(super) fn leave(&mut self, id: InstanceId, effects: &mut impl Effects) {
        match effects.schedule(id).phase {
            InstancePhase::Ready => {
                close(id, effects);
                effects.schedule_mut(id).is_leaving = true;
            }
            InstancePhase::Starting(_) => self.abort(id, effects),
            InstancePhase::Stopped | InstancePhase::Stopping(_) => {}
        }
    }

    /// Decides because the time of [`next_tick`](Self::next_tick) has come, or an instance became idle.
    pub(crate) fn on_tick(&mut self, now: Nanos, effects: &mut impl Effects) {
        self.decide(now, effects);
    }

    /// Ends all starts: from now on, instances only stop.
    pub(crate) fn on_shutdown(&mut self) {
        self.is_closed = true;
    }
}

// ## Stopping => Stopped, unless it was started again since.
fn has_stopped(id: InstanceId, generation: Generation, effects: &mut impl Effects) {
    let instance = effects.schedule_mut(id);
    if instance.phase == InstancePhase::Stopping(generation) {
        instance.phase = InstancePhase::Stopped;
    }
}
