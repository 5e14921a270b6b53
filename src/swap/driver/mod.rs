//! The driver: the task between the gate, the scheduler and the launcher.
//!
//! It looks at the first waiters when they may have changed, tells the scheduler, carries out the scheduler's decisions, and
//! tells the gate which endpoints give slots. The gate, its own tasks, handles and time wake it. All work that takes time is
//! in tasks, and the driver decides without the gate's lock.

mod commands;
mod configure;
mod instance;
mod instances;
mod reports;
mod retries;
mod tasks;
mod waiters;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use instances::Instances;
use tasks::Report;

use super::scheduler::{InstancePhase, Nanos, Scheduler};
use super::status::StatusTable;
use super::{InvalidSwap, Launcher, StartError, SwapConfig, Unload};
use crate::clock::now;
use crate::endpoints::on_demand::LauncherSignal;
use crate::endpoints::{Changes, Registry, RoutingRules};
use crate::route::RouteHandle;
use crate::route::on_demand::WeakRouter;

/// A command that a handle sends to the driver.
#[derive(Debug)]
pub(super) enum DriverCommand {
    Load(Arc<str>),
    /// Unloads a model, or all models.
    Unload(Option<Arc<str>>, Unload),
    Reconfigure(Box<SwapConfig>, Option<Box<RouteUpdate>>),
    /// Stops all models, and answers once nothing runs any more.
    Shutdown(oneshot::Sender<()>),
}

/// The endpoints that run by themselves and the routing, which change in one step with the models.
#[derive(Debug)]
pub(super) struct RouteUpdate {
    pub(super) registry: Registry,
    pub(super) rules: RoutingRules,
    /// Takes the changes of these endpoints, once the models have changed, too.
    pub(super) changes: oneshot::Sender<Changes>,
}

/// The shortest time between two looks at the first waiters, which change with each request in overload.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The driver of one layer, which owns all instances and servers.
pub(super) struct SwapDriver {
    router: WeakRouter,
    instances: Instances,
    scheduler: Scheduler,
    signal: Arc<LauncherSignal>,
    reports: UnboundedReceiver<Report>,
    commands: UnboundedReceiver<DriverCommand>,
    /// The time of the last look at the waiters.
    looked: Instant,
    /// The callers that wait until nothing runs any more.
    shutdown: Vec<oneshot::Sender<()>>,
}

/// An event that makes the driver look and decide.
enum DriverEvent {
    /// Time has passed, or the first waiters may have changed.
    Look,
    Report(Report),
    Command(DriverCommand),
}

impl SwapDriver {
    /// Creates a driver, and adds the endpoints of all models to the router.
    pub(super) fn new(
        config: &SwapConfig,
        router: &RouteHandle,
        status: Arc<StatusTable>,
        launcher: Arc<dyn Launcher>,
    ) -> Result<(Self, UnboundedSender<DriverCommand>), InvalidSwap> {
        let (commander, commands) = unbounded_channel();
        let (reporter, reports) = unbounded_channel();
        let mut instances = Instances::new(status, launcher, reporter);
        let settings = configure::settings(config, &instances);
        let scheduler = Scheduler::new(settings, config.swapper_of(&[])?, &mut instances);
        let signal = Arc::new(LauncherSignal::default());
        router.gate().capacity().add_launcher(&signal);
        let mut driver = Self {
            router: router.downgrade(),
            instances,
            scheduler,
            signal,
            reports,
            commands,
            looked: now(),
            shutdown: Vec::new(),
        };
        driver.configure(config, None, router)?;
        Ok((driver, commander))
    }

    /// Runs until the router is gone.
    pub(super) async fn run(mut self) {
        loop {
            let event = self.next_event().await;
            let Some(router) = self.router.upgrade() else {
                return;
            };
            self.instances.set_now();
            match event {
                DriverEvent::Look => {}
                DriverEvent::Report(report) => self.on_report(report, &router),
                DriverEvent::Command(command) => self.on_command(command, &router),
            }
            self.look(&router);
            self.answer_shutdown();
        }
    }

