//! The interface through which health checks and load readings find the endpoints of a router and report to it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::{EndpointRef, EngineLoad};

/// A handle by which health checks find the endpoints to check, and report the results.
///
/// A `&`[`RouterHandle`](crate::route::RouterHandle) converts into a reporter.
#[derive(Clone)]
pub struct HealthReporter(Arc<dyn HealthSink>);

/// The receiver of results, which a router implements.
pub(crate) trait HealthSink: Send + Sync {
    /// Returns every endpoint, in the order of the registry.
    fn endpoints(&self) -> Arc<[EndpointRef]>;

    /// Returns a receiver that is marked as changed after each change of the endpoints.
    fn changes(&self) -> watch::Receiver<()>;

    /// Records that the checks of `endpoint` found it up or down.
    fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool);

    /// Records that `endpoint` has passed a check, even if it needs more passed checks to be up.
    fn check_passed(&self, endpoint: &EndpointRef);

    /// Forgets the past checks of `endpoint`, because it is not checked any more.
    fn forget_checks(&self, endpoint: &EndpointRef);

    /// Records a reading of the load of `endpoint`'s engine, or `None` if the reading failed.
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
