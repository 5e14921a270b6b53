//! The configuration of a scheduler, and the effect of a change on its instances.

use std::collections::HashMap;
use std::sync::Arc;

use super::plans::Plans;
use super::{Effects, InstanceId, Nanos, Phase, Plan, Scheduled, Scheduler, Swapper};

/// The configuration of a scheduler.
#[derive(Debug, Clone)]
pub(crate) struct SchedulerSettings {
    /// The wait after which a request for another model makes an instance yield.
    pub(crate) swap_after: Nanos,
    /// The time for which an instance serves after its load, before its traffic yields. An idle one yields at once.
    pub(crate) min_loaded: Nanos,
    /// `true` if a load goes on when its last waiter has left.
    pub(crate) finishes_abandoned: bool,
    /// The time for which an instance is not tried again after a failed start. It doubles with each failure in a row.
    pub(crate) backoff: Nanos,
    /// The upper bound of `backoff`.
    pub(crate) max_backoff: Nanos,
    /// The instance that is loaded when no request has waited or run for `min_loaded`.
    pub(crate) default: Option<InstanceId>,
    /// By instance; `None` for one that has left the configuration.
    pub(crate) instances: Vec<Option<InstanceSettings>>,
}

/// The configuration of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InstanceSettings {
    /// The time for which it may be idle; 0 is for ever.
    pub(crate) ttl: Nanos,
    /// `true` if only an unload stops it.
    pub(crate) is_pinned: bool,
    /// The first instance of its model, if the model has several. None of them is stopped for another one.
    pub(crate) first_of_model: Option<InstanceId>,
}

impl Scheduler {
    /// Replaces the configuration. Instances that have left it, and those of `changed`, are stopped once they are idle, and
    /// may start again if they are configured. All others keep running.
    ///
    /// Instances keep their numbers. A new instance may get the number of one that has left and stopped.
    pub(crate) fn on_reconfigure(
        &mut self,
        settings: SchedulerSettings,
        swapper: Arc<dyn Swapper>,
        changed: &[InstanceId],
        now: Nanos,
        effects: &mut dyn Effects,
    ) {
        (self.settings, self.swapper) = (settings, swapper);
        self.plans = Plans::default();
        let count = self.instances.len().max(self.settings.instances.len());
        self.instances.resize_with(count, Scheduled::default);
        self.number_classes();
        for id in self.ids() {
            let is_gone = self.settings_of(id).is_none();
            if is_gone {
                self.get_mut(id).load_requested = None;
            }
            if is_gone || changed.contains(&id) {
                let instance = self.get_mut(id);
                (instance.failures, instance.not_before) = (0, 0);
                self.leave(id, effects);
            }
        }
        self.in_use_until = Some(now);
        self.decide(now, effects);
    }

    /// Asks the swapper for the plan class of each instance.
    pub(super) fn number_classes(&mut self) {
        let mut classes = HashMap::new();
        for (id, instance) in (0..).map(InstanceId).zip(&mut self.instances) {
            let next = classes.len();
            let class = self.swapper.plan_class(id);
            instance.class = *classes.entry(class).or_insert(next);
        }
    }

    /// Gives the memory pools other numbers. To be called before [`on_reconfigure`](Self::on_reconfigure).
    pub(crate) fn renumber_pools(&mut self, number: impl Fn(u32) -> u32) {
        for instance in &mut self.instances {
            instance.pool = number(instance.pool);
        }
    }

    /// Returns the configuration of an instance, if it has one.
    pub(super) fn settings_of(&self, InstanceId(id): InstanceId) -> Option<InstanceSettings> {
        self.settings.instances.get(id as usize).copied().flatten()
    }

    /// Returns `true` if a plan would stop an instance of its target's model.
    pub(super) fn stops_its_own(&self, target: InstanceId, plan: &Plan) -> bool {
        let first = |id| self.settings_of(id).and_then(|it| it.first_of_model);
        let target = first(target);
        target.is_some() && plan.evict.iter().any(|&id| first(id) == target)
    }

    /// Returns `true` if an instance is never stopped while it runs. One that is to stop all the same is not pinned any
    /// more.
    pub(super) fn is_pinned(&self, id: InstanceId) -> bool {
        let instance = self.get(id);
        let is_ending = instance.is_leaving || matches!(instance.phase, Phase::Stopping(_));
        !is_ending && self.settings_of(id).is_some_and(|it| it.is_pinned)
    }
}
