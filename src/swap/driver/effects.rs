//! What the scheduler decides is done here: words of endpoints change at once, everything else is a task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::tasks::{Report, Stop, Swap, at_once};
use super::unit::Unit;
use crate::admit::nanos::span;
use crate::clock::now;
use crate::endpoints::on_demand::End;
use crate::swap::board::Board;
use crate::swap::scheduler::{Effects, Generation, Nanos};
use crate::swap::swapper::{ModelId, Plan};
use crate::swap::{Cleanup, Launch, Launcher, ModelState};

/// All instances, and what runs and stops them.
pub(super) struct Units {
    pub(super) units: Vec<Unit>,
    pub(super) board: Arc<Board>,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) reports: UnboundedSender<Report>,
    /// The names of the memory pools, if there are several.
    pub(super) pools: Vec<Arc<str>>,
    pub(super) start_timeout: Duration,
    /// The instant from which the scheduler's times are counted.
    epoch: Instant,
    /// Of the swaps on their way: which instance starts, and what gives that up.
    pub(super) starting: HashMap<Generation, (ModelId, CancellationToken)>,
    /// How many instances that slept are being ended.
    pub(super) ending_sleeps: usize,
    /// Whether an endpoint was opened, closed or is being loaded, and the gate is still to be told.
    pub(super) has_changed: bool,
    /// Their waiters are still to be told that they can't be started.
    pub(super) impossible: Vec<ModelId>,
}

impl Units {
    pub(super) fn new(
        board: Arc<Board>,
        launcher: Arc<dyn Launcher>,
        reports: UnboundedSender<Report>,
    ) -> Self {
        Self {
            units: Vec::new(),
            board,
            launcher,
            reports,
            pools: Vec::new(),
            start_timeout: Duration::ZERO,
            epoch: now(),
            starting: HashMap::new(),
            ending_sleeps: 0,
            has_changed: false,
            impossible: Vec::new(),
        }
    }

    pub(super) fn unit(&mut self, ModelId(model): ModelId) -> &mut Unit {
        &mut self.units[model as usize]
    }

    /// The scheduler's number of an instant.
    pub(super) fn nanos(&self, instant: Instant) -> Nanos {
        span(instant.saturating_duration_since(self.epoch))
    }

    /// Returns `true` if an instance has become idle since the scheduler last asked.
    pub(super) fn has_idled(&self) -> bool {
        self.units.iter().any(Unit::has_idled)
    }

    /// The one line of the log about a swap that begins.
    fn log_swap(&self, target: ModelId, plan: &Plan) {
        let name = |ModelId(model): ModelId| &*self.units[model as usize].name;
        let stopped: Vec<&str> = plan.evict.iter().copied().map(name).collect();
        tracing::info!(model = name(target), ?stopped, "model is being loaded");
    }

    /// Ends an instance that sleeps, and keeps one that runs from sleeping.
    pub(super) fn end_sleep(&mut self, model: ModelId) {
        let unit = self.unit(model);
        unit.may_sleep = false;
        if !std::mem::take(&mut unit.is_asleep) {
            return;
        }
        let stop = Units::stop(self, model);
        let reports = self.reports.clone();
        self.ending_sleeps += 1;
        let ends = tokio::spawn(async move {
            _ = stop.run().await;
            _ = reports.send(Report::SleepEnded);
        });
        self.unit(model).sleep_ends = Some(ends);
        // It has no memory to free.
        self.board
            .set_state(model.0 as usize, ModelState::Unloaded, None);
    }

    /// What stops an instance, and an entry that says so.
    fn stop(&mut self, model: ModelId) -> Stop {
        self.board
            .set_state(model.0 as usize, ModelState::Unloading, None);
        let unit = self.unit(model);
        unit.report_activity(); // it may have become idle since
        unit.start += 1; // its end is no crash
        // One that has crashed can't be asked to stop.
        let is_killed = std::mem::take(&mut unit.is_killed);
        unit.stopping = match is_killed || unit.on_demand.end() == Some(End::Crashed) {
            true => at_once(),
            false => CancellationToken::new(),
        };
        Stop {
            unit: model.0 as usize,
            instance: unit.instance.take(),
            killed: unit.stopping.clone(),
            may_sleep: unit.may_sleep,
        }
    }
}

impl Effects for Units {
    fn is_busy(&self, ModelId(model): ModelId) -> bool {
        self.units[model as usize].is_busy()
    }

    fn take_idled(&mut self, model: ModelId) -> Option<Nanos> {
        let at = self.unit(model).take_idled()?;
        Some(self.nanos(at))
    }

    fn open(&mut self, model: ModelId) {
        self.unit(model).give();
        self.has_changed = true;
    }

    fn close(&mut self, model: ModelId) {
        self.unit(model).stop_giving();
        self.has_changed = true;
    }

    fn close_if_idle(&mut self, model: ModelId) -> bool {
        let is_closed = self.unit(model).stop_giving_if_idle();
        self.has_changed |= is_closed;
        is_closed
    }

    fn swap(&mut self, generation: Generation, target: ModelId, plan: &Plan) {
        let evict = plan.evict.iter().map(|&model| self.stop(model)).collect();
        let pool = self
            .pools
            .get(plan.pool as usize)
            .map(|name| (plan.pool, Arc::clone(name)));
        if std::mem::replace(&mut self.unit(target).pool, pool.clone()) != pool {
            self.end_sleep(target); // it would wake in its old pool
        }
        self.board
            .set_state(target.0 as usize, ModelState::Loading, None);
        // Its waiters wait for the load from now on.
        self.has_changed = true;
        let progress = self.board.entries()[target.0 as usize].told();
        let default_timeout = self.start_timeout;
        let launcher = Arc::clone(&self.launcher);
        self.log_swap(target, plan);
        let unit = self.unit(target);
        unit.is_asleep = false;
        unit.start += 1; // the end of what slept is told by the swap
        (unit.is_killed, unit.may_sleep) = (false, true);
        unit.stopping = CancellationToken::new();
        unit.on_demand
            .watch_client_waits(unit.model.hang_timeout.is_some());
        let abort = CancellationToken::new();
        let swap = Swap {
            generation,
            evict,
            asleep: unit.instance.take(),
            killed: unit.stopping.clone(),
            sleep_ends: unit.sleep_ends.take(),
            launch: Launch {
                model: Arc::clone(&unit.model),
                name: Arc::clone(&unit.name),
                pool,
                timeout: unit.model.start_timeout.unwrap_or(default_timeout),
                progress,
                cleanup: Cleanup::default(),
            },
            launcher,
            abort: abort.clone(),
        };
        self.starting.insert(generation, (target, abort));
        tokio::spawn(swap.run(self.reports.clone()));
    }

    fn abort(&mut self, generation: Generation) {
        if let Some((_, abort)) = self.starting.get(&generation) {
            abort.cancel();
        }
    }

    fn impossible(&mut self, model: ModelId) {
        self.impossible.push(model);
    }

    fn stop(&mut self, generation: Generation, model: ModelId) {
        tracing::info!(model = &*self.unit(model).name, "model is unloaded");
        let stop = Units::stop(self, model);
        let reports = self.reports.clone();
        tokio::spawn(async move {
            let ended = stop.run().await;
            _ = reports.send(Report::Stopped { generation, ended });
        });
    }
}

impl Drop for Units {
    /// Starts are given up; what runs is dropped.
    fn drop(&mut self) {
        self.starting.values().for_each(|(_, abort)| abort.cancel());
    }
}
