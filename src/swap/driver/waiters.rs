//! Which instance each first waiter is for.

use std::collections::HashMap;

use super::Driver;
use crate::admit::{PoolId, Priority};
use crate::route::RouteHandle;
use crate::swap::scheduler::{Head, Nanos, Phase};
use crate::swap::swapper::ModelId;

impl Driver {
    /// Tells the scheduler of first waiters that are not those of the last look.
    pub(super) fn look_at_waiters(&mut self, router: &RouteHandle, now: Nanos) {
        let heads = self.heads(router);
        for (nth, mut head) in heads.into_iter().enumerate() {
            let model = ModelId(nth as u32);
            let unit = &mut self.units.units[nth];
            // What waits for a model that does not run has waited since the first of it came, whichever of it goes first.
            if let (Some(head), Some(before)) = (&mut head, unit.head)
                && self.scheduler.phase(model) != Phase::Ready
            {
                head.arrival = head.arrival.min(before.arrival);
            }
            if head != std::mem::replace(&mut unit.head, head) {
                self.scheduler.on_waiter(model, head, now, &mut self.units);
            }
        }
        self.look_at_passing(router, now);
    }

    /// Tells the scheduler which models' requests have passed more urgent ones that wait for models that do not run.
    fn look_at_passing(&mut self, router: &RouteHandle, now: Nanos) {
        let mut most_urgent: Option<u8> = None;
        for nth in 0..self.units.units.len() {
            let (id, unit) = (ModelId(nth as u32), &self.units.units[nth]);
            if let Some(head) = unit
                .head
                .filter(|_| self.scheduler.phase(id) != Phase::Ready)
            {
                most_urgent = Some(most_urgent.map_or(head.level, |level| level.min(head.level)));
            }
            if let Some((level, at)) = unit.on_demand.passed() {
                let (level, arrival) = (level.0, self.nanos(at));
                let passed = Head { level, arrival };
                self.scheduler.on_passed(id, passed, now, &mut self.units);
            }
        }
        router
            .gate()
            .capacity()
            .await_passing(most_urgent.map(Priority));
    }

    /// The first waiter of each instance: of the lanes that it can serve, the one that goes first.
    fn heads(&self, router: &RouteHandle) -> Vec<Option<Head>> {
        let units = self.units.units.iter().enumerate();
        // The pool of one that has left may be another one's by now.
        let by_pool: HashMap<PoolId, usize> = units
            .filter(|(_, unit)| unit.is_configured)
            .map(|(nth, unit)| (unit.endpoint.pool(), nth))
            .collect();
        let mut heads = vec![None; self.units.units.len()];
        for first in router.gate().first_waiters() {
            let head = Head {
                level: first.level.0,
                arrival: self.nanos(first.arrival),
            };
            let pools = router.gate().capacity().pools_in_order(&first.lane);
            let instances = pools.iter().filter_map(|pool| by_pool.get(pool).copied());
            for nth in self.wanted(instances) {
                let known: &mut Option<Head> = &mut heads[nth];
                *known = Some(known.map_or(head, |known| known.min(head)));
            }
        }
        heads
    }

    /// Of the instances that could serve a lane, those that its first waiter is for: all that run, and one that does not.
    fn wanted(&self, instances: impl Iterator<Item = usize>) -> Vec<usize> {
        let phase = |nth: usize| self.scheduler.phase(ModelId(nth as u32));
        let (mut wanted, others): (Vec<_>, Vec<_>) =
            instances.partition(|&nth| phase(nth) == Phase::Ready);
        let is_starting = |nth: &usize| matches!(phase(*nth), Phase::Starting(_));
        // One that is being started is waited for, before another one is.
        let next = others.iter().copied().find(is_starting);
        wanted.extend(next.or_else(|| others.first().copied()));
        wanted
    }
}
