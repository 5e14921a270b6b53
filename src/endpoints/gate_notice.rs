//! Notifies the gate of a router that an endpoint has another limit.
//!
//! A limit may be set through an [`EndpointRef`](super::EndpointRef), which knows no gate. Without the notice, waiters
//! would get new slots only after another event.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// A link from all endpoints of a capacity to its gate. It does nothing until the router has connected it.
#[derive(Clone, Default)]
pub(crate) struct GateNotice(Arc<OnceLock<Notify>>);

/// A callback that makes the gate look at its waiters again.
type Notify = Box<dyn Fn() + Send + Sync>;

impl GateNotice {
    /// Connects the endpoints to the gate that `notify` reaches. Later calls are ignored.
    pub(crate) fn connect(&self, notify: impl Fn() + Send + Sync + 'static) {
        _ = self.0.set(Box::new(notify));
    }

    /// Makes the gate look at its waiters again. It takes the gate's lock.
    pub(super) fn send(&self) {
        if let Some(notify) = self.0.get() {
            notify();
        }
    }
}

impl fmt::Debug for GateNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateNotice")
            .field("connected", &self.0.get().is_some())
            .finish()
    }
}
