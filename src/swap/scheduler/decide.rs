//! The decision after each event: which swaps begin.

use std::sync::Arc;

use super::marks::Marks;
use super::plans::Plans;
use super::{Effects, Head, ModelId, Nanos, Phase, Plan, Running, Scheduler, Swap};

/// Why a model can't be started now.
pub(super) enum Blocked {
    /// Until an event, or the next tick.
    Waits(Waiting),
    /// What it needs serves requests, and gives no more slots until it was started.
    ByTraffic(Waiting),
    /// By instances of the same model, which serve its requests.
    ByItsOwn,
    /// By models that are never stopped.
    ForEver,
}

/// A model that waits to be started.
pub(super) struct Waiting {
    target: ModelId,
    level: u8,
    plan: Arc<Plan>,
    /// Whether it waits for another one that waits.
    is_behind: bool,
}

/// The models that wait before the one that is looked at, which must not make it harder for them.
pub(super) struct Before {
    waiting: Vec<Waiting>,
    /// The models that one of them has to stop.
    taken: Marks,
}

impl Before {
    /// None waits, of so many models.
    pub(super) fn new(models: usize) -> Self {
        Self {
            waiting: Vec::new(),
            taken: Marks::new(models),
        }
    }

    fn push(&mut self, waiting: Waiting) {
        for &model in &waiting.plan.evict {
            self.taken.set(model);
        }
        self.waiting.push(waiting);
    }
}

/// A model that is to be started. A smaller one goes first: that with the first waiter; of equal ones, that which was
/// not used for longer.
type Wanted = (Head, Nanos, ModelId);

impl Scheduler {
    /// Does what can be done now.
    pub(super) fn decide(&mut self, now: Nanos, effects: &mut dyn Effects) {
        self.next_tick = None;
        self.note_uses(effects);
        let mut closed = Marks::new(self.models.len());
        self.stop_excess(effects);
        if !self.is_closed {
            let mut plans = std::mem::take(&mut self.plans);
            plans.are_for(self.running(effects));
            self.start_wanted(&mut plans, &mut closed, now, effects);
            self.return_to_default(&mut plans, now, effects);
            self.plans = plans;
        }
        for model in self.all() {
            self.stop_or_open(model, closed.has(model), now, effects);
        }
    }

    /// Takes note of the models that were used and have become idle since the last decision.
    fn note_uses(&mut self, effects: &mut dyn Effects) {
        for id in self.all() {
            let Some(at) = effects.take_idled(id) else {
                continue;
            };
            self.in_use_until = self.in_use_until.max(Some(at));
            let used = self.model_mut(id);
            used.last_used = used.last_used.max(at);
            (used.owes_service, used.is_spare) = (false, false);
        }
    }

    /// Starts models that are waited for. `closed`: those that serve requests and have to stop for one.
    fn start_wanted(
        &mut self,
        plans: &mut Plans,
        closed: &mut Marks,
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        let mut before = Before::new(self.models.len());
        let mut wanted = self.wanted(None, now).into_iter();
        while let Some(next) = wanted.next() {
            let (head, _, target) = next;
            match self.try_swap(target, head, &before, plans, now, effects) {
                // What is in the way of the first of its kind is in the way of the others.
                Err(Blocked::Waits(waiting)) => {
                    before.push(waiting);
                    continue;
                }
                Err(Blocked::ByTraffic(waiting)) => {
                    for &model in &waiting.plan.evict {
                        closed.set(model);
                    }
                    before.push(waiting);
                    continue;
                }
                Ok(()) => plans.are_for(self.running(effects)),
                Err(Blocked::ByItsOwn) => {}
                Err(Blocked::ForEver) => {
                    self.back_off(target, now);
                    effects.impossible(target);
                }
            }
            // The next of its kind, too. Ends because it is behind.
            wanted = self.wanted(Some(next), now).into_iter();
        }
    }

