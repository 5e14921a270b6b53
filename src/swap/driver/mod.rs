//! The driver: a task between the gate, the scheduler and what starts models.
//!
//! It looks at the first waiters when they may have changed, tells the scheduler, does what that decides, and tells the
//! gate which endpoints give slots. It is woken by the gate, by its tasks, by handles and by time. Nothing that a request
//! waits for runs here, and no lock of the gate is held meanwhile.

mod effects;
mod tasks;
mod unit;
mod waiters;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use effects::Units;
use tasks::{Ended, Report, watch};
use unit::Unit;
pub(super) use unit::instances;

use super::board::{Board, Entry};
use super::scheduler::{Generation, Nanos, Phase, Scheduler, Settings};
use super::swapper::ModelId;
use super::{
    AbandonedLoad, Instance, InvalidSwap, Launcher, ModelState, StartError, SwapConfig, SwapModel,
    SwapPolicy,
};
use crate::admit::nanos::span;
use crate::clock::now;
use crate::endpoints::Endpoint;
use crate::endpoints::on_demand::{OnDemand, Refusal};
use crate::route::RouterHandle;
use crate::route::on_demand::WeakRouter;

/// What a handle asks of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Load(Arc<str>),
    /// All models, or one.
    Unload {
        model: Option<Arc<str>>,
        is_killed: bool,
    },
    Reconfigure(Box<SwapConfig>),
    /// Stops everything, and answers when nothing runs any more.
    Shutdown(oneshot::Sender<()>),
}

/// How long a model that failed to start is not tried again: the first time, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The driver of one layer.
pub(super) struct Driver {
    router: WeakRouter,
    units: Units,
    scheduler: Scheduler,
    /// What the scheduler's times are counted from.
    epoch: Instant,
    demand: Arc<Notify>,
    reports: UnboundedReceiver<Report>,
    commands: UnboundedReceiver<Command>,
    /// Kept, so that the channel stays open when all handles are gone.
    _commander: UnboundedSender<Command>,
    /// When models that failed to start may be tried again.
    refused: Vec<(OnDemand, Instant)>,
    /// To be answered when nothing runs any more.
    shutdown: Vec<oneshot::Sender<()>>,
}

/// An event for the driver.
enum Event {
    /// Time has passed, or requests wait for others than before.
    Look,
    Report(Report),
    Command(Command),
}

impl Driver {
    /// Adds the endpoints of all models to the router.
    pub(super) fn new(
        config: &SwapConfig,
        router: &RouterHandle,
        board: Arc<Board>,
        launcher: Arc<dyn Launcher>,
    ) -> Result<(Self, UnboundedSender<Command>), InvalidSwap> {
        let (commander, commands) = unbounded_channel();
        let (reporter, reports) = unbounded_channel();
        let swapper = config.swapper()?;
        let units = add_units(config, router, &board);
        let scheduler = Scheduler::new(settings(config), swapper, units.len());
        let driver = Self {
            router: router.downgrade(),
            units: Units {
                units,
                board,
                launcher,
                reports: reporter,
                pools: pool_names(config),
                start_timeout: config.health_timeout,
                starting: HashMap::new(),
                has_changed: false,
            },
            scheduler,
            epoch: now(),
            demand: router.gate().capacity().watch_demand(),
            reports,
            commands,
            _commander: commander.clone(),
            refused: Vec::new(),
            shutdown: Vec::new(),
        };
        Ok((driver, commander))
    }

    /// Runs until the router is gone.
    pub(super) async fn run(mut self) {
        loop {
            let event = self.next_event().await;
            let Some(router) = self.router.upgrade() else {
                return;
            };
            match event {
                Event::Look => {}
                Event::Report(report) => self.on_report(report, &router),
                Event::Command(command) => self.on_command(command, &router),
            }
            self.look(&router);
            self.answer_shutdown();
        }
    }

