//! The decision after each event: which instances start, and which stop for them.

use std::sync::Arc;

use super::instance_set::InstanceSet;
use super::plans::Plans;
use super::settings::stops_its_own;
use super::slots::reopen;
use super::traffic::has_traffic;
use super::{
    Effects, InstanceHead, InstanceId, InstancePhase, Nanos, PendingSwap, Plan, RunningInstance,
    Scheduler, ids,
};

/// The reason why an instance can't be started now.
pub(super) enum Blocked {
    /// The instance waits for an event, or for the next tick.
    Waits(WaitingTarget),
    /// The instances in its way serve requests. They give no more slots until it was started.
    ByTraffic(WaitingTarget),
    /// Instances of its own model are in its way, and serve its requests.
    ByItsOwn,
    /// Pinned instances are in its way, so it can't start at all.
    ForEver,
}

/// An instance that waits to be started, with the plan by which it would be.
pub(super) struct WaitingTarget {
    id: InstanceId,
    level: u8,
    plan: Arc<Plan>,
    /// `true` if it waits for another target that waits.
    is_behind: bool,
}

/// The targets that wait before another one, which must not stand in their way.
pub(super) struct Blocking {
    targets: Vec<WaitingTarget>,
    /// The instances that one of them has to stop.
    taken: InstanceSet,
}

impl Blocking {
    /// Returns an empty list, with capacity for `count` instances to stop.
    pub(super) fn new(count: usize) -> Self {
        Self {
            targets: Vec::new(),
            taken: InstanceSet::new(count),
        }
    }

    fn push(&mut self, target: WaitingTarget) {
        for &id in &target.plan.evict {
            self.taken.insert(id);
        }
        self.targets.push(target);
    }
}

/// An instance that is to be started, in the order of the starts: by the first waiter, and then by the longest time without
/// use.
type Wanted = (InstanceHead, Nanos, InstanceId);

impl Scheduler {
    /// Stops and starts what can be stopped and started now.
    pub(super) fn decide(&mut self, now: Nanos, effects: &mut impl Effects) {
        self.next_tick = None;
        self.note_uses(effects);
        let mut closed = InstanceSet::new(effects.count());
        self.stop_excess(effects);
        if !self.is_closed {
            let mut plans = std::mem::take(&mut self.plans);
            plans.set_running(self.running(effects));
            self.start_wanted(&mut plans, &mut closed, now, effects);
            self.return_to_default(&mut plans, now, effects);
            self.plans = plans;
        }
        for id in ids(effects) {
            self.stop_or_open(id, closed.contains(id), now, effects);
        }
    }

    /// Records the instances that became idle since the last decision.
    fn note_uses(&mut self, effects: &mut impl Effects) {
        for id in ids(effects) {
            let Some(at) = effects.take_idled(id) else {
                continue;
            };
            self.in_use_until = self.in_use_until.max(Some(at));
            let used = effects.schedule_mut(id);
            used.last_used = used.last_used.max(at);
            (used.awaits_first_use, used.is_preemptible) = (false, false);
        }
    }

    /// Starts the wanted instances. Adds to `closed` the instances that serve requests and have to stop for one.
    fn start_wanted(
        &mut self,
        plans: &mut Plans,
        closed: &mut InstanceSet,
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        let mut blocking = Blocking::new(effects.count());
        let mut wanted = self.wanted(None, now, effects).into_iter();
        while let Some(next) = wanted.next() {
            let (head, _, target) = next;
            match self.try_swap(target, head, &blocking, plans, now, effects) {
                // The first of its class stands for the others, which have the same plan.
                Err(Blocked::Waits(target)) => {
                    blocking.push(target);
                    continue;
                }
                Err(Blocked::ByTraffic(target)) => {
                    for &id in &target.plan.evict {
                        closed.insert(id);
                    }
                    blocking.push(target);
                    continue;
                }
                Ok(()) => plans.set_running(self.running(effects)),
                Err(Blocked::ByItsOwn) => {}
                Err(Blocked::ForEver) => {
                    self.back_off(target, now, effects);
                    effects.impossible(target);
                }
            }
            // The next one of its class may start, too. Ends because each round goes on behind the last one.
            wanted = self.wanted(Some(next), now, effects).into_iter();
        }
    }