    async fn next_event(&mut self) -> DriverEvent {
        let wake_at = self.next_look();
        let look = tokio::time::sleep_until(wake_at.unwrap_or_else(now).into());
        let may_look = self.looked + LOOK_INTERVAL;
        let demand = async {
            tokio::time::sleep_until(may_look.into()).await;
            self.signal.notified().await;
        };
        tokio::select! {
            // Reports first, because they tell which instances run.
            biased;
            Some(report) = self.reports.recv() => DriverEvent::Report(report),
            Some(command) = self.commands.recv() => DriverEvent::Command(command),
            () = demand => DriverEvent::Look,
            () = look, if wake_at.is_some() => DriverEvent::Look,
        }
    }

    /// Tells the scheduler which requests wait and which instances are idle, and then the gate which endpoints have
    /// changed.
    fn look(&mut self, router: &RouteHandle) {
        let at = self.instances.set_now();
        self.looked = at;
        self.end_refusals(at, router);
        self.revive(at);
        // Ends because each round but the last takes note of a request that has ended.
        loop {
            // First, so that requests that an instance can serve now do not start another one.
            self.tell_gate(router);
            self.look_at_waiters(router);
            self.look_at_instances();
            let now = self.instances.now;
            let is_due = self.scheduler.next_tick().is_some_and(|tick| tick <= now);
            if is_due || self.instances.has_idled() {
                self.scheduler.decide(&mut self.instances);
            }
            let is_awaited = self.scheduler.awaits_idleness(&self.instances);
            let endpoints = router.gate().capacity();
            endpoints.await_idleness(&self.signal, is_awaited);
            // A request that ended before that call did not notify this task.
            if !is_awaited || !self.instances.has_idled() {
                break;
            }
        }
        for id in std::mem::take(&mut self.instances.impossible) {
            let error = StartError::new("it can't run beside the models that are pinned");
            self.on_start_failed(id, &error, router);
        }
        self.tell_gate(router);
    }

    /// Tells the gate that endpoints were opened or closed, or are being loaded, if any were.
    fn tell_gate(&mut self, router: &RouteHandle) {
        if std::mem::take(&mut self.instances.has_changed) {
            router.gate().capacity_changed();
        }
    }

    fn look_at_instances(&mut self) {
        for id in self.instances.ids() {
            let instance = &mut self.instances[id];
            instance.report_activity();
            if let Some(suspicion) = instance.on_demand.take_suspicion() {
                tokio::spawn(tasks::check(suspicion, instance.server.clone()));
            }
        }
    }

    /// Returns the time of the next look, unless an event comes before.
    fn next_look(&self) -> Option<Instant> {
        let tick = self.scheduler.next_tick().map(|tick| self.instant(tick));
        let instances = self.instances.iter().flat_map(|(_, it)| {
            let activity = it.activity_interval().map(|interval| now() + interval);
            let refused = it.refused.map(|refused| refused.until);
            [activity, refused, it.revival.due]
        });
        tick.into_iter().chain(instances.flatten()).min()
    }

    fn answer_shutdown(&mut self) {
        let mut instances = self.instances.iter().map(|(_, it)| it);
        let is_stopped =
            instances.all(|it| it.server.is_none() && it.schedule.phase == InstancePhase::Stopped);
        if is_stopped && self.instances.ending_sleeps == 0 {
            self.shutdown
                .drain(..)
                .for_each(|answer| _ = answer.send(()));
        }
    }

    /// Returns the instant of a time of the scheduler, within a year, because an [`Instant`] may overflow.
    fn instant(&self, nanos: Nanos) -> Instant {
        let (now, far) = (now(), Duration::from_secs(86_400 * 365));
        let left = nanos.saturating_sub(self.instances.nanos(now));
        now + Duration::from_nanos(left).min(far)
    }
}
