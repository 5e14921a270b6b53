//! A cache of the swapper's plans, until other instances run.

use std::collections::HashMap;
use std::sync::Arc;

use super::{InstanceId, Nanos, Plan, RunningInstance, Swapper};

/// The plans of the swapper for the instances that run.
///
/// Without this cache and the classes, a decision with 50 models takes 7 times as long if nothing changes (`benches/swap`).
#[derive(Debug, Default)]
pub(super) struct Plans {
    running: Vec<RunningInstance>,
    /// The plan of each class, once it was asked for.
    known: Vec<Option<Arc<Plan>>>,
    /// The targets that each instance does not [hinder](Self::hinders).
    harmless: HashMap<InstanceId, Vec<InstanceId>>,
}

impl Plans {
    /// Sets the instances that run, and forgets the plans if they have changed.
    pub(super) fn set_running(&mut self, running: Vec<RunningInstance>) {
        if self.running != running {
            self.known.clear();
            self.harmless.clear();
            self.running = running;
        }
    }

    /// Returns the plan for an instance of this class that does not run.
    pub(super) fn plan(
        &mut self,
        target: InstanceId,
        class: usize,
        swapper: &dyn Swapper,
    ) -> Arc<Plan> {
        if self.known.len() <= class {
            self.known.resize(class + 1, None);
        }
        let plan = || Arc::new(swapper.plan(target, &self.running));
        Arc::clone(self.known[class].get_or_insert_with(plan))
    }

    /// Returns `true` if more instances would have to stop for one of `others` once `target` was started.
    pub(super) fn hinders<'a>(
        &mut self,
        target: InstanceId,
        plan: &Plan,
        others: impl Iterator<Item = (InstanceId, &'a Plan)>,
        swapper: &dyn Swapper,
    ) -> bool {
        let harmless = self.harmless.entry(target).or_default();
        let mut others = others
            .filter(|(other, _)| !harmless.contains(other))
            .peekable();
        if others.peek().is_none() {
            return false;
        }
        let mut then = self.running.clone();
        then.retain(|one| !plan.evict.contains(&one.id));
        then.push(RunningInstance {
            pool: plan.pool,
            memory: plan.memory,
            last_used: Nanos::MAX,
            is_busy: true,
            ..RunningInstance::new(target)
        });
        let mut found = Vec::new();
        let hindered = others.find(|(other, now)| {
            let then = swapper.plan(*other, &then);
            let is_harmless = then.evict.iter().all(|id| now.evict.contains(id));
            found.extend(is_harmless.then_some(*other));
            !is_harmless
        });
        let is_hindered = hindered.is_some();
        harmless.extend(found);
        is_hindered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap::swapper::{MemoryBudget, MemoryNeed};

    #[test]
    fn a_harmless_instance_may_hinder_beside_others() {
        let needs = ["a", "b", "c"].map(|name| MemoryNeed::new(name, 1.0));
        let budget = MemoryBudget::new(&[("all".to_owned(), 2.0)], &needs).unwrap();
        let [a, b, c] = [0, 1, 2].map(InstanceId);
        let mut plans = Plans::default();
        let mut hinders = |running: Vec<RunningInstance>| {
            plans.set_running(running);
            let (first, second) = (plans.plan(a, 0, &budget), plans.plan(b, 1, &budget));
            plans.hinders(a, &first, [(b, &*second)].into_iter(), &budget)
        };
        assert!(!hinders(Vec::new()));
        let memory = budget.plan(c, &[]).memory;
        let third = RunningInstance {
            memory,
            ..RunningInstance::new(c)
        };
        assert!(hinders(vec![third]));
        assert!(!hinders(Vec::new()));
    }
}
