//! The driver: a task between the gate, the scheduler and what starts models.
//!
//! It looks at the first waiters when they may have changed, tells the scheduler, does what that decides, and tells the
//! gate which endpoints give slots. It is woken by the gate, by its tasks, by handles and by time. Nothing that a request
//! waits for runs here, and no lock of the gate is held meanwhile.

mod commands;
mod configure;
mod effects;
mod refusals;
mod reports;
mod revive;
mod tasks;
mod unit;
mod waiters;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use effects::Units;
use refusals::Refused;
use tasks::{Report, check};
use unit::Unit;

use super::board::Board;
use super::scheduler::{Nanos, Phase, Scheduler};
use super::swapper::ModelId;
use super::{InvalidSwap, Launcher, StartError, SwapConfig};
use crate::clock::now;
use crate::endpoints::{Changes, Registry, RoutingRules};
use crate::route::RouteHandle;
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
    Reconfigure(Box<SwapConfig>, Option<Box<Others>>),
    /// Stops everything, and answers when nothing runs any more.
    Shutdown(oneshot::Sender<()>),
}

/// What changes in one step with the models: the endpoints that are not started on demand, and the routing.
#[derive(Debug)]
pub(super) struct Others {
    pub(super) registry: Registry,
    pub(super) rules: RoutingRules,
    /// Is told what has changed of these endpoints.
    pub(super) changes: oneshot::Sender<Changes>,
}

/// In overload first waiters change with each request that is served. They are not looked at more often.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The time for which an endpoint that gave no answer gives no slots, unless a check finds sooner that it serves, or its end
/// is reported.
const DOUBT: Duration = Duration::from_millis(100);

/// The driver of one layer.
pub(super) struct Driver {
    router: WeakRouter,
    units: Units,
    scheduler: Scheduler,
    demand: Arc<Notify>,
    reports: UnboundedReceiver<Report>,
    commands: UnboundedReceiver<Command>,
    /// Kept, so that the channel stays open when all handles are gone.
    _commander: UnboundedSender<Command>,
    /// When it last looked at what waits.
    looked: Instant,
    /// Whether a model is loaded when no request waits or runs.
    has_default: bool,
    /// Instances that could not be started.
    refused: Vec<Refused>,
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
        router: &RouteHandle,
        board: Arc<Board>,
        launcher: Arc<dyn Launcher>,
    ) -> Result<(Self, UnboundedSender<Command>), InvalidSwap> {
        let (commander, commands) = unbounded_channel();
        let (reporter, reports) = unbounded_channel();
        let mut driver = Self {
            router: router.downgrade(),
            units: Units::new(board, launcher, reporter),
            scheduler: configure::scheduler(config)?,
            demand: router.gate().capacity().watch_demand(),
            reports,
            commands,
            _commander: commander.clone(),
            looked: now(),
            has_default: false,
            refused: Vec::new(),
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
        let may_look = self.looked + LOOK_INTERVAL;
        let demand = async {
            tokio::time::sleep_until(may_look.into()).await;
            self.demand.notified().await;
        };
        tokio::select! {
            // Reports first: they say what runs.
            biased;
            Some(report) = self.reports.recv() => Event::Report(report),
            Some(command) = self.commands.recv() => Event::Command(command),
            () = demand => Event::Look,
            () = sleep => Event::Look,
        }
    }
}

impl Driver {
    /// Tells the scheduler what waits and what is idle, and then the gate what has changed.
    fn look(&mut self, router: &RouteHandle) {
        let at = now();
        self.looked = at;
        self.end_refusals(at, router);
        self.revive(at);
        let now = self.nanos(at);
        // Ends because each round but the last takes note of a request that has ended.
        loop {
            // No instance is started for what another one serves now.
            self.tell_gate(router);
            self.look_at_waiters(router, now);
            self.look_at_units(at);
            let is_due = self.scheduler.next_tick().is_some_and(|tick| tick <= now);
            if is_due || self.units.has_idled() {
                self.scheduler.on_tick(now, &mut self.units);
            }
            let is_awaited = self.awaits_idleness();
            router.gate().capacity().await_idleness(is_awaited);
            // A request that ended before that was set has notified nothing.
            if !is_awaited || !self.units.has_idled() {
                break;
            }
        }
        for ModelId(model) in std::mem::take(&mut self.units.impossible) {
            let error = StartError::new("it can't run beside the models that are pinned");
            self.on_start_failed(model as usize, &error, router);
        }
        self.tell_gate(router);
    }