    /// Returns the first instance of each class that is to start behind `last`, in order.
    fn wanted(&mut self, last: Option<Wanted>, now: Nanos, effects: &impl Effects) -> Vec<Wanted> {
        let mut by_class: Vec<Option<Wanted>> = vec![None; effects.count()];
        for id in ids(effects) {
            let instance = effects.schedule(id);
            if instance.phase != InstancePhase::Stopped {
                continue;
            }
            let Some(head) = instance.reason() else {
                continue;
            };
            let one = (head, instance.last_used, id);
            if last.is_some_and(|last| one <= last) || effects.schedule(id).settings.is_none() {
                continue;
            }
            if instance.not_before > now {
                self.tick_at(instance.not_before);
                continue;
            }
            let first = &mut by_class[instance.class];
            *first = Some(first.map_or(one, |first| first.min(one)));
        }
        let mut wanted: Vec<Wanted> = by_class.into_iter().flatten().collect();
        wanted.sort_unstable();
        wanted
    }

    /// Starts an instance if nothing is in the way.
    pub(super) fn try_swap(
        &mut self,
        target: InstanceId,
        head: InstanceHead,
        blocking: &Blocking,
        plans: &mut Plans,
        now: Nanos,
        effects: &mut impl Effects,
    ) -> Result<(), Blocked> {
        let plan = plans.plan(target, effects.schedule(target).class, &*self.swapper);
        if plan
            .evict
            .iter()
            .any(|&id| effects.schedule(id).is_pinned())
        {
            return Err(Blocked::ForEver);
        }
        if stops_its_own(target, &plan, effects) {
            return Err(Blocked::ByItsOwn);
        }
        let waiting = |plan, is_behind| WaitingTarget {
            id: target,
            level: head.level,
            plan,
            is_behind,
        };
        // An instance that has to stop for another target is left to that one. This also saves the check by `hinders`.
        if plan.evict.iter().any(|&id| blocking.taken.contains(id)) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if is_changing(&plan, effects)
            || self.was_just_loaded(&plan, now, effects)
            || !self.yields_to(head, &plan, now, effects)
        {
            self.abort_preemptible(&plan, effects);
            return Err(Blocked::Waits(waiting(plan, false)));
        }
        // A target of its own level that is behind another one will have a new plan by then, and does not count.
        let counts = |other: &&WaitingTarget| !other.is_behind || other.level < head.level;
        let others = blocking.targets.iter().filter(counts);
        let others = others.map(|other| (other.id, &*other.plan));
        if plans.hinders(target, &plan, others, &*self.swapper) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if plan.evict.iter().any(|&id| effects.is_busy(id)) {
            return Err(Blocked::ByTraffic(waiting(plan, false)));
        }
        for (nth, &id) in plan.evict.iter().enumerate() {
            // A request may have got a slot since the check above.
            if !effects.close_if_idle(id) {
                reopen(&plan.evict[..nth], effects);
                return Err(Blocked::Waits(waiting(plan, false)));
            }
            effects.schedule_mut(id).is_open = false;
        }
        self.start(target, &plan, effects);
        Ok(())
    }

    /// Returns the instances that take memory, or are about to.
    pub(super) fn running(&self, effects: &impl Effects) -> Vec<RunningInstance> {
        let regards_use = self.swapper.regards_use();
        let running = ids(effects).filter_map(|id| {
            let instance = effects.schedule(id);
            let is_busy = match instance.phase {
                InstancePhase::Stopped => return None,
                InstancePhase::Ready => has_traffic(id, effects),
                InstancePhase::Starting(_) => !instance.is_preemptible,
                InstancePhase::Stopping(_) => false,
            };
            Some(RunningInstance {
                id,
                pool: instance.pool,
                memory: instance.memory,
                last_used: u64::from(regards_use) * instance.last_used,
                is_busy: regards_use && is_busy,
                is_stopping: matches!(instance.phase, InstancePhase::Stopping(_)),
                is_pinned: effects.schedule(id).is_pinned(),
            })
        });
        running.collect()
    }

    fn start(&mut self, target: InstanceId, plan: &Plan, effects: &mut impl Effects) {
        let generation = self.next_generation();
        for &id in &plan.evict {
            // ## Ready => Stopping
            effects.schedule_mut(id).phase = InstancePhase::Stopping(generation);
        }
        // ## Stopped => Starting
        let started = effects.schedule_mut(target);
        started.phase = InstancePhase::Starting(generation);
        (started.pool, started.memory) = (plan.pool, plan.memory);
        (started.is_leaving, started.is_preemptible) = (false, false);
        effects.swap(generation, target, plan);
        self.swaps.push(PendingSwap {
            generation,
            target,
            evict: plan.evict.clone(),
            is_aborted: false,
        });
    }
}

/// Returns `true` if an instance of the plan is being started or stopped.
fn is_changing(plan: &Plan, effects: &impl Effects) -> bool {
    let mut phases = plan.evict.iter().map(|&id| effects.schedule(id).phase);
    phases.any(|phase| {
        matches!(
            phase,
            InstancePhase::Starting(_) | InstancePhase::Stopping(_)
        )
    })
}
