//! Counts the requests that wait for their clients, either for more of the request or until the response is read.
//!
//! An endpoint that is silent for too long counts as hung. While a request waits for its client, the endpoint has to be
//! silent, so such requests are left out.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // numbers that are read again

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The counters of the waits in all requests of an endpoint.
#[derive(Debug, Default)]
pub(super) struct ClientWaits {
    is_watched: AtomicBool,
    /// The number of waits at present.
    count: AtomicU32,
    /// The number of parts of requests that were sent. It wraps around.
    sent: AtomicU32,
}

impl OnDemand {
    /// Starts or stops the count of waits.
    pub(crate) fn watch_client_waits(&self, is_watched: bool) {
        self.0.client_waits.is_watched.store(is_watched, Relaxed);
    }

    #[inline]
    fn watches_client_waits(&self) -> bool {
        self.0.client_waits.is_watched.load(Relaxed)
    }

    /// Returns the number of requests that wait for their clients. A request that waits in both directions counts
    /// twice.
    pub(crate) fn client_waits(&self) -> u32 {
        self.0.client_waits.count.load(Relaxed)
    }

    /// Returns the number of parts of requests that were sent. It wraps around.
    pub(crate) fn sent(&self) -> u32 {
        self.0.client_waits.sent.load(Relaxed)
    }
}

/// A flag that is `true` while one direction of a request waits for the client and is counted. It must be `false` again
/// before it is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClientWait(bool);

impl ClientWait {
    /// Sets whether this direction of a request to `endpoint` waits for the client.
    #[inline]
    pub(crate) fn set(&mut self, is_waiting: bool, endpoint: &EndpointRef) {
        let is_watched = || {
            endpoint
                .on_demand()
                .is_some_and(OnDemand::watches_client_waits)
        };
        // A wait that was counted is taken back even if the count has been stopped meanwhile.
        if self.0 != is_waiting
            && (self.0 || is_watched())
            && let Some(on_demand) = endpoint.on_demand()
        {
            self.count(is_waiting, on_demand);
        }
    }

    /// Sets the flag, and updates the count if the flag has changed.
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

/// A guard that counts a request body while it waits for the client.
#[derive(Debug, Default)]
pub(crate) struct UploadWait(Option<Watched>);

#[derive(Debug)]
struct Watched {
    on_demand: OnDemand,
    clients: ClientWait,
}

impl UploadWait {
    /// Makes the guard for a request to this endpoint. It counts only if the count is on.
    #[inline]
    pub(crate) fn at(endpoint: &EndpointRef) -> Self {
        let on_demand = endpoint.on_demand();
        let on_demand = on_demand.filter(|it| it.watches_client_waits());
        Self(on_demand.cloned().map(|on_demand| Watched {
            on_demand,
            clients: ClientWait::default(),
        }))
    }

    /// Sets whether the body waits for the client, rather than for the endpoint.
    #[inline]
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        if let Some(watched) = &mut self.0 {
            watched.clients.count(is_waiting, &watched.on_demand);
        }
    }

    /// Records that a part of the request was sent, so that the body does not wait for the client.
    pub(crate) fn on_sent(&mut self) {
        if let Some(watched) = &mut self.0 {
            watched.on_demand.0.client_waits.sent.fetch_add(1, Relaxed);
        }
        self.set_waiting(false);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.clients.count(false, &self.on_demand);
    }
}