    async fn next_event(&mut self) -> Event {
        let wake_at = self.next_look();
        let sleep = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Reports first: they say what runs.
            biased;
            Some(report) = self.reports.recv() => Event::Report(report),
            Some(command) = self.commands.recv() => Event::Command(command),
            () = self.demand.notified() => Event::Look,
            () = sleep => Event::Look,
        }
    }
}

impl Driver {
    fn on_report(&mut self, report: Report, router: &RouterHandle) {
        let now = self.nanos(now());
        match report {
            Report::Evicted(ended) => self.on_ended(ended),
            Report::Stopped { generation, ended } => {
                let model = ModelId(ended.unit as u32);
                self.on_ended(ended);
                self.scheduler
                    .on_stopped(generation, model, now, &mut self.units);
            }
            Report::SwapDone { generation, result } => {
                self.on_swap_done(generation, result, router)
            }
            Report::Exited {
                unit,
                start,
                reason,
            } => {
                let exited = &mut self.units.units[unit];
                if exited.start != start {
                    return; // it was stopped, or is another one by now
                }
                let model = &*exited.name;
                tracing::warn!(model, reason, "model ended by itself");
                exited.instance = None;
                self.units
                    .board
                    .set_state(unit, ModelState::Unloaded, Some(reason));
                self.scheduler
                    .on_exit(ModelId(unit as u32), now, &mut self.units);
            }
        }
    }

    /// An instance was stopped, or sleeps.
    fn on_ended(&mut self, Ended { unit, asleep }: Ended) {
        let ended = &mut self.units.units[unit];
        ended.on_demand.set_killed(false);
        ended.is_asleep = asleep.is_some();
        let state = match ended.is_asleep {
            true => ModelState::Sleeping,
            false => ModelState::Unloaded,
        };
        if let Some(instance) = &asleep {
            self.watch(unit, instance);
        }
        self.units.units[unit].instance = asleep;
        self.units.board.set_state(unit, state, None);
    }

    fn on_swap_done(
        &mut self,
        generation: Generation,
        result: Result<Arc<dyn Instance>, StartError>,
        router: &RouterHandle,
    ) {
        let Some((target, abort)) = self.units.starting.remove(&generation) else {
            return;
        };
        let nth = target.0 as usize;
        let failure = match result {
            Ok(instance) => {
                self.on_started(nth, instance, router);
                None
            }
            Err(error) => Some(error),
        };
        let now = self.nanos(now());
        let has_started = failure.is_none();
        let has_failed = self
            .scheduler
            .on_swap_done(generation, has_started, now, &mut self.units);
        let Some(error) = failure else {
            return;
        };
        match has_failed && !abort.is_cancelled() {
            true => self.on_start_failed(nth, &error, router),
            false => self.units.board.set_state(nth, ModelState::Unloaded, None),
        }
    }

    /// An instance can serve requests. Its endpoint is told where, before it gives slots.
    fn on_started(&mut self, nth: usize, instance: Arc<dyn Instance>, router: &RouterHandle) {
        let unit = &self.units.units[nth];
        let (name, url) = (Arc::clone(&unit.name), instance.url());
        tracing::info!(model = &*name, %url, "model is loaded");
        if *unit.endpoint.url() != url {
            router.change_on_demand(|endpoints| {
                let endpoint = endpoints
                    .iter_mut()
                    .find(|endpoint| *endpoint.name == *name);
                if let Some(endpoint) = endpoint {
                    endpoint.url = url.clone();
                }
            });
            let endpoints = router.endpoints();
            let present = endpoints
                .iter()
                .find(|endpoint| endpoint.is_same(&unit.endpoint));
            if let Some(present) = present {
                self.units.units[nth].endpoint = present.clone();
            }
        }
        self.watch(nth, &instance);
        self.units.units[nth].instance = Some(instance);
        self.units.board.set_state(nth, ModelState::Loaded, None);
        self.units.board.entries()[nth].url = Some(url.to_string());
    }

