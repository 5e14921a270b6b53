//! Where a model is served, and what is known of it beyond one snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::endpoint_ref::Live;
use super::lane::Asks;
use super::{EndpointRef, Lane};
use crate::endpoints::availability::Admits;
use crate::endpoints::capabilities::Capabilities;
use crate::endpoints::slots::Load;
use crate::endpoints::{Model, RouteError};

/// A model, and who serves it.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) model: Arc<str>,
    /// In the registry's order.
    pub(super) servers: Vec<Server>,
    /// Whose each of the servers is.
    pub(super) endpoints: Vec<EndpointRef>,
    /// How many turns were given to requests for it, by earlier snapshots as well.
    pub(super) turns: Arc<AtomicU64>,
    /// One of its endpoints may be waiting for its trial.
    pub(super) may_have_trial: AtomicBool,
}

/// What a decision has to know of an endpoint that serves a model. Small: a decision walks over all of them.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) live: Arc<Live>,
    /// Which of the endpoint's models it is, if it is not one of too many.
    pub(crate) nth_model: u16,
    pub(super) context_length: u32,
    pub(crate) priority: u8,
    capabilities: Capabilities,
}

impl Served {
    /// Served by nobody yet. `old` is the same model in the snapshot before.
    pub(super) fn new(model: Arc<str>, old: Option<&Self>) -> Self {
        Self {
            model,
            servers: Vec::new(),
            endpoints: Vec::new(),
            turns: old.map(|old| Arc::clone(&old.turns)).unwrap_or_default(),
            // The first who passes by looks.
            may_have_trial: AtomicBool::new(true),
        }
    }

    /// `endpoint` serves it, too, as the `nth` of its models.
    pub(super) fn push(&mut self, endpoint: EndpointRef, model: &Model, nth: usize) {
        self.servers.push(Server::new(&endpoint, model, nth));
        self.endpoints.push(endpoint);
    }

    /// What nobody here can do of what `lane` needs; or, if each can do what others can't, all that is not
    /// everywhere. `None` if somebody can do all of it.
    pub(super) fn missing(&self, lane: &Lane) -> Option<RouteError> {
        let lacks = || self.servers.iter().map(|server| server.lacks(lane));
        if lacks().any(|lacks| lacks == Capabilities::NONE) {
            return None;
        }
        let missing = match lacks().reduce(Capabilities::and) {
            None | Some(Capabilities::NONE) => lacks().fold(Capabilities::NONE, Capabilities::or),
            Some(nowhere) => nowhere,
        };
        Some(RouteError::CapabilityMismatch {
            model: self.model.clone(),
            missing: missing.names().collect(),
        })
    }
}

impl Server {
    /// `endpoint` with the `nth` of its models.
    fn new(endpoint: &EndpointRef, model: &Model, nth: usize) -> Self {
        Self {
            nth_model: u16::try_from(nth).unwrap_or(u16::MAX),
            live: endpoint.live_handle(),
            priority: endpoint.priority_byte(),
            context_length: model.context_length,
            capabilities: Capabilities::NONE
                .with(Capabilities::VISION, model.vision)
                .with(Capabilities::TOOLS, model.tools)
                .with(Capabilities::JSON_MODE, model.json_mode),
        }
    }

    /// How busy the endpoint is, if a strategy may choose it for a request that asks so: among those that come first, or
    /// `last`.
    #[inline]
    pub(crate) fn offer(&self, asks: Asks<'_>, last: bool) -> Option<Load> {
        if !self.is_able(asks) {
            return None;
        }
        let seen = self.live.availability.slots.load();
        let may = seen.marks().are_offered(last) && !asks.leaves_out(self.live.pool);
        may.then_some(seen)
    }

    /// Whether the endpoint may be given a request that asks so, when it has a slot free.
    pub(super) fn may_serve(&self, asks: Asks<'_>) -> bool {
        let marks = self.live.availability.slots.load().marks();
        self.is_able(asks) && marks.admit() != Admits::None && !asks.leaves_out(self.live.pool)
    }

    #[inline]
    fn is_able(&self, asks: Asks<'_>) -> bool {
        asks.needs.without(self.capabilities) == Capabilities::NONE
            && asks.context_length <= self.context_length
    }

    /// Whether a request that asks so may wait for the endpoint to be back in service. One that comes back from
    /// a failure does not: it has an answer already.
    pub(super) fn is_expected_back(&self, asks: Asks<'_>) -> bool {
        let marks = self.live.availability.slots.load().marks();
        !asks.is_retry() && self.is_able(asks) && marks.is_recovering()
    }

    fn lacks(&self, lane: &Lane) -> Capabilities {
        lane.needs.without(self.capabilities).with(
            Capabilities::CONTEXT_LENGTH,
            self.context_length < lane.context_length,
        )
    }
}
