//! The interface between checks and readings of endpoints and a router: where they find the endpoints, and report.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::{EndpointRef, EngineLoad};

/// Where health checks find the endpoints to check, and report what they learn.
///
/// A `&`[`RouterHandle`](crate::route::RouterHandle) converts into one.
#[derive(Clone)]
pub struct HealthReporter(Arc<dyn HealthSink>);

/// Implemented by a router.
pub(crate) trait HealthSink: Send + Sync {
    /// Every endpoint, in the registry's order.
    fn endpoints(&self) -> Arc<[EndpointRef]>;

    /// Marked as changed after each change of the endpoints.
    fn changes(&self) -> watch::Receiver<()>;

    /// The checks of `endpoint` found it up or down.
    fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool);

    /// `endpoint` has passed a check, be it up or not yet.
    fn check_passed(&self, endpoint: &EndpointRef);

    /// `endpoint` is checked no more: results of the past do not count.
    fn forget_checks(&self, endpoint: &EndpointRef);

    /// A reading of the load of `endpoint`'s engine, `None` if it failed.
    fn engine_said(&self, endpoint: &EndpointRef, load: Option<EngineLoad>);
}

impl HealthReporter {
    pub(crate) fn new(sink: Arc<dyn HealthSink>) -> Self {
        Self(sink)
    }

    pub(crate) fn sink(&self) -> &dyn HealthSink {
        &*self.0
    }
}

impl fmt::Debug for HealthReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthReporter").finish_non_exhaustive()
    }
}
