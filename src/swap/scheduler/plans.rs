//! The plans for models that wait, until other models run.

use super::{ModelId, Plan, Running, Swapper};

/// What the swapper said, for the models that run.
#[derive(Debug, Default)]
pub(super) struct Plans {
    running: Vec<Running>,
    /// By model.
    known: Vec<Option<Plan>>,
}

impl Plans {
    /// These run from now on.
    pub(super) fn are_for(&mut self, running: Vec<Running>) {
        if self.running != running {
            self.known.clear();
            self.running = running;
        }
    }

    pub(super) fn running(&self) -> &[Running] {
        &self.running
    }

    /// Takes the plan for a model.
    pub(super) fn take(&mut self, ModelId(model): ModelId, swapper: &dyn Swapper) -> Plan {
        let known = self.known.get_mut(model as usize).and_then(Option::take);
        known.unwrap_or_else(|| swapper.plan(ModelId(model), &self.running))
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
