//! The events of the scheduler, each of which ends with a decision.

use std::collections::HashMap;
use std::sync::Arc;

use super::plans::Plans;
use super::slots::close;
use super::{
    BACKOFF, Effects, InstanceHead, InstanceId, InstancePhase, Scheduler, SchedulerSettings,
    Swapper, ids,
};

impl Scheduler {
    /// Records that the first waiter of an instance has changed, or that none is left.
    pub(crate) fn on_head(
        &mut self,
        id: InstanceId,
        head: Option<InstanceHead>,
        effects: &mut impl Effects,
    ) {
        self.in_use_until = Some(effects.now());
        let instance = effects.schedule_mut(id);
        // A later head says that the one before got a slot, or left.
        instance.awaits_first_use &= head.is_some() && head <= instance.head;
        instance.is_preemptible &= head.is_none();
        instance.head = head;
        self.abandon(id, effects);
        self.decide(effects);
    }

    /// Records that a request got a slot of the instance as it arrived, though a more urgent one waits for another
    /// instance. `overtake` has the request's level, and the time.
    pub(crate) fn on_overtake(
        &mut self,
        id: InstanceId,
        overtake: InstanceHead,
        effects: &mut impl Effects,
    ) {
        let last = effects.schedule_mut(id).overtake.replace(overtake);
        if last != Some(overtake) {
            self.decide(effects);
        }
    }

    /// Records the end of a swap: its target runs, or could not be started. Returns `true` if the waiters of the target are
    /// to be told that it failed.
    pub(crate) fn on_swap_done(
        &mut self,
        id: InstanceId,
        has_started: bool,
        effects: &mut impl Effects,
    ) -> bool {
        let now = effects.now();
        let target = effects.schedule_mut(id);
        let is_aborted = target.is_aborted;
        if has_started {
            // ## Starting => Ready
            target.phase = InstancePhase::Ready;
            target.failures = 0;
            (target.ready_since, target.last_used) = (now, now);
            target.awaits_first_use = target.head.is_some();
            (target.is_leaving, target.is_open) = (is_aborted, !is_aborted);
            if !is_aborted {
                target.load_requested = None;
                effects.open(id);
            }
        } else {
            // ## Starting => Stopped
            target.phase = InstancePhase::Stopped;
            if !is_aborted {
                Self::back_off(id, effects);
            }
        }
        self.decide(effects);
        !has_started && !is_aborted
    }

    /// Keeps an instance that failed to start from the next try for a while.
    pub(super) fn back_off(id: InstanceId, effects: &mut impl Effects) {
        let (now, (backoff, longest)) = (effects.now(), BACKOFF);
        let instance = effects.schedule_mut(id);
        let wait = backoff.saturating_mul(1 << instance.failures.min(32));
        instance.not_before = now.saturating_add(wait.min(longest));
        instance.failures = instance.failures.saturating_add(1);
        instance.load_requested = None;
    }

    /// Records that an instance has stopped, alone or for a swap.
    pub(crate) fn on_stopped(&mut self, id: InstanceId, effects: &mut impl Effects) {
        // ## Stopping => Stopped
        effects.schedule_mut(id).phase = InstancePhase::Stopped;
        self.decide(effects);
    }

    /// Records that a ready instance has ended by itself, so that the next request starts it again.
    pub(crate) fn on_exit(&mut self, id: InstanceId, effects: &mut impl Effects) {
        let instance = effects.schedule_mut(id);
        if instance.phase == InstancePhase::Ready {
            // ## Ready => Stopped
            instance.phase = InstancePhase::Stopped;
            instance.is_leaving = false;
            close(id, effects);
        }
        self.decide(effects);
    }

    /// Loads an instance without a waiter, as if a request of the lowest level had come, until it is loaded or has failed.
    /// An instance in back-off is tried at once.
    pub(crate) fn on_load(&mut self, id: InstanceId, effects: &mut impl Effects) {
        let now = effects.now();
        if effects.schedule(id).settings.is_none() {
            return;
        }
        let instance = effects.schedule_mut(id);
        if instance.phase != InstancePhase::Ready || instance.is_leaving {
            instance.load_requested.get_or_insert(now);
        }
        instance.is_preemptible = false;
        instance.not_before = now;
        self.decide(effects);
    }

    /// Stops an instance once it is idle, or `at_once`, or gives up its start.
    ///
    /// Its waiters are to be rejected before, because they would start it again.
    pub(crate) fn on_unload(&mut self, id: InstanceId, at_once: bool, effects: &mut impl Effects) {
        effects.schedule_mut(id).load_requested = None;
        self.leave(id, effects);
        if at_once && effects.schedule(id).phase == InstancePhase::Ready {
            self.stop(id, effects);
        }
        self.decide(effects);
    }

    /// Stops an instance that is idle and for which no request waits, as if it had been idle for long enough.
    pub(crate) fn on_release(&mut self, id: InstanceId, effects: &mut impl Effects) {
        let instance = effects.schedule(id);
        let is_kept = instance.is_pinned() || self.settings.default == Some(id);
        let is_unused = instance.phase == InstancePhase::Ready && instance.head.is_none();
        if is_unused && !is_kept && effects.close_if_idle(id) {
            self.stop(id, effects);
        }
        self.decide(effects);
    }

    /// Lets an instance stop once it is idle, or gives up its start.
    pub(super) fn leave(&mut self, id: InstanceId, effects: &mut impl Effects) {
        match effects.schedule(id).phase {
            InstancePhase::Ready => {
                close(id, effects);
                effects.schedule_mut(id).is_leaving = true;
            }
            InstancePhase::Starting => self.abort(id, effects),
            InstancePhase::Stopped | InstancePhase::Stopping => {}
        }
    }

    /// Ends all starts: from now on, instances only stop.
    pub(crate) fn on_shutdown(&mut self) {
        self.is_closed = true;
    }
    /// Replaces the configuration, after the caller has set that of each [`Schedule`](super::Schedule). Instances that have
    /// left it, and those of `changed`, are stopped once they are idle, and may start again if they are configured. All others
    /// keep running. A new instance may get the number of one that has left and stopped.
    pub(crate) fn on_reconfigure(
        &mut self,
        settings: SchedulerSettings,
        swapper: Arc<dyn Swapper>,
        changed: &[InstanceId],
        effects: &mut impl Effects,
    ) {
        (self.settings, self.swapper) = (settings, swapper);
        self.plans = Plans::default();
        self.number_classes(effects);
        for id in ids(effects) {
            let is_gone = effects.schedule(id).settings.is_none();
            if is_gone {
                effects.schedule_mut(id).load_requested = None;
            }
            if is_gone || changed.contains(&id) {
                let instance = effects.schedule_mut(id);
                (instance.failures, instance.not_before) = (0, 0);
                self.leave(id, effects);
            }
        }
        self.in_use_until = Some(effects.now());
        self.decide(effects);
    }

    /// Asks the swapper for the plan class of each instance.
    pub(super) fn number_classes(&self, effects: &mut impl Effects) {
        let mut classes = HashMap::new();
        for id in ids(effects) {
            let next = classes.len();
            let class = self.swapper.plan_class(id);
            effects.schedule_mut(id).class = *classes.entry(class).or_insert(next);
        }
    }
}
