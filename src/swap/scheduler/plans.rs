//! The plans for models that wait, until other models run.

use std::collections::HashSet;

use super::{ModelId, Nanos, Plan, Running, Swapper};

/// What the swapper said, for the models that run.
#[derive(Debug, Default)]
pub(super) struct Plans {
    running: Vec<Running>,
    /// By model.
    known: Vec<Option<Plan>>,
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

    /// Takes the plan for a model.
    pub(super) fn take(&mut self, ModelId(model): ModelId, swapper: &dyn Swapper) -> Plan {
        let known = self.known.get_mut(model as usize).and_then(Option::take);
        known.unwrap_or_else(|| swapper.plan(ModelId(model), &self.running))
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

    /// Puts the plan for a model back.
    pub(super) fn keep(&mut self, ModelId(model): ModelId, plan: Plan) {
        let model = model as usize;
        if self.known.len() <= model {
            self.known.resize(model + 1, None);
        }
        self.known[model] = Some(plan);
    }
}