    /// Tells the gate that endpoints were opened or closed, or are being loaded, if any were.
    fn tell_gate(&mut self, router: &RouteHandle) {
        if std::mem::take(&mut self.units.has_changed) {
            router.gate().capacity_changed();
        }
    }

    fn look_at_units(&mut self, at: Instant) {
        for nth in 0..self.units.units.len() {
            let unit = &mut self.units.units[nth];
            unit.report_activity();
            if unit.on_demand.take_doubt() {
                let until = at + DOUBT;
                unit.doubted_until = Some(until);
                if let Some(instance) = unit.instance.clone() {
                    let reports = self.units.reports.clone();
                    tokio::spawn(check(nth, until, instance, reports));
                }
            } else if unit.doubted_until.is_some_and(|end| end <= at) {
                self.end_doubt(nth);
            }
        }
    }

    /// Lets an instance that was doubted give slots again, if it is to.
    fn end_doubt(&mut self, nth: usize) {
        let unit = &mut self.units.units[nth];
        unit.doubted_until = None;
        // A request that got no answer since is still to be looked at.
        let is_settled = unit.on_demand.settle_doubt();
        if is_settled && self.scheduler.gives_slots(ModelId(nth as u32)) {
            unit.give();
            self.units.has_changed = true;
        }
    }

    /// Whether anything is to be done as soon as an instance serves no request any more.
    fn awaits_idleness(&self) -> bool {
        let mut models = (0..self.units.units.len() as u32).map(ModelId);
        let scheduler = &self.scheduler;
        self.has_default
            || scheduler.has_excess()
            || models.any(|id| scheduler.is_wanted(id) || scheduler.is_leaving(id))
    }

    /// When to look again, though no event comes.
    fn next_look(&self) -> Option<Instant> {
        let tick = self.scheduler.next_tick().map(|tick| self.instant(tick));
        let refused = self.refused.iter().map(|refused| refused.until);
        let units = self.units.units.iter();
        let activity = units.filter_map(Unit::activity_interval).min();
        let activity = activity.map(|interval| now() + interval);
        let doubted = self
            .units
            .units
            .iter()
            .filter_map(|unit| unit.doubted_until);
        let units = self.units.units.iter();
        let revivals = units.filter_map(|unit| unit.revival.due());
        tick.into_iter()
            .chain(refused)
            .chain(activity)
            .chain(doubted)
            .chain(revivals)
            .min()
    }

    fn answer_shutdown(&mut self) {
        let mut units = self.units.units.iter();
        let is_running = units.any(|unit| unit.instance.is_some());
        let models = (0..self.units.units.len() as u32).map(ModelId);
        let mut phases = models.map(|model| self.scheduler.phase(model));
        let is_changing = phases.any(|phase| phase != Phase::Stopped);
        if !is_running && !is_changing && self.units.ending_sleeps == 0 {
            self.shutdown
                .drain(..)
                .for_each(|answer| _ = answer.send(()));
        }
    }

    fn nanos(&self, instant: Instant) -> Nanos {
        self.units.nanos(instant)
    }

    /// In a year at the latest: an [`Instant`] may hold no more.
    fn instant(&self, nanos: Nanos) -> Instant {
        let (now, far) = (now(), Duration::from_secs(86_400 * 365));
        now + Duration::from_nanos(nanos.saturating_sub(self.nanos(now))).min(far)
    }
}
