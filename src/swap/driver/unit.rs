//! One instance of a model, as the driver sees it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed; // a count that is compared with an earlier one
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::revive::Revival;
use crate::endpoints::EndpointRef;
use crate::endpoints::on_demand::OnDemand;
use crate::swap::scheduler::Head;
use crate::swap::{Instance, SwapModel};

/// How long a health check waits for an answer at most. It waits for a fifth of that at least.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// One instance of a model.
#[derive(Debug)]
pub(super) struct Unit {
    /// The model's name, with `#2` and so on for further instances.
    pub(super) name: Arc<str>,
    pub(super) model: Arc<SwapModel>,
    /// `false` once it is not configured any more.
    pub(super) is_configured: bool,
    pub(super) on_demand: OnDemand,
    pub(super) endpoint: EndpointRef,
    /// What runs or sleeps.
    pub(super) instance: Option<Arc<dyn Instance>>,
    pub(super) is_asleep: bool,
    /// The memory pool of its last start, where there are several.
    pub(super) pool: Option<(u32, Arc<str>)>,
    /// The end of what slept and was not to wake, since its last start.
    pub(super) sleep_ends: Option<JoinHandle<()>>,
    /// The number of its present start. Reports of an earlier start are ignored.
    pub(super) start: u64,
    /// Its first waiter, as the scheduler knows it.
    pub(super) head: Option<Head>,
    /// How often it had become idle when that was last looked at.
    pub(super) idled: u64,
    /// What came from it, what was sent to it, and how many requests awaited it, when it was last told.
    activity: (u32, u32, u32),
    /// Whether it is killed rather than stopped when it is to end.
    pub(super) is_killed: bool,
    /// Of its last stop: ends it at once.
    pub(super) stopping: CancellationToken,
    /// Whether it may sleep when it is to make room: not if it was unloaded, or runs as it is not configured any more.
    pub(super) may_sleep: bool,
    /// Until when it gives no slots because a request got no answer: its end may be told by then.
    pub(super) doubted_until: Option<Instant>,
    pub(super) revival: Revival,
}

impl Unit {
    /// An instance that does not run yet.
    pub(super) fn new(name: Arc<str>, model: Arc<SwapModel>, endpoint: EndpointRef) -> Self {
        Self {
            name,
            model,
            is_configured: true,
            on_demand: endpoint.on_demand().cloned().unwrap_or_default(),
            endpoint,
            instance: None,
            is_asleep: false,
            pool: None,
            sleep_ends: None,
            start: 0,
            head: None,
            idled: 0,
            activity: Default::default(),
            is_killed: false,
            stopping: CancellationToken::new(),
            may_sleep: true,
            doubted_until: None,
            revival: Revival::default(),
        }
    }

    /// Whether it serves a request.
    pub(super) fn is_busy(&self) -> bool {
        self.endpoint.in_flight() > 0
    }

    /// Returns when it last served a request, if it has become idle since the last call.
    pub(super) fn take_idled(&mut self) -> Option<Instant> {
        let (times, at) = self.on_demand.idled();
        (times != std::mem::replace(&mut self.idled, times)).then_some(at)
    }

    /// Returns `true` if [`take_idled`](Self::take_idled) would return `Some`.
    pub(super) fn has_idled(&self) -> bool {
        self.on_demand.idled().0 != self.idled
    }

    pub(super) fn stop_giving(&self) {
        self.endpoint.state().word.stop();
    }

    pub(super) fn stop_giving_if_idle(&self) -> bool {
        self.endpoint.state().word.stop_if_idle()
    }

    /// Lets its endpoint give slots, unless nothing answers there, or perhaps nothing.
    pub(super) fn give(&self) {
        if self.on_demand.end().is_some() || self.doubted_until.is_some() {
            return;
        }
        self.endpoint.state().word.start();
    }

    /// Failures of an earlier process say nothing of the one that runs now.
    pub(super) fn forget_failures(&self) {
        let state = self.endpoint.state();
        state.ejection.reset_failures();
        _ = state.word.close();
    }

    /// Tells the instance if, since the last call, anything came from it or was sent to it, or if it has become busy or
    /// idle. Clients that come and go do not count.
    pub(super) fn report_activity(&mut self) {
        let Some(instance) = &self.instance else {
            return;
        };
        let in_flight = self.endpoint.in_flight();
        let busy = in_flight.saturating_sub(self.on_demand.client_waits());
        let came = self.endpoint.state().cold.activity.load(Relaxed);
        let sent = self.on_demand.sent();
        let (came_before, sent_before, busy_before) = self.activity;
        let has_moved = (came, sent) != (came_before, sent_before);
        let is_other = (busy > 0) != (busy_before > 0);
        if !has_moved && !is_other {
            return;
        }
        self.activity = (came, sent, busy);
        // A launcher may panic: that must not end the driver, and with it all that runs.
        _ = catch_unwind(AssertUnwindSafe(|| {
            if has_moved && is_other {
                instance.on_activity(busy_before);
            }
            instance.on_activity(busy);
        }));
    }

    /// What runs is another instance, which was told nothing yet.
    pub(super) fn forget_activity(&mut self) {
        self.activity = Default::default();
    }

    /// How often that is to be looked at; `None`: never.
    pub(super) fn activity_interval(&self) -> Option<Duration> {
        self.instance.as_ref()?;
        let hangs = self.model.hang_timeout.map(|timeout| timeout / 4);
        // A health check that gets no answer counts for nothing if the engine was seen to work while it waited.
        let check = self
            .model
            .health_interval
            .filter(|_| self.model.health_path.is_some());
        let check = check.map(|interval| ANSWER_LIMIT.min(interval.max(ANSWER_LIMIT / 5)) / 2);
        hangs.into_iter().chain(check).min()
    }
}
