//! Requests that wait for their clients: for more of the request, or until the response is read.
//!
//! An endpoint that is silent for too long counts as hung. In such a request it has to be silent, so the request does
//! not count.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // numbers that are looked at again

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The waits in all requests of an endpoint.
#[derive(Debug, Default)]
pub(super) struct ClientWaits {
    is_watched: AtomicBool,
    /// How many there are.
    count: AtomicU32,
    /// How many parts of requests were sent; it wraps around.
    sent: AtomicU32,
}

impl OnDemand {
    /// From now on they are counted, or not any more.
    pub(crate) fn watch_client_waits(&self, is_watched: bool) {
        self.0.client_waits.is_watched.store(is_watched, Relaxed);
    }

    #[inline]
    fn watches_client_waits(&self) -> bool {
        self.0.client_waits.is_watched.load(Relaxed)
    }

    /// How many requests wait for their clients. One that waits in both directions counts twice.
    pub(crate) fn client_waits(&self) -> u32 {
        self.0.client_waits.count.load(Relaxed)
    }

    /// How many parts of requests were sent; it wraps around.
    pub(crate) fn sent(&self) -> u32 {
        self.0.client_waits.sent.load(Relaxed)
    }
}

/// Whether one direction of a request waits for the client. At first it does not, and in the end it must not.
#[derive(Debug, Default)]
pub(crate) struct ClientWait(bool);

impl ClientWait {
    /// Of a request to this endpoint.
    #[inline]
    pub(crate) fn set(&mut self, is_waiting: bool, endpoint: &EndpointRef) {
        let is_watched = || {
            endpoint
                .on_demand()
                .is_some_and(OnDemand::watches_client_waits)
        };
        // One that was counted is taken back, also when they are not counted any more.
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

/// Whether a request body waits for the client.
#[derive(Debug, Default)]
pub(crate) struct UploadWait(Option<Watched>);

#[derive(Debug)]
struct Watched {
    on_demand: OnDemand,
    clients: ClientWait,
}

impl UploadWait {
    /// Of a request to this endpoint.
    #[inline]
    pub(crate) fn at(endpoint: &EndpointRef) -> Self {
        let on_demand = endpoint.on_demand();
        let on_demand = on_demand.filter(|it| it.watches_client_waits());
        Self(on_demand.cloned().map(|on_demand| Watched {
            on_demand,
            clients: ClientWait::default(),
        }))
    }

    /// It waits for the client, or for the endpoint.
    #[inline]
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        if let Some(watched) = &mut self.0 {
            watched.clients.count(is_waiting, &watched.on_demand);
        }
    }

    /// A part of the request was sent: it does not wait for the client.
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