    /// Waiters of a model that could not be started are answered, and so are those that come before it is tried again.
    fn on_start_failed(&mut self, nth: usize, error: &StartError, router: &RouterHandle) {
        let unit = &self.units.units[nth];
        let output = error.output.join("\n");
        tracing::error!(model = &*unit.name, %error, output, "model could not be started");
        self.units
            .board
            .set_state(nth, ModelState::Failed, Some(error.to_string()));
        let retry_at = self.scheduler.earliest_retry(ModelId(nth as u32));
        let retry_at = retry_at.map_or_else(now, |at| self.instant(at));
        unit.on_demand
            .set_refusal(Some(Refusal::StartFailed { retry_at }));
        self.refused.push((unit.on_demand.clone(), retry_at));
        router.gate().capacity_changed();
    }

    /// Reports when an instance ends by itself.
    fn watch(&mut self, nth: usize, instance: &Arc<dyn Instance>) {
        let unit = &mut self.units.units[nth];
        unit.start += 1;
        let reports = self.units.reports.clone();
        tokio::spawn(watch(nth, unit.start, Arc::clone(instance), reports));
    }

    fn on_command(&mut self, command: Command, router: &RouterHandle) {
        let now = self.nanos(now());
        match command {
            Command::Load(model) => {
                for nth in self.units_of(Some(&*model)) {
                    self.units.units[nth].on_demand.set_refusal(None);
                    // self.scheduler.on_load(ModelId(nth as u32), now, &mut self.units);
                    break; // the first instance
                }
            }
            Command::Unload { model, is_killed } => {
                self.unload(model.as_deref(), is_killed, router)
            }
            Command::Reconfigure(_) => {}
            Command::Shutdown(answer) => {
                self.shutdown.push(answer);
                self.scheduler.on_shutdown();
                for (_, abort) in self.units.starting.values() {
                    abort.cancel();
                }
                for nth in self.units_of(None) {
                    self.scheduler
                        .on_unload(ModelId(nth as u32), true, now, &mut self.units);
                }
            }
        }
    }

    /// Unloads a model, or all: requests that wait for it are answered, those that it serves finish unless it is killed.
    fn unload(&mut self, model: Option<&str>, is_killed: bool, router: &RouterHandle) {
        let now = self.nanos(now());
        let units = self.units_of(model);
        for &nth in &units {
            let unit = &mut self.units.units[nth];
            unit.is_killed = is_killed;
            unit.on_demand.set_killed(is_killed);
            unit.on_demand.set_refusal(Some(Refusal::Unloaded));
            self.scheduler
                .on_unload(ModelId(nth as u32), is_killed, now, &mut self.units);
            let unit = &mut self.units.units[nth];
            if let Some(instance) = unit.instance.take_if(|_| unit.is_asleep) {
                unit.is_asleep = false;
                unit.start += 1;
                tokio::spawn(async move { instance.kill().await });
                self.units.board.set_state(nth, ModelState::Unloaded, None);
            }
        }
        router.gate().capacity_changed();
        for &nth in &units {
            self.units.units[nth].on_demand.set_refusal(None);
        }
        self.units.has_changed = true; // requests may wait again
    }

    /// The instances of a model, or of all.
    fn units_of(&self, model: Option<&str>) -> Vec<usize> {
        let units = self.units.units.iter().enumerate();
        let of = units.filter(|(_, unit)| model.is_none_or(|model| unit.model.model.name == model));
        of.map(|(nth, _)| nth).collect()
    }

    /// Tells the scheduler what waits and what is idle, and then the gate what has changed.
    fn look(&mut self, router: &RouterHandle) {
        let at = now();
        let is_over = |(on_demand, end): &(OnDemand, Instant)| {
            if *end <= at {
                on_demand.set_refusal(None);
            }
            *end <= at
        };
        let refused = self.refused.len();
        self.refused.retain(|refused| !is_over(refused));
        self.units.has_changed |= self.refused.len() < refused;
        let now = self.nanos(at);
        self.look_at_waiters(router, now);
        for nth in 0..self.units.units.len() {
            let unit = &mut self.units.units[nth];
            unit.report_activity();
            if unit.take_idled() {
                self.scheduler
                    .on_idle(ModelId(nth as u32), now, &mut self.units);
            }
        }
        if self.scheduler.next_tick().is_some_and(|tick| tick <= now) {
            self.scheduler.on_tick(now, &mut self.units);
        }
        if std::mem::take(&mut self.units.has_changed) {
            router.gate().capacity_changed();
        }
    }

