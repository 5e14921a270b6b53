//! The plans for models that wait, until other models run.

use std::collections::HashSet;
use std::sync::Arc;

use super::{ModelId, Nanos, Plan, Running, Swapper};

/// What the swapper said, for the models that run.
#[derive(Debug, Default)]
pub(super) struct Plans {
    running: Vec<Running>,
    /// By kind of model.
    known: Vec<Option<Arc<Plan>>>,
    /// Pairs of models: if the first were started, no more would have to stop for the second.
    harmless: HashSet<(ModelId, ModelId)>,
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
    pub(super) fn plan(&mut self, target: ModelId, swapper: &dyn Swapper) -> Arc<Plan> {
        let kind = swapper.kind(target) as usize;
        if self.known.len() <= kind {
            self.known.resize(kind + 1, None);
        }
        let plan = || Arc::new(swapper.plan(target, &self.running));
        Arc::clone(self.known[kind].get_or_insert_with(plan))
    }

    /// Whether more would have to stop for `other` if `target` were started.
    pub(super) fn hinders(
        &mut self,
        (target, plan): (ModelId, &Plan),
        (other, others): (ModelId, &Plan),
        swapper: &dyn Swapper,
    ) -> bool {
        if self.harmless.contains(&(target, other)) {
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
        let then = swapper.plan(other, &then);
        let is_harmless = then.evict.iter().all(|model| others.evict.contains(model));
        if is_harmless {
            self.harmless.insert((target, other));
        }
        !is_harmless
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
            let (first, second) = (plans.plan(a, &budget), plans.plan(b, &budget));
            plans.hinders((a, &first), (b, &second), &budget)
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
