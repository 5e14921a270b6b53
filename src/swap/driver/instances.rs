//! All instances, and the effects of the scheduler's decisions on them: endpoints open and close at once, everything else
//! is a task.

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::instance::Instance;
use super::tasks::{Report, StopTask, SwapTask};
use crate::admit::nanos::span;
use crate::clock::now;
use crate::endpoints::on_demand::EndpointEnd;
use crate::swap::scheduler::{Effects, Nanos, Schedule};
use crate::swap::status::StatusTable;
use crate::swap::swapper::{InstanceId, Plan};
use crate::swap::{Cleanup, Launch, Launcher, ModelState};

/// All instances by number, with what starts and stops them.
pub(super) struct Instances {
    all: Vec<Instance>,
    pub(super) status: Arc<StatusTable>,
    launcher: Arc<dyn Launcher>,
    pub(super) reports: UnboundedSender<Report>,
    /// The names of the memory pools, if there are several.
    pub(super) pools: Vec<Arc<str>>,
    pub(super) start_timeout: Duration,
    /// The instant from which the scheduler's times are counted.
    epoch: Instant,
    /// The time of the current event.
    pub(super) now: Nanos,
    /// The number of servers that slept and are being ended.
    pub(super) ending_sleeps: usize,
    /// `true` while the gate is still to be told that an endpoint was opened or closed, or is being loaded.
    pub(super) has_changed: bool,
    /// Instances that can't be started, and whose waiters are still to be told.
    pub(super) impossible: Vec<InstanceId>,
}

impl Index<InstanceId> for Instances {
    type Output = Instance;

    fn index(&self, InstanceId(id): InstanceId) -> &Instance {
        &self.all[id as usize]
    }
}

impl IndexMut<InstanceId> for Instances {
    fn index_mut(&mut self, InstanceId(id): InstanceId) -> &mut Instance {
        &mut self.all[id as usize]
    }
}

impl Instances {
    pub(super) fn new(
        status: Arc<StatusTable>,
        launcher: Arc<dyn Launcher>,
        reports: UnboundedSender<Report>,
    ) -> Self {
        Self {
            all: Vec::new(),
            status,
            launcher,
            reports,
            pools: Vec::new(),
            start_timeout: Duration::ZERO,
            epoch: now(),
            now: 0,
            ending_sleeps: 0,
            has_changed: false,
            impossible: Vec::new(),
        }
    }

    /// Returns the number of every instance.
    pub(super) fn ids(&self) -> impl Iterator<Item = InstanceId> + use<> {
        (0..self.all.len() as u32).map(InstanceId)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        (0..).map(InstanceId).zip(&self.all)
    }

    /// Adds an instance, and returns its number.
    pub(super) fn push(&mut self, instance: Instance) -> InstanceId {
        self.all.push(instance);
        InstanceId(self.all.len() as u32 - 1)
    }

    /// Sets the time of the current event, and returns it.
    pub(super) fn set_now(&mut self) -> Instant {
        let at = now();
        self.now = self.nanos(at);
        at
    }

    /// Returns an instant as the scheduler counts it.
    pub(super) fn nanos(&self, instant: Instant) -> Nanos {
        span(instant.saturating_duration_since(self.epoch))
    }

    /// Returns `true` if an instance became idle since the scheduler last asked.
    pub(super) fn has_idled(&self) -> bool {
        self.all.iter().any(Instance::has_idled)
    }

    /// Ends a server that sleeps, and keeps one that runs from sleeping.
    pub(super) fn end_sleep(&mut self, id: InstanceId) {
        self[id].may_sleep = false;
        if !std::mem::take(&mut self[id].is_asleep) {
            return;
        }
        let stop = self.stop_task(id);
        let reports = self.reports.clone();
        self.ending_sleeps += 1;
        let ends = tokio::spawn(async move {
            _ = stop.run().await;
            _ = reports.send(Report::SleepEnded);
        });
        self[id].sleep_ends = Some(ends);
        // At once, because a sleeping server has freed its memory before.
        self[id].status.set_state(ModelState::Unloaded, None);
    }

