//! One instance of a model, as the driver sees it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::retries::{Refused, Revival};
use crate::endpoints::EndpointRef;
use crate::endpoints::on_demand::OnDemand;
use crate::swap::scheduler::{InstancePhase, Schedule};
use crate::swap::status::InstanceStatus;
use crate::swap::{ModelServer, SwapModel};

/// The time limit of a health check, which is at least a fifth of this.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// One instance of a model: its configuration, its endpoint, its schedule, and the server that runs or sleeps.
#[derive(Debug)]
pub(super) struct Instance {
    /// The model's name, with `#2` and so on for further instances.
    pub(super) name: Arc<str>,
    pub(super) model: Arc<SwapModel>,
    /// `false` once the instance has left the configuration.
    pub(super) is_configured: bool,
    pub(super) endpoint: EndpointRef,
    /// The URL of the server that was started last, to which requests go unless the model has a `proxy`.
    pub(super) own_url: Uri,
    /// The state that the endpoint shares with this driver.
    pub(super) on_demand: OnDemand,
    pub(super) status: Arc<InstanceStatus>,
    pub(super) schedule: Schedule,
    /// The server that runs or sleeps.
    pub(super) server: Option<Arc<dyn ModelServer>>,
    pub(super) is_asleep: bool,
    /// The memory pool of the last start, if there are several.
    pub(super) pool: Option<(u32, Arc<str>)>,
    /// The task that ends a server that slept and may not wake, since the last start.
    pub(super) sleep_ends: Option<JoinHandle<()>>,
    /// The number of the current start, because reports of an earlier start are ignored.
    pub(super) start: u64,
    /// The count of [`OnDemand::idled`] at the last look.
    pub(super) idled: u64,
    /// The traffic that the server was told last, in counts that wrap around: the parts of responses that came from it, the
    /// parts of requests that were sent to it, and the requests that wait for it.
    pub(super) told: ((u32, u32), u32),
    /// Cancelled to give up the current start.
    pub(super) abort: CancellationToken,
    /// `true` if the next stop kills the server.
    pub(super) is_killed: bool,
    /// Cancelled to kill the server while it is being stopped.
    pub(super) stopping: CancellationToken,
    /// `true` if the server may sleep to make room. `false` after an unload, and if its configuration has changed.
    pub(super) may_sleep: bool,
    pub(super) refused: Option<Refused>,
    pub(super) revival: Revival,
}

impl Instance {
    /// Returns an instance that does not run yet.
    pub(super) fn new(
        name: Arc<str>,
        model: Arc<SwapModel>,
        endpoint: EndpointRef,
        status: Arc<InstanceStatus>,
    ) -> Self {
        Self {
            name,
            model,
            is_configured: true,
            on_demand: endpoint.on_demand().cloned().unwrap_or_default(),
            own_url: endpoint.url().clone(),
            endpoint,
            status,
            schedule: Schedule::default(),
            server: None,
            is_asleep: false,
            pool: None,
            sleep_ends: None,
            start: 0,
            idled: 0,
            told: Default::default(),
            abort: CancellationToken::new(),
            is_killed: false,
            stopping: CancellationToken::new(),
            may_sleep: true,
            refused: None,
            revival: Revival::default(),
        }
    }

    /// Returns `true` while the instance serves a request.
    pub(super) fn is_busy(&self) -> bool {
        self.endpoint.in_flight() > 0
    }

    /// Returns `true` if the instance became idle since the scheduler last asked.
    pub(super) fn has_idled(&self) -> bool {
        self.on_demand.idled().0 != self.idled
    }

    /// Returns `true` if `model` ends what runs or is being started, or may start though the last start failed.
    pub(super) fn starts_anew_as(&self, model: &SwapModel) -> bool {
        let has_failed = self.schedule.earliest_retry().is_some();
        let may_start = match self.schedule.phase {
            // The checks of a server that is being started go to its first URL.
            InstancePhase::Starting => model.proxy != self.model.proxy,
            InstancePhase::Stopped => has_failed && *model != *self.model,
            InstancePhase::Ready | InstancePhase::Stopping => false,
        };
        may_start || !model.runs_as(&self.model)
    }

    /// Returns the URL of the endpoint once `model` is the configuration of the server that runs.
    pub(super) fn url_as(&self, model: &SwapModel) -> Uri {
        model.proxy.as_ref().unwrap_or(&self.own_url).clone()
    }

    /// Tells the server, which runs on, its new configuration.
    pub(super) fn reconfigure_server(&self, model: &Arc<SwapModel>) {
        let Some(server) = &self.server else {
            return;
        };
        if model.proxy.is_some() || self.model.proxy.is_some() {
            self.status.set_url(self.url_as(model).to_string());
        }
        // A panic of the launcher must not end the driver, and with it every model.
        _ = catch_unwind(AssertUnwindSafe(|| server.on_reconfigure(model)));
    }

    /// Lets requests wait for the instance again, though its start failed.
    pub(super) fn end_refusal(&mut self) {
        if let Some(refusal) = self.refused.as_mut().and_then(|it| it.refusal.take()) {
            self.on_demand.end_refusal(refusal);
        }
    }

    /// Tells the server of traffic since the last call, and of a change between busy and idle.
    pub(super) fn report_activity(&mut self) {
        let Some(server) = &self.server else {
            return;
        };
        let parts = (self.endpoint.parts_received(), self.on_demand.sent());
        // Requests that wait for their clients do not wait for the server.
        let busy = (self.endpoint.in_flight()).saturating_sub(self.on_demand.client_waits());
        let (parts_before, busy_before) = self.told;
        let has_moved = parts != parts_before;
        let has_turned = (busy > 0) != (busy_before > 0);
        if !has_moved && !has_turned {
            return;
        }
        self.told = (parts, busy);
        // A panic of the launcher must not end the driver, and with it every model.
        _ = catch_unwind(AssertUnwindSafe(|| {
            // A call that changes between busy and idle reports the change alone, so traffic has a call of its own.
            if has_moved && has_turned {
                server.on_activity(busy_before);
            }
            server.on_activity(busy);
        }));
    }

    /// Returns the interval at which to call [`report_activity`](Self::report_activity), if the server needs it.
    pub(super) fn activity_interval(&self) -> Option<Duration> {
        self.server.as_ref()?;
        let hangs = self.model.hang_timeout.map(|timeout| timeout / 4);
        // A health check without an answer does not count if the server was active while the check waited.
        let has_checks = self.model.health_path.is_some();
        let check = self.model.health_interval.filter(|_| has_checks);
        let check = check.map(|interval| ANSWER_LIMIT.min(interval.max(ANSWER_LIMIT / 5)) / 2);
        hangs.into_iter().chain(check).min()
    }
}
