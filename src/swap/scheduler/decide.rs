//! The decision after each event: which instances start, and which stop for them.

use std::sync::Arc;

use super::slots::reopen;
use super::traffic::has_traffic;
use super::{
    Effects, InstanceHead, InstanceId, InstancePhase, Nanos, Plan, RunningInstance, Schedule,
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
    /// `true` for each instance that one of them has to stop.
    taken: Vec<bool>,
}

impl Blocking {
    /// Returns an empty list, with capacity for `count` instances to stop.
    pub(super) fn new(count: usize) -> Self {
        Self {
            targets: Vec::new(),
            taken: vec![false; count],
        }
    }

    fn push(&mut self, target: WaitingTarget) {
        mark(&target.plan, &mut self.taken);
        self.targets.push(target);
    }
}

/// An instance that is to be started, in the order of the starts: by the first waiter, and then by the longest time without
/// use.
type Wanted = (InstanceHead, Nanos, InstanceId);

impl Scheduler {
    /// Stops and starts what can be stopped and started now. The caller calls this when the time of
    /// [`next_tick`](Self::next_tick) has come, or an instance became idle.
    pub(crate) fn decide(&mut self, effects: &mut impl Effects) {
        self.next_tick = None;
        self.note_uses(effects);
        let mut closed = vec![false; effects.count()];
        self.stop_excess(effects);
        if !self.is_closed {
            self.set_running(effects);
            self.start_wanted(&mut closed, effects);
            self.return_to_default(effects);
        }
        for (id, is_closed) in ids(effects).zip(closed) {
            self.stop_or_open(id, is_closed, effects);
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

    /// Starts the wanted instances. Marks in `closed` the instances that serve requests and have to
    /// stop for one.
    fn start_wanted(&mut self, closed: &mut [bool], effects: &mut impl Effects) {
        let mut blocking = Blocking::new(effects.count());
        let mut wanted = self.wanted(None, effects).into_iter();
        while let Some(next) = wanted.next() {
            let (head, _, target) = next;
            match self.try_swap(target, head, &blocking, effects) {
                // The first of its class stands for the others, which have the same plan.
                Err(Blocked::Waits(target)) => {
                    blocking.push(target);
                    continue;
                }
                Err(Blocked::ByTraffic(target)) => {
                    mark(&target.plan, closed);
                    blocking.push(target);
                    continue;
                }
                Ok(()) => self.set_running(effects),
                Err(Blocked::ByItsOwn) => {}
                Err(Blocked::ForEver) => {
                    Self::back_off(target, effects);
                    effects.impossible(target);
                }
            }
            // The next one of its class may start, too. Ends because each round goes on behind the last one.
            wanted = self.wanted(Some(next), effects).into_iter();
        }
    }

    /// Returns the first instance of each class that is to start behind `last`, in order.
    fn wanted(&mut self, last: Option<Wanted>, effects: &impl Effects) -> Vec<Wanted> {
        let now = effects.now();
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
            if last.is_some_and(|last| one <= last) || instance.settings.is_none() {
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
        effects: &mut impl Effects,
    ) -> Result<(), Blocked> {
        let class = effects.schedule(target).class;
        let plan = self.plans.plan(target, class, &*self.swapper);
        let mut evicted = plan.evict.iter().map(|&id| effects.schedule(id));
        if evicted.any(Schedule::is_pinned) {
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
        if plan.evict.iter().any(|&id| blocking.taken[id.0 as usize]) {
            return Err(Blocked::Waits(waiting(plan, true)));
        }
        if is_changing(&plan, effects)
            || self.was_just_loaded(&plan, effects)
            || !self.yields_to(head, &plan, effects)
        {
            self.abort_preemptible(&plan, effects);
            return Err(Blocked::Waits(waiting(plan, false)));
        }
        // A target of its own level that is behind another one will have a new plan by then, and does not count.
        let counts = |other: &&WaitingTarget| !other.is_behind || other.level < head.level;
        let others = blocking.targets.iter().filter(counts);
        let others = others.map(|other| (other.id, &*other.plan));
        if (self.plans).hinders(target, &plan, others, &*self.swapper) {
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
        start(target, &plan, effects);
        Ok(())
    }

    fn set_running(&mut self, effects: &impl Effects) {
        let running = self.running(effects);
        self.plans.set_running(running);
    }

    /// Returns the instances that take memory, or are about to.
    pub(super) fn running(&self, effects: &impl Effects) -> Vec<RunningInstance> {
        let regards_use = self.swapper.regards_use();
        let running = ids(effects).filter_map(|id| {
            let instance = effects.schedule(id);
            let is_busy = match instance.phase {
                InstancePhase::Stopped => return None,
                InstancePhase::Ready => has_traffic(id, effects),
                InstancePhase::Starting => !instance.is_preemptible,
                InstancePhase::Stopping => false,
            };
            Some(RunningInstance {
                id,
                pool: instance.pool,
                memory: instance.memory,
                last_used: u64::from(regards_use) * instance.last_used,
                is_busy: regards_use && is_busy,
                is_stopping: instance.phase == InstancePhase::Stopping,
                is_pinned: instance.is_pinned(),
            })
        });
        running.collect()
    }
}

fn start(target: InstanceId, plan: &Plan, effects: &mut impl Effects) {
    for &id in &plan.evict {
        // ## Ready => Stopping
        effects.schedule_mut(id).phase = InstancePhase::Stopping;
    }
    // ## Stopped => Starting
    let started = effects.schedule_mut(target);
    started.phase = InstancePhase::Starting;
    (started.pool, started.memory) = (plan.pool, plan.memory);
    (started.has_evicted, started.is_aborted) = (!plan.evict.is_empty(), false);
    (started.is_leaving, started.is_preemptible) = (false, false);
    effects.swap(target, plan);
}

/// Marks the instances that a plan has to stop.
fn mark(plan: &Plan, marks: &mut [bool]) {
    for &InstanceId(id) in &plan.evict {
        marks[id as usize] = true;
    }
}

/// Returns `true` if a plan would stop an instance of its target's model.
fn stops_its_own(target: InstanceId, plan: &Plan, effects: &impl Effects) -> bool {
    let first = |id| effects.schedule(id).settings?.first_of_model;
    let target = first(target);
    target.is_some() && plan.evict.iter().any(|&id| first(id) == target)
}

/// Returns `true` if an instance of the plan is being started or stopped.
fn is_changing(plan: &Plan, effects: &impl Effects) -> bool {
    let mut phases = plan.evict.iter().map(|&id| effects.schedule(id).phase);
    phases.any(|phase| matches!(phase, InstancePhase::Starting | InstancePhase::Stopping))
}
