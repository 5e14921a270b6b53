//! Requests that wait for their clients: for more of the request, or until the client reads the response.
//!
//! An endpoint that is silent for too long counts as hung. While a request waits for its client, the endpoint has to be
//! silent, so that request does not count.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // numbers that are looked at again

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The waits for clients in all requests of an endpoint.
#[derive(Debug, Default)]
pub(super) struct ClientWaits {
    is_watched: AtomicBool,
    /// The number of waits.
    count: AtomicU32,
    /// The number of parts of requests that were sent, which wraps around.
    sent: AtomicU32,
}

impl OnDemand {
    /// Sets whether waits for clients are counted.
    pub(crate) fn watch_client_waits(&self, is_watched: bool) {
        self.0.client_waits.is_watched.store(is_watched, Relaxed);
    }

    /// Returns the number of requests that wait for their clients, of which those that wait in both directions count twice.
    pub(crate) fn client_waits(&self) -> u32 {
        self.0.client_waits.count.load(Relaxed)
    }

    /// Returns the number of parts of requests that were sent, which wraps around.
    pub(crate) fn sent(&self) -> u32 {
        self.0.client_waits.sent.load(Relaxed)
    }
}

/// The wait of one direction of a request for its client, which ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClientWait {
    on_demand: Option<OnDemand>,
    is_waiting: bool,
}

impl ClientWait {
    /// Returns the wait of a request to this endpoint, which begins later.
    #[inline]
    pub(crate) fn at(endpoint: &EndpointRef) -> Self {
        Self {
            on_demand: endpoint.on_demand().cloned(),
            is_waiting: false,
        }
    }

    /// Sets whether the request waits for its client, and not for the endpoint.
    #[inline]
    pub(crate) fn set(&mut self, is_waiting: bool) {
        let Some(on_demand) = self
            .on_demand
            .as_ref()
            .filter(|_| self.is_waiting != is_waiting)
        else {
            return;
        };
        let waits = &on_demand.0.client_waits;
        match is_waiting {
            true if !waits.is_watched.load(Relaxed) => return,
            true => waits.count.fetch_add(1, Relaxed),
            // A wait that was counted is taken back, even if waits are not counted any more.
            false => waits.count.fetch_sub(1, Relaxed),
        };
        self.is_waiting = is_waiting;
    }

    /// Counts a part of the request that was sent, which ends the wait for the client.
    pub(crate) fn on_sent(&mut self) {
        if let Some(on_demand) = &self.on_demand {
            on_demand.0.client_waits.sent.fetch_add(1, Relaxed);
        }
        self.set(false);
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.set(false);
    }
}
