//! Whose turn it is in a request: its endpoint's, or its client's.
//!
//! An endpoint that hangs is told by its silence. But it has to be silent while its client sends no more of the request,
//! or reads no more of the response.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // numbers that are looked at again

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The turns of all requests of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Turns {
    is_watched: AtomicBool,
    /// In how many requests it is the client's.
    of_clients: AtomicU32,
    /// How many parts of requests were sent; it wraps around.
    sent: AtomicU32,
}

impl OnDemand {
    /// From now on it matters whose turn it is.
    pub(crate) fn watch_turns(&self, is_watched: bool) {
        self.0.turns.is_watched.store(is_watched, Relaxed);
    }

    #[inline]
    fn watches_turns(&self) -> bool {
        self.0.turns.is_watched.load(Relaxed)
    }

    /// In how many requests it is the client's turn. One whose client neither sends nor reads counts twice.
    pub(crate) fn clients_turns(&self) -> u32 {
        self.0.turns.of_clients.load(Relaxed)
    }

    /// How many parts of requests were sent; it wraps around.
    pub(crate) fn sent(&self) -> u32 {
        self.0.turns.sent.load(Relaxed)
    }
}

/// Whether it is the client's turn in one direction of a request. At first it is the endpoint's, and so it has to be in
/// the end.
#[derive(Debug, Default)]
pub(crate) struct ClientsTurn(bool);

impl ClientsTurn {
    /// Of a request to this endpoint.
    #[inline]
    pub(crate) fn set(&mut self, is_clients: bool, endpoint: &EndpointRef) {
        let is_watched = || endpoint.on_demand().is_some_and(OnDemand::watches_turns);
        // One that was counted is taken back also if it does not matter any more.
        if self.0 != is_clients
            && (self.0 || is_watched())
            && let Some(on_demand) = endpoint.on_demand()
        {
            self.count(is_clients, on_demand);
        }
    }

    #[cold]
    fn count(&mut self, is_clients: bool, on_demand: &OnDemand) {
        let of_clients = &on_demand.0.turns.of_clients;
        match (std::mem::replace(&mut self.0, is_clients), is_clients) {
            (false, true) => _ = of_clients.fetch_add(1, Relaxed),
            (true, false) => _ = of_clients.fetch_sub(1, Relaxed),
            _ => {}
        }
    }
}

/// Whose turn it is in a request body.
#[derive(Debug, Default)]
pub(crate) struct Turn(Option<Watched>);

#[derive(Debug)]
struct Watched {
    on_demand: OnDemand,
    clients: ClientsTurn,
}

impl Turn {
    /// Of a request to this endpoint.
    #[inline]
    pub(crate) fn at(endpoint: &EndpointRef) -> Self {
        let on_demand = endpoint.on_demand();
        let on_demand = on_demand.filter(|it| it.watches_turns());
        Self(on_demand.cloned().map(|on_demand| Watched {
            on_demand,
            clients: ClientsTurn::default(),
        }))
    }

    /// It is the client's, or the endpoint's.
    #[inline]
    pub(crate) fn set_clients(&mut self, is_clients: bool) {
        if let Some(watched) = &mut self.0 {
            watched.clients.count(is_clients, &watched.on_demand);
        }
    }

    /// A part of the request was sent. It is the endpoint's turn.
    pub(crate) fn on_sent(&mut self) {
        if let Some(watched) = &mut self.0 {
            watched.on_demand.0.turns.sent.fetch_add(1, Relaxed);
        }
        self.set_clients(false);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.clients.count(false, &self.on_demand);
    }
}
