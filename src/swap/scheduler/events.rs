//! What the scheduler is told.

use super::{Effects, Generation, Head, ModelId, Nanos, Phase, Scheduler};

impl Scheduler {
    /// The first waiter of a model is another one, or there is none any more.
    pub(crate) fn on_waiter(
        &mut self,
        model: ModelId,
        waiter: Option<Head>,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        self.in_use_until = Some(now);
        let changed = self.model_mut(model);
        // The first one got a slot, or left.
        changed.owes_service &= waiter.is_some() && waiter <= changed.waiter;
        changed.is_spare &= waiter.is_none();
        changed.waiter = waiter;
        self.abandon(model, effects);
        self.decide(now, effects);
    }

    /// A request got a slot of the model as it arrived, though a more urgent one waits for another model. `passed`: its
    /// level, and when that was.
    pub(crate) fn on_passed(
        &mut self,
        model: ModelId,
        passed: Head,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let last = self.model_mut(model).passed.replace(passed);
        if last != Some(passed) {
            self.decide(now, effects);
        }
    }

    /// A swap has ended: its target runs, or could not be started. Returns whether the target's waiters are to be told
    /// that it failed.
    pub(crate) fn on_swap_done(
        &mut self,
        generation: Generation,
        has_started: bool,
        now: Nanos,
        effects: &mut dyn Effects,
    ) -> bool {
        let Some(nth) = self
            .swaps
            .iter()
            .position(|swap| swap.generation == generation)
        else {
            return false; // forgotten
        };
        let swap = self.swaps.swap_remove(nth);
        for &model in &swap.evict {
            self.has_stopped(model, generation);
        }
        let target = self.model_mut(swap.target);
        if has_started {
            target.phase = Phase::Ready;
            target.failures = 0;
            (target.ready_since, target.last_used) = (now, now);
            target.owes_service = target.waiter.is_some();
            target.is_leaving = swap.is_aborted;
            target.is_open = !swap.is_aborted;
            if !swap.is_aborted {
                target.asked = None;
                effects.open(swap.target);
            }
        } else {
            target.phase = Phase::Stopped;
            if !swap.is_aborted {
                self.back_off(swap.target, now);
            }
        }
        self.decide(now, effects);
        !has_started && !swap.is_aborted
    }

    /// A model failed to start: it is not tried again for a while.
    pub(super) fn back_off(&mut self, id: ModelId, now: Nanos) {
        let (backoff, longest) = (self.settings.backoff, self.settings.max_backoff);
        let model = self.model_mut(id);
        let wait = backoff.saturating_mul(1 << model.failures.min(32));
        model.not_before = now.saturating_add(wait.min(longest));
        model.failures = model.failures.saturating_add(1);
        model.asked = None;
    }

    /// A model that was to be stopped has stopped. Of those of a swap it need not be told; but then others may use what it
    /// leaves free only when the swap has ended.
    pub(crate) fn on_stopped(
        &mut self,
        generation: Generation,
        model: ModelId,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        self.has_stopped(model, generation);
        self.decide(now, effects);
    }

    /// Nothing, if it was started again since.
    fn has_stopped(&mut self, id: ModelId, generation: Generation) {
        let model = self.model_mut(id);
        if model.phase == Phase::Stopping(generation) {
            model.phase = Phase::Stopped;
        }
    }

    /// A model that was ready has ended by itself. It is started again when it is asked for.
    pub(crate) fn on_exit(&mut self, model: ModelId, now: Nanos, effects: &mut dyn Effects) {
        let ended = self.model_mut(model);
        if ended.phase == Phase::Ready {
            ended.phase = Phase::Stopped;
            ended.is_leaving = false;
            self.close(model, effects);
        }
        self.decide(now, effects);
    }

    /// A model is to be loaded though no request waits for it: as if one of the lowest level had come, until it is loaded
    /// or has failed. One that failed to start before is tried at once.
    pub(crate) fn on_load(&mut self, model: ModelId, now: Nanos, effects: &mut dyn Effects) {
        if self.of(model).is_none() {
            return;
        }
        let asked = self.model_mut(model);
        if asked.phase != Phase::Ready || asked.is_leaving {
            asked.asked.get_or_insert(now);
        }
        asked.is_spare = false;
        asked.not_before = now;
        self.decide(now, effects);
    }

    /// A model has to stop, once it serves no request any more, or at once. If it is being started, that is given up.
    ///
    /// Its waiters are to be rejected before, or it is started again for them.
    pub(crate) fn on_unload(
        &mut self,
        model: ModelId,
        at_once: bool,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        self.model_mut(model).asked = None;
        self.leave(model, effects);
        if at_once && self.phase(model) == Phase::Ready {
            self.stop(model, effects);
        }
        self.decide(now, effects);
    }

    /// Lets a model stop once it is idle. If it is being started, that is given up.
    pub(super) fn leave(&mut self, model: ModelId, effects: &mut dyn Effects) {
        match self.phase(model) {
            Phase::Ready => {
                self.close(model, effects);
                self.model_mut(model).is_leaving = true;
            }
            Phase::Starting(_) => self.abort(model, effects),
            Phase::Stopped | Phase::Stopping(_) => {}
        }
    }

    /// The time for which [`next_tick`](Self::next_tick) asked has come, or a model has become idle.
    pub(crate) fn on_tick(&mut self, now: Nanos, effects: &mut dyn Effects) {
        self.decide(now, effects);
    }

    /// No model is started any more.
    pub(crate) fn on_shutdown(&mut self) {
        self.is_closed = true;
    }
}
