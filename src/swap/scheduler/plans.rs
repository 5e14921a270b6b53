//! The plans for models that wait, until other models run.

use std::collections::HashMap;
use std::sync::Arc;

use super::marks::Marks;
use super::{ModelId, Nanos, Plan, Running, Swapper};

/// What the swapper said, for the models that run.
#[derive(Debug, Default)]
pub(super) struct Plans {
    running: Vec<Running>,
    /// By kind.
    known: Vec<Option<Arc<Plan>>>,
    /// By model: if it were started, no more would have to stop for these.
    harmless: HashMap<ModelId, Marks>,
}

impl Plans {
    /// These run from now on.
    pub(super) fn are_for(&mut self, running: Vec<Running>) {
        if self.running != running {
            self.known.clear();
            self.harmless.clear();
            self.running = running;
        }
    }

    /// The plan for a model that does not run.
    pub(super) fn plan(
        &mut self,
        target: ModelId,
        kind: usize,
        swapper: &dyn Swapper,
    ) -> Arc<Plan> {
        if self.known.len() <= kind {
            self.known.resize(kind + 1, None);
        }
        let plan = || Arc::new(swapper.plan(target, &self.running));
        Arc::clone(self.known[kind].get_or_insert_with(plan))
    }

    /// Whether more would have to stop for one of `others` if `target` were started.
    pub(super) fn hinders<'a>(
        &mut self,
        target: ModelId,
        plan: &Plan,
        others: impl Iterator<Item = (ModelId, &'a Plan)>,
        swapper: &dyn Swapper,
    ) -> bool {
        let harmless = self.harmless.entry(target).or_default();
        let mut others = others.filter(|(other, _)| !harmless.has(*other)).peekable();
        if others.peek().is_none() {
            return false;
        }
        let mut then = self.running.clone();
        then.retain(|one| !plan.evict.contains(&one.model));
        then.push(Running {
            pool: plan.pool,
            memory: plan.memory,
            last_used: Nanos::MAX,
            is_busy: true,
            ..Running::new(target)
        });
        let mut found = Vec::new();
        let hindered = others.find(|(other, now)| {
            let then = swapper.plan(*other, &then);
            let is_harmless = then.evict.iter().all(|model| now.evict.contains(model));
            found.extend(is_harmless.then_some(*other));
            !is_harmless
        });
        let is_hindered = hindered.is_some();
        found.into_iter().for_each(|other| harmless.set(other));
        is_hindered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap::swapper::{MemoryBudget, MemoryConfig};

    #[test]
    fn what_was_harmless_may_not_be_beside_other_models() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let config = MemoryConfig {
            pools: vec![("all".to_owned(), 2.0)],
            models: names.iter().map(|name| (name.clone(), 1.0)).collect(),
            evict_costs: Vec::new(),
        };
        let budget = MemoryBudget::new(&names, &config).unwrap();
        let [a, b, c] = [0, 1, 2].map(ModelId);
        let mut plans = Plans::default();
        let mut hinders = |running: Vec<Running>| {
            plans.are_for(running);
            let (first, second) = (plans.plan(a, 0, &budget), plans.plan(b, 1, &budget));
            plans.hinders(a, &first, [(b, &*second)].into_iter(), &budget)
        };
        assert!(!hinders(Vec::new()));
        let memory = budget.plan(c, &[]).memory;
        let third = Running {
            memory,
            ..Running::new(c)
        };
        assert!(hinders(vec![third]));
        assert!(!hinders(Vec::new()));
    }
}
