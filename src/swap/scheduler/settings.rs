//! The configuration of a scheduler, and what becomes of models when it changes.

use std::collections::HashMap;
use std::sync::Arc;

use super::plans::Plans;
use super::{Effects, Model, ModelId, Nanos, Phase, Plan, Scheduler, Swapper};

/// The configuration of a scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// A model yields to another one's waiter that has waited for so long.
    pub(crate) swap_after: Nanos,
    /// A model that was loaded serves for so long before its traffic yields. An idle one yields at once.
    pub(crate) min_loaded: Nanos,
    /// Whether a load goes on when its last waiter has left.
    pub(crate) finishes_abandoned: bool,
    /// How long a model that failed to start is not tried again, the first time; doubled each time in a row.
    pub(crate) backoff: Nanos,
    /// And at most.
    pub(crate) max_backoff: Nanos,
    /// The model that is loaded when no request has waited or run for `min_loaded`.
    pub(crate) default: Option<ModelId>,
    /// By model; `None` for one that is not configured any more.
    pub(crate) models: Vec<Option<ModelSettings>>,
}

/// The configuration of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ModelSettings {
    /// How long it may be idle; 0: for ever.
    pub(crate) ttl: Nanos,
    /// Whether it is never stopped, but when it is unloaded.
    pub(crate) is_pinned: bool,
    /// If its model has several instances, the same for all of them: none is stopped for another one.
    pub(crate) instance_of: Option<u32>,
}

impl Scheduler {
    /// The configuration is another one. Models that are not configured any more, and those of `changed`, are stopped once
    /// they are idle; then they may be started again, if they are configured. All others keep running.
    ///
    /// Models keep their numbers. The number of one that has left may be used for a new one once it has stopped.
    pub(crate) fn on_reconfigure(
        &mut self,
        settings: Settings,
        swapper: Arc<dyn Swapper>,
        changed: &[ModelId],
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        (self.settings, self.swapper) = (settings, swapper);
        self.plans = Plans::default();
        let models = self.models.len().max(self.settings.models.len());
        self.models.resize_with(models, Model::default);
        self.number_kinds();
        for id in self.all() {
            let is_gone = self.of(id).is_none();
            if is_gone {
                self.model_mut(id).asked = None;
            }
            if is_gone || changed.contains(&id) {
                let model = self.model_mut(id);
                (model.failures, model.not_before) = (0, 0);
                self.leave(id, effects);
            }
        }
        self.in_use_until = Some(now);
        self.decide(now, effects);
    }

    /// Learns the kinds of the models from the swapper.
    pub(super) fn number_kinds(&mut self) {
        let mut kinds = HashMap::new();
        for (nth, model) in self.models.iter_mut().enumerate() {
            let next = kinds.len();
            let kind = self.swapper.kind(ModelId(nth as u32));
            model.kind = *kinds.entry(kind).or_insert(next);
        }
    }

    /// The pools have other numbers. To be called before [`on_reconfigure`](Self::on_reconfigure).
    pub(crate) fn renumber_pools(&mut self, number: impl Fn(u32) -> u32) {
        for model in &mut self.models {
            model.pool = number(model.pool);
        }
    }

    /// The configuration of a model, if it has one.
    pub(super) fn of(&self, ModelId(model): ModelId) -> Option<ModelSettings> {
        self.settings.models.get(model as usize).copied().flatten()
    }

    /// Whether a plan would stop an instance of the model that it is to start.
    pub(super) fn stops_its_own(&self, target: ModelId, plan: &Plan) -> bool {
        let of = |id| self.of(id).and_then(|model| model.instance_of);
        let target = of(target);
        target.is_some() && plan.evict.iter().any(|&model| of(model) == target)
    }

    /// Whether a model is never stopped while it runs. If it is to be stopped all the same, it is no more.
    pub(super) fn is_pinned(&self, id: ModelId) -> bool {
        let model = self.model(id);
        let is_ending = model.is_leaving || matches!(model.phase, Phase::Stopping(_));
        !is_ending && self.of(id).is_some_and(|model| model.is_pinned)
    }
}
