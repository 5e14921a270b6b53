//! The traffic of an endpoint on demand.

use std::time::Instant;

use crate::admit::Priority;
use crate::endpoints::EndpointRef;

/// The traffic of an endpoint on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The number of times that the endpoint became idle.
    pub idled: u64,
    /// The end of its last request, or its last start if that was later, to the millisecond.
    pub last_end: Instant,
    /// The level and the time of its last request that overtook a more urgent one.
    pub overtake: Option<(Priority, Instant)>,
    /// The number of parts of responses that came from the server, which wraps around.
    pub received: u32,
    /// The number of parts of requests that were sent to the server, which wraps around.
    pub sent: u32,
    /// The number of waits for clients in its requests. A request that waits in both directions counts twice.
    pub client_waits: u32,
}

impl EndpointRef {
    /// Returns the traffic of an endpoint on demand, by which a launcher chooses what to stop and notices a server that hangs.
    /// `None` if no launcher starts the endpoint.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let on_demand = self.on_demand()?;
        let (idled, last_end) = on_demand.idled();
        Some(Usage {
            idled,
            last_end,
            overtake: on_demand.overtake(),
            received: self.parts_received(),
            sent: on_demand.sent(),
            client_waits: on_demand.client_waits(),
        })
    }

    /// Returns the share of the endpoint's start that is done, while it is being started and the share is known.
    #[must_use]
    pub fn start_progress(&self) -> Option<f32> {
        self.on_demand()?.loading()?.progress()
    }
}