    /// Returns the task that stops an instance, and reports the instance as unloading.
    fn stop_task(&mut self, id: InstanceId) -> StopTask {
        let instance = &mut self[id];
        instance.status.set_state(ModelState::Unloading, None);
        instance.report_activity(); // the instance may have become idle since the last report
        instance.start += 1; // an end from now on is no crash
        let closes_first = instance.model.proxy.is_some() && instance.server.is_some();
        if closes_first {
            instance.on_demand.close_idle_connections();
        }
        // A server that has crashed can't be asked to stop.
        let is_killed = std::mem::take(&mut instance.is_killed);
        let has_crashed = instance.on_demand.end() == Some(EndpointEnd::Crashed);
        instance.stopping = CancellationToken::new();
        if is_killed || has_crashed {
            instance.stopping.cancel();
        }
        StopTask {
            id,
            server: instance.server.take(),
            killed: instance.stopping.clone(),
            may_sleep: instance.may_sleep,
            closes_first,
        }
    }
}

impl Effects for Instances {
    fn now(&self) -> Nanos {
        self.now
    }

    fn count(&self) -> usize {
        self.all.len()
    }

    fn schedule(&self, id: InstanceId) -> &Schedule {
        &self[id].schedule
    }

    fn schedule_mut(&mut self, id: InstanceId) -> &mut Schedule {
        &mut self[id].schedule
    }

    fn is_busy(&self, id: InstanceId) -> bool {
        self[id].is_busy()
    }

    fn take_idled(&mut self, id: InstanceId) -> Option<Nanos> {
        let (times, at) = self[id].on_demand.idled();
        (times != std::mem::replace(&mut self[id].idled, times)).then(|| self.nanos(at))
    }

    fn open(&mut self, id: InstanceId) {
        self[id].on_demand.open();
        self.has_changed = true;
    }

    fn close(&mut self, id: InstanceId) {
        self[id].on_demand.close();
        self.has_changed = true;
    }

    fn close_if_idle(&mut self, id: InstanceId) -> bool {
        let is_closed = self[id].on_demand.close_if_idle().result;
        self.has_changed |= is_closed;
        is_closed
    }

    fn swap(&mut self, target: InstanceId, plan: &Plan) {
        let evict = plan.evict.iter().map(|&id| self.stop_task(id)).collect();
        let name = self.pools.get(plan.pool as usize);
        let pool = name.map(|name| (plan.pool, Arc::clone(name)));
        if std::mem::replace(&mut self[target].pool, pool.clone()) != pool {
            self.end_sleep(target); // the server would wake in its old pool
        }
        let stopped: Vec<&str> = plan.evict.iter().map(|&id| &*self[id].name).collect();
        tracing::info!(
            model = &*self[target].name,
            ?stopped,
            "model is being loaded"
        );
        let (launcher, timeout) = (Arc::clone(&self.launcher), self.start_timeout);
        // From now on the waiters wait for the load.
        self.has_changed = true;
        let instance = &mut self[target];
        let loading = instance
            .on_demand
            .start(instance.status.usual_load())
            .result;
        debug_assert!(loading.is_some(), "a stopped instance is started");
        instance.status.set_state(ModelState::Loading, None);
        instance.is_asleep = false;
        instance.start += 1; // the swap reports the end of a server that slept
        (instance.is_killed, instance.may_sleep) = (false, true);
        instance.stopping = CancellationToken::new();
        instance
            .on_demand
            .watch_client_waits(instance.model.hang_timeout.is_some());
        instance.abort = CancellationToken::new();
        let swap = SwapTask {
            target,
            evict,
            asleep: instance.server.take(),
            killed: instance.stopping.clone(),
            sleep_ends: instance.sleep_ends.take(),
            launch: Launch {
                model: Arc::clone(&instance.model),
                name: Arc::clone(&instance.name),
                pool,
                timeout: instance.model.start_timeout.unwrap_or(timeout),
                progress: instance.status.reported_progress(),
                output: instance.status.output.clone(),
                cleanup: Cleanup::default(),
                killed: instance.stopping.clone(),
            },
            launcher,
            abort: instance.abort.clone(),
        };
        tokio::spawn(swap.run(self.reports.clone()));
    }

    fn abort(&mut self, target: InstanceId) {
        self[target].abort.cancel();
    }

    fn impossible(&mut self, id: InstanceId) {
        self.impossible.push(id);
    }

    fn stop(&mut self, id: InstanceId) {
        tracing::info!(model = &*self[id].name, "model is unloaded");
        let stop = self.stop_task(id);
        tokio::spawn(stop.report(self.reports.clone()));
    }
}

impl Drop for Instances {
    /// Gives up the starts in progress, while the other servers end as they are dropped.
    fn drop(&mut self) {
        self.all.iter().for_each(|it| it.abort.cancel());
    }
}
