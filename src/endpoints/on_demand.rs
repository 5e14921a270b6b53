//! Endpoints that are started when requests wait for them.
//!
//! One that is stopped gives no slot, so its requests wait as for a busy one. What starts it learns of them by
//! [`Demanded`], and says by [`OnDemand`] why it can't be waited for.

mod loading;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::endpoint_word::EndpointWord;
use super::{EndpointRef, Endpoints, Model, RouteError};
use crate::admit::SlotState;
use crate::gate;
pub(crate) use loading::Loading;
pub use loading::Progress;

/// What an endpoint shares with what starts and stops it. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    refusal: ArcSwapOption<Refusal>,
    is_killed: AtomicBool,
    idled: AtomicU64,
    loading: ArcSwapOption<Loading>,
}

/// Why requests do not wait for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It could not be started, and is not tried again before that.
    StartFailed { retry_at: Instant },
    /// It is being unloaded.
    Unloaded,
}

impl OnDemand {
    /// From now on requests are refused while the endpoint is stopped; or wait again. The gate has to be told.
    pub(crate) fn set_refusal(&self, refusal: Option<Refusal>) {
        self.0.refusal.store(refusal.map(Arc::new));
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.refusal.load().is_some()
    }

    /// The error of a request for `model`.
    pub(super) fn refusal(&self, model: &Arc<str>) -> Option<RouteError> {
        let refusal = self.0.refusal.load();
        let model = Arc::clone(model);
        Some(match **refusal.as_ref()? {
            Refusal::StartFailed { retry_at } => RouteError::ModelStartFailed {
                model,
                retry_after: retry_at.saturating_duration_since(gate::now()),
            },
            Refusal::Unloaded => RouteError::ModelUnloaded { model },
        })
    }

    /// It is being started from now on, or not any more.
    pub(crate) fn set_loading(&self, loading: Option<Loading>) {
        self.0.loading.store(loading.map(Arc::new));
    }

    /// The state of the slots of an endpoint that is stopped.
    pub(super) fn slot_state(&self) -> SlotState {
        match &*self.0.loading.load() {
            None => SlotState::Unmade,
            Some(loading) => SlotState::Making {
                progress: loading.progress(),
            },
        }
    }

    /// It serves no request any more.
    pub(super) fn on_idle(&self) {
        self.0.idled.fetch_add(1, SeqCst);
    }

    /// How often it came to serve no request any more.
    pub(crate) fn idled(&self) -> u64 {
        self.0.idled.load(SeqCst)
    }

    /// Whether the endpoint was ended though it served requests, on request of the operator.
    pub(crate) fn set_killed(&self, is_killed: bool) {
        self.0.is_killed.store(is_killed, SeqCst);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.0.is_killed.load(SeqCst)
    }
}

impl PartialEq for OnDemand {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnDemand {}

/// Tells what starts endpoints that requests wait for others than before, or that an endpoint serves none any more.
#[derive(Debug, Default)]
pub(super) struct Demanded {
    /// Whether any endpoint is started on demand.
    is_on: AtomicBool,
    notify: Arc<Notify>,
}

impl Demanded {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    pub(super) fn notify(&self) {
        if self.is_on() {
            self.notify.notify_one();
        }
    }
}

impl Drop for Demanded {
    /// The router is gone: what starts endpoints for it ends, too.
    fn drop(&mut self) {
        self.notify.notify_one();
    }
}

impl EndpointRef {
    /// What it shares with what starts it, if that is on demand.
    pub(crate) fn on_demand(&self) -> Option<&OnDemand> {
        self.config().on_demand.as_ref()
    }

    /// Whether it gives no slot because it does not run, or is about to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().word.is_stopped()
    }
}

impl Endpoints {
    /// Notified when requests wait for others than before, or an endpoint serves none any more.
    pub(crate) fn watch_demand(&self) -> Arc<Notify> {
        self.demanded.is_on.store(true, SeqCst);
        Arc::clone(&self.demanded.notify)
    }

    /// The pools that could serve a lane, in the registry's order.
    pub(crate) fn pools_in_order(&self, lane: &super::Lane) -> Vec<crate::admit::PoolId> {
        self.table.load().pools_in_order(lane)
    }

    /// The endpoint of a pool as it is configured now: `endpoint` may be of an earlier table, and have run elsewhere.
    #[inline]
    pub(super) fn present(&self, endpoint: &EndpointRef) -> EndpointRef {
        let table = self.table.load();
        let present = table.endpoint(endpoint.pool());
        let present = present.filter(|present| present.is_same(endpoint));
        present.unwrap_or(endpoint).clone()
    }
}

impl EndpointWord {
    /// Gives no more slots. Requests that have one keep it.
    pub(crate) fn stop(&self) {
        _ = self.set_stopped(true);
    }

    /// Gives slots again.
    pub(crate) fn start(&self) {
        _ = self.set_stopped(false);
    }
}

/// The endpoint of an instance that is started on demand. Where it will run is not known yet.
pub(crate) fn endpoint(
    name: &str,
    model: &Model,
    slots: u32,
    on_demand: OnDemand,
) -> super::Endpoint {
    let nowhere = http::Uri::from_static("http://127.0.0.1:9"); // the discard port: never connected to
    let mut endpoint = super::Endpoint::new(name, nowhere)
        .max_concurrent(slots)
        .model(model.clone());
    endpoint.on_demand = Some(on_demand);
    endpoint
}