    /// The models that are to be started behind `last`, the first of each kind, in order.
    fn wanted(&mut self, last: Option<Wanted>, now: Nanos) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = Vec::with_capacity(self.models.len());
        // By kind: its place in `wanted`.
        let mut places: Vec<Option<usize>> = vec![None; self.models.len()];
        for id in self.all() {
            let model = self.model(id);
            if model.phase != Phase::Stopped {
                continue;
            }
            let Some(head) = model.head() else { continue };
            let one = (head, model.last_used, id);
            if last.is_some_and(|last| one <= last) || self.of(id).is_none() {
                continue;
            }
            if model.not_before > now {
                self.tick_at(model.not_before);
                continue;
            }
            match &mut places[model.kind] {
                Some(place) => wanted[*place] = wanted[*place].min(one),
                place => {
                    *place = Some(wanted.len());
                    wanted.push(one);
                }
            }
        }
        wanted.sort_unstable();
        wanted
    }

    /// Starts a model if nothing is in the way.
    pub(super) fn try_swap(
        &mut self,
        target: ModelId,
        head: Head,
        before: &Before,
        plans: &mut Plans,
        now: Nanos,
        effects: &mut dyn Effects,
    ) -> Result<(), Blocked> {
        let plan = plans.plan(target, self.model(target).kind, &*self.swapper);
        if plan.evict.iter().any(|&model| self.is_pinned(model)) {
            return Err(Blocked::ForEver);
        }
        if self.stops_its_own(target, &plan) {
            return Err(Blocked::ByItsOwn);
        }
        let waiting = |plan, is_behind| Waiting {
            target,
            level: head.level,
            plan,
            is_behind,
        };
        // What another one has to stop is left to it. That spares the plans for what would be.
        if plan.evict.iter().any(|&model| before.taken.has(model)) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if self.is_changing(&plan)
            || self.was_just_loaded(&plan, now, effects)
            || !self.goes_before_traffic(head, &plan, now, effects)
        {
            self.abort_spare(&plan, effects);
            return Err(Blocked::Waits(waiting(plan, false)));
        }
        // Of its own level only those count that wait for no other: for the rest there will be other plans by then.
        let counts = |other: &&Waiting| !other.is_behind || other.level < head.level;
        let others = before.waiting.iter().filter(counts);
        let others = others.map(|other| (other.target, &*other.plan));
        if plans.hinders(target, &plan, others, &*self.swapper) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if plan.evict.iter().any(|&model| effects.is_busy(model)) {
            return Err(Blocked::ByTraffic(waiting(plan, false)));
        }
        for (nth, &model) in plan.evict.iter().enumerate() {
            // A request may have got a slot just now.
            if !effects.close_if_idle(model) {
                self.reopen(&plan.evict[..nth], effects);
                return Err(Blocked::Waits(waiting(plan, false)));
            }
            self.model_mut(model).is_open = false;
        }
        self.start(target, &plan, effects);
        Ok(())
    }

    /// Whether some of the models to stop are being started or stopped.
    fn is_changing(&self, plan: &Plan) -> bool {
        let mut phases = plan.evict.iter().map(|&model| self.phase(model));
        phases.any(|phase| matches!(phase, Phase::Starting(_) | Phase::Stopping(_)))
    }

    /// All models that take memory, or are to.
    pub(super) fn running(&self, effects: &dyn Effects) -> Vec<Running> {
        let regards_use = self.swapper.regards_use();
        let all = self.all().filter_map(|id| {
            let model = self.model(id);
            let is_busy = match model.phase {
                Phase::Stopped => return None,
                Phase::Ready => self.has_traffic(id, effects),
                Phase::Starting(_) => !model.is_spare,
                Phase::Stopping(_) => false,
            };
            Some(Running {
                model: id,
                pool: model.pool,
                memory: model.memory,
                last_used: u64::from(regards_use) * model.last_used,
                is_busy: regards_use && is_busy,
                is_stopping: matches!(model.phase, Phase::Stopping(_)),
                is_pinned: self.is_pinned(id),
            })
        });
        all.collect()
    }

    fn start(&mut self, target: ModelId, plan: &Plan, effects: &mut dyn Effects) {
        let generation = self.next_generation();
        for &model in &plan.evict {
            self.model_mut(model).phase = Phase::Stopping(generation);
        }
        let started = self.model_mut(target);
        started.phase = Phase::Starting(generation);
        (started.pool, started.memory) = (plan.pool, plan.memory);
        (started.is_leaving, started.is_spare) = (false, false);
        effects.swap(generation, target, plan);
        self.swaps.push(Swap {
            generation,
            target,
            evict: plan.evict.clone(),
            is_aborted: false,
        });
    }
}
