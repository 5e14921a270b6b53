//! The first waiter of each instance, which decides when the instance starts.

use std::collections::HashMap;

use super::SwapDriver;
use crate::admit::{PoolId, Priority};
use crate::route::RouteHandle;
use crate::swap::scheduler::{InstanceHead, InstancePhase};
use crate::swap::swapper::InstanceId;

impl SwapDriver {
    /// Tells the scheduler of the first waiters that have changed since the last look.
    pub(super) fn look_at_waiters(&mut self, router: &RouteHandle) {
        let heads = self.heads(router);
        for (id, mut head) in (0..).map(InstanceId).zip(heads) {
            let schedule = &self.instances[id].schedule;
            // The wait for an instance that does not run counts from its first waiter's arrival, whichever goes first now.
            if let (Some(head), Some(before)) = (&mut head, schedule.head)
                && schedule.phase != InstancePhase::Ready
            {
                head.arrival = head.arrival.min(before.arrival);
            }
            if head != schedule.head {
                self.scheduler.on_head(id, head, &mut self.instances);
            }
        }
        self.look_at_overtakes();
    }

    /// Tells the scheduler which instances served a request that overtook a more urgent one.
    fn look_at_overtakes(&mut self) {
        let mut most_urgent: Option<u8> = None;
        for id in self.instances.ids() {
            let instance = &self.instances[id];
            let is_ready = instance.schedule.phase == InstancePhase::Ready;
            if let Some(head) = instance.schedule.head.filter(|_| !is_ready) {
                most_urgent = Some(most_urgent.map_or(head.level, |level| level.min(head.level)));
            }
            if let Some((level, at)) = instance.on_demand.overtake() {
                let (level, arrival) = (level.0, self.instances.nanos(at));
                let overtake = InstanceHead { level, arrival };
                self.scheduler
                    .on_overtake(id, overtake, &mut self.instances);
            }
        }
        self.signal.await_overtakes(most_urgent.map(Priority));
    }

    /// Returns the first waiter of each instance: the most urgent one of the lanes that it can serve.
    fn heads(&self, router: &RouteHandle) -> Vec<Option<InstanceHead>> {
        // The pool of an instance that has left may be another one's by now.
        let configured = self.instances.iter().filter(|(_, it)| it.is_configured);
        let by_pool: HashMap<PoolId, InstanceId> = configured
            .map(|(id, instance)| (instance.endpoint.pool(), id))
            .collect();
        let mut heads = vec![None; self.instances.ids().count()];
        for lane_head in router.gate().lane_heads() {
            let head = InstanceHead {
                level: lane_head.level.0,
                arrival: self.instances.nanos(lane_head.arrival),
            };
            let pools = router.gate().capacity().pools_in_order(&lane_head.lane);
            let instances = pools.iter().filter_map(|pool| by_pool.get(pool).copied());
            for InstanceId(id) in self.wanted(instances) {
                let known: &mut Option<InstanceHead> = &mut heads[id as usize];
                *known = Some(known.map_or(head, |known| known.min(head)));
            }
        }
        heads
    }

    /// Returns the instances that the head of a lane waits for, out of those that can serve the lane: all that run, and one
    /// that does not.
    fn wanted(&self, instances: impl Iterator<Item = InstanceId>) -> Vec<InstanceId> {
        let phase = |id: InstanceId| self.instances[id].schedule.phase;
        let (mut wanted, others): (Vec<_>, Vec<_>) =
            instances.partition(|&id| phase(id) == InstancePhase::Ready);
        // An instance that is being started is waited for before another one is started.
        let is_starting = |&id: &InstanceId| phase(id) == InstancePhase::Starting;
        let next = others.iter().copied().find(is_starting);
        wanted.extend(next.or_else(|| others.first().copied()));
        wanted
    }
}
