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

    #[inline]
    fn watches_client_waits(&self) -> bool {
        self.0.client_waits.is_watched.load(Relaxed)
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

/// The wait of one direction of a request for its client, which begins as `false` and has to end as `false`.
#[derive(Debug, Default)]
pub(crate) struct ClientWait(bool);

impl ClientWait {
    /// Sets whether a request to this endpoint waits for its client.
    #[inline]
    pub(crate) fn set(&mut self, is_waiting: bool, endpoint: &EndpointRef) {
        let is_watched = || {
            endpoint
                .on_demand()
                .is_some_and(OnDemand::watches_client_waits)
        };
        // A wait that was counted is taken back, even if waits are not counted any more.
        if self.0 != is_waiting
            && (self.0 || is_watched())
            && let Some(on_demand) = endpoint.on_demand()
        {
            self.count(is_waiting, on_demand);
        }
    }

    #[cold]
    fn count(&mut self, is_waiting: bool, on_demand: &OnDemand) {
        let count = &on_demand.0.client_waits.count;
        match (std::mem::replace(&mut self.0, is_waiting), is_waiting) {
            (false, true) => _ = count.fetch_add(1, Relaxed),
            (true, false) => _ = count.fetch_sub(1, Relaxed),
            _ => {}
        }
    }
}

/// The wait of a request body for its client.
#[derive(Debug, Default)]
pub(crate) struct UploadWait(Option<CountedUpload>);

#[derive(Debug)]
struct CountedUpload {
    on_demand: OnDemand,
    clients: ClientWait,
}

impl UploadWait {
    /// Returns the wait of a request to this endpoint.
    #[inline]
    pub(crate) fn at(endpoint: &EndpointRef) -> Self {
        let on_demand = endpoint.on_demand();
        let on_demand = on_demand.filter(|it| it.watches_client_waits());
        Self(on_demand.cloned().map(|on_demand| CountedUpload {
            on_demand,
            clients: ClientWait::default(),
        }))
    }

    /// Sets whether the body waits for the client, and not for the endpoint.
    #[inline]
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        if let Some(watched) = &mut self.0 {
            watched.clients.count(is_waiting, &watched.on_demand);
        }
    }

    /// Counts a part of the request that was sent, which ends the wait for the client.
    pub(crate) fn on_sent(&mut self) {
        if let Some(watched) = &mut self.0 {
            watched.on_demand.0.client_waits.sent.fetch_add(1, Relaxed);
        }
        self.set_waiting(false);
    }
}

impl Drop for CountedUpload {
    fn drop(&mut self) {
        self.clients.count(false, &self.on_demand);
    }
}