    /// When to look again, though no event comes.
    fn next_look(&self) -> Option<Instant> {
        let tick = self.scheduler.next_tick().map(|tick| self.instant(tick));
        let refused = self.refused.iter().map(|&(_, end)| end);
        let units = self.units.units.iter();
        let activity = units.filter_map(Unit::activity_interval).min();
        let activity = activity.map(|interval| now() + interval);
        tick.into_iter().chain(refused).chain(activity).min()
    }

    fn answer_shutdown(&mut self) {
        let mut units = self.units.units.iter();
        let is_running = units.any(|unit| unit.instance.is_some());
        let models = (0..self.units.units.len() as u32).map(ModelId);
        let mut phases = models.map(|model| self.scheduler.phase(model));
        let is_changing = phases.any(|phase| phase != Phase::Stopped);
        if !is_running && !is_changing {
            self.shutdown
                .drain(..)
                .for_each(|answer| _ = answer.send(()));
        }
    }

    fn nanos(&self, instant: Instant) -> Nanos {
        span(instant.saturating_duration_since(self.epoch))
    }

    fn instant(&self, nanos: Nanos) -> Instant {
        let far = Duration::from_secs(86_400 * 365);
        self.epoch + Duration::from_nanos(nanos).min(far)
    }
}

/// Adds the endpoints of all models to the router, and what is reported of them.
fn add_units(config: &SwapConfig, router: &RouterHandle, board: &Board) -> Vec<Unit> {
    let models = config.models.iter().map(|model| Arc::new(model.clone()));
    let instances = models.flat_map(|model| {
        let all: Vec<_> = instances(&model).collect();
        all.into_iter()
            .map(move |instance| (Arc::clone(&model), instance))
    });
    let instances: Vec<(Arc<SwapModel>, (Arc<str>, OnDemand, Endpoint))> = instances.collect();
    router.change_on_demand(|endpoints| {
        endpoints.extend(
            instances
                .iter()
                .map(|(_, (_, _, endpoint))| endpoint.clone()),
        );
    });
    let endpoints = router.endpoints();
    let find = |name: &str| endpoints.iter().find(|endpoint| endpoint.name() == name);
    let units = instances
        .into_iter()
        .filter_map(|(model, (name, on_demand, _))| {
            let endpoint = find(&name)?.clone();
            let of: Arc<str> = model.model.name.as_str().into();
            let entry = Entry::new(of, endpoint.clone(), on_demand.clone());
            board.entries().push(entry);
            Some(Unit::new(name, model, on_demand, endpoint))
        });
    units.collect()
}

fn pool_names(config: &SwapConfig) -> Vec<Arc<str>> {
    match &config.policy {
        SwapPolicy::Memory(pools) if pools.len() > 1 => {
            pools.iter().map(|(name, _)| name.as_str().into()).collect()
        }
        _ => Vec::new(),
    }
}

fn settings(config: &SwapConfig) -> Settings {
    let instances = config.models.iter();
    let instances =
        instances.flat_map(|model| std::iter::repeat_n(model, model.instances as usize));
    Settings {
        swap_after: span(config.swap_after),
        min_loaded: span(config.min_loaded),
        finishes_abandoned: config.abandoned_load == AbandonedLoad::Finish,
        backoff: span(BACKOFF.0),
        max_backoff: span(BACKOFF.1),
        ttl: instances.map(|model| model.ttl.map_or(0, span)).collect(),
    }
}
