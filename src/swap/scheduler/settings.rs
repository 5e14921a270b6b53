//! The configuration of a scheduler, and the effect of a change on its instances.

use std::collections::HashMap;
use std::sync::Arc;

use super::plans::Plans;
use super::{Effects, InstanceId, Nanos, Plan, Scheduler, Swapper, ids};

/// The configuration of a scheduler that holds for all instances.
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
    /// The upper bound of the doubled `backoff`.
    pub(crate) max_backoff: Nanos,
    /// The instance that is loaded when no request has waited or run for `min_loaded`.
    pub(crate) default: Option<InstanceId>,
}

/// The configuration of one instance, as far as the scheduler needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InstanceSettings {
    /// The time for which it may be idle; 0 is for ever.
    pub(crate) ttl: Nanos,
    /// `true` if it stops neither for another instance nor because it is idle.
    pub(crate) is_pinned: bool,
    /// The first instance of its model, if the model has several. None of them is stopped for another one.
    pub(crate) first_of_model: Option<InstanceId>,
}

impl Scheduler {
    /// Replaces the configuration, after each instance was [configured](super::Schedule::configure). Instances that have left
    /// it, and those of `changed`, are stopped once they are idle, and may start again if they are configured. All others
    /// keep running.
    ///
    /// Instances keep their numbers. A new instance may get the number of one that has left and stopped.
    pub(crate) fn on_reconfigure(
        &mut self,
        settings: SchedulerSettings,
        swapper: Arc<dyn Swapper>,
        changed: &[InstanceId],
        now: Nanos,
        effects: &mut impl Effects,
    ) {
        (self.settings, self.swapper) = (settings, swapper);
        self.plans = Plans::default();
        self.number_classes(effects);
        for id in ids(effects) {
            let is_gone = effects.schedule(id).settings.is_none();
            if is_gone {
                effects.schedule_mut(id).load_requested = None;
            }
            if is_gone || changed.contains(&id) {
                let instance = effects.schedule_mut(id);
                (instance.failures, instance.not_before) = (0, 0);
                self.leave(id, effects);
            }
        }
        self.in_use_until = Some(now);
        self.decide(now, effects);
    }

    /// Asks the swapper for the plan class of each instance.
    pub(super) fn number_classes(&self, effects: &mut impl Effects) {
        let mut classes = HashMap::new();
        for id in ids(effects) {
            let next = classes.len();
            let class = self.swapper.plan_class(id);
            effects.schedule_mut(id).class = *classes.entry(class).or_insert(next);
        }
    }
}

/// Gives the memory pools other numbers, before a call of [`Scheduler::on_reconfigure`].
pub(crate) fn renumber_pools(effects: &mut impl Effects, number: impl Fn(u32) -> u32) {
    for id in ids(effects) {
        let instance = effects.schedule_mut(id);
        instance.pool = number(instance.pool);
    }
}

/// Returns `true` if a plan would stop an instance of its target's model.
pub(super) fn stops_its_own(target: InstanceId, plan: &Plan, effects: &impl Effects) -> bool {
    let first = |id| {
        effects
            .schedule(id)
            .settings
            .and_then(|it| it.first_of_model)
    };
    let target = first(target);
    target.is_some() && plan.evict.iter().any(|&id| first(id) == target)
}
