//! The endpoints that serve one model, with the tests that decide which of them can serve a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tower::retry::budget::TpsBudget;

use super::endpoint_ref::EndpointState;
use super::endpoint_word::{Admissible, HealthFlags, Snapshot};
use super::lane::Capabilities;
use super::on_demand::OnDemand;
use super::{EndpointRef, Lane, Model, RouteError};

/// A model with the endpoints that serve it.
#[derive(Debug)]
pub(super) struct ModelBackends {
    pub(super) model: Arc<str>,
    /// The index of the model in the table's list of models.
    pub(super) idx: usize,
    /// The endpoints, in the order of the registry.
    pub(super) backends: Vec<Backend>,
    /// The next rotation number, which earlier tables share.
    pub(super) rotation: Arc<AtomicU64>,
    /// The retries that the model may still have, so that a failing model does not use up those of another one. Earlier
    /// tables share them, unless the share of retries has changed.
    pub(super) retry_budget: Arc<TpsBudget>,
    /// `true` if an endpoint may be half open. A false alarm only costs a look at all endpoints.
    pub(super) may_be_half_open: AtomicBool,
}

/// The part of an endpoint that a decision reads for one model. It is small because a decision reads all endpoints.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) endpoint: EndpointRef,
    /// The endpoint's state, which is here so that a decision saves the way through `endpoint`.
    pub(crate) state: Arc<EndpointState>,
    /// The index of the model in the endpoint's list of models. It is `u16::MAX` if the index is larger than that.
    pub(crate) nth_model: u16,
    /// The context of the model, or `u32::MAX` if it is not known.
    pub(super) context_length: u32,
    pub(crate) priority: u8,
    capabilities: Capabilities,
}

impl ModelBackends {
    /// Makes the list without endpoints yet. It continues the rotation of `old`, which is the same model in the table
    /// before.
    pub(super) fn new(
        model: &str,
        idx: usize,
        old: Option<&Self>,
        retry_budget: Arc<TpsBudget>,
    ) -> Self {
        Self {
            model: model.into(),
            idx,
            backends: Vec::new(),
            rotation: old.map(|old| Arc::clone(&old.rotation)).unwrap_or_default(),
            retry_budget,
            may_be_half_open: AtomicBool::new(true), // the first decision clears it if that is wrong
        }
    }

    /// Lets endpoints take requests whose fields they get without, if no endpoint has the capability that the field asks for.
    pub(super) fn ignore_stripped(&mut self) {
        let capabilities = self.backends.iter().map(|backend| backend.capabilities);
        let somewhere: Capabilities = capabilities.collect();
        for backend in &mut self.backends {
            backend.capabilities |= backend.stripped() - somewhere;
        }
    }

    /// Returns the reason why requests cannot wait for a stopped endpoint, if its driver has set a reason.
    pub(super) fn refusal(&self) -> Option<RouteError> {
        let endpoints = self.backends.iter().map(|backend| &backend.endpoint);
        let mut stopped = endpoints.filter(|endpoint| endpoint.is_stopped());
        stopped.find_map(|endpoint| endpoint.on_demand()?.refusal(&self.model))
    }

    /// Returns the capabilities that are missing here, or `None` if one endpoint has all that `lane` needs.
    pub(super) fn missing(&self, lane: &Lane) -> Option<Capabilities> {
        let lacks = || self.backends.iter().map(|backend| backend.lacks(lane));
        if lacks().any(|lacks| lacks.is_empty()) {
            return None;
        }
        // These are the capabilities that all endpoints lack, or else those that any of them lacks.
        let nowhere = lacks().reduce(|a, b| a & b).filter(|it| !it.is_empty());
        Some(nowhere.unwrap_or_else(|| lacks().collect()))
    }

    /// Returns the longest context among the endpoints that lack nothing else of what `lane` needs.
    pub(super) fn longest_context(&self, lane: &Lane) -> Option<u32> {
        let too_short = |backend: &&Backend| backend.lacks(lane) == Capabilities::CONTEXT_LENGTH;
        let backends = self.backends.iter().filter(too_short);
        backends.map(|backend| backend.context_length).max()
    }
}

impl Backend {
    /// Makes the entry of an endpoint, for which this is the `nth` model.
    pub(super) fn new(endpoint: &EndpointRef, model: &Model, nth: usize) -> Self {
        Self {
            endpoint: endpoint.clone(),
            nth_model: u16::try_from(nth).unwrap_or(u16::MAX),
            state: Arc::clone(endpoint.state()),
            priority: endpoint.priority() as u8, // at most 100
            context_length: model.context_length.unwrap_or(u32::MAX),
            // An endpoint of unknown capabilities decides by itself.
            capabilities: Capabilities::of(
                model.vision.unwrap_or(true),
                model.tools.unwrap_or(true),
                model.json_mode.unwrap_or(true),
            ),
        }
    }

    /// Returns the capabilities that fields ask for which the model removes from bodies.
    fn stripped(&self) -> Capabilities {
        let models = &self.endpoint.config().models;
        let model = models.get(usize::from(self.nth_model));
        model.map_or(Capabilities::empty(), |model| {
            Capabilities::of_fields(&model.strip_params)
        })
    }

    /// Returns the endpoint's word if a strategy may choose the endpoint in this round.
    #[inline]
    pub(crate) fn offer(&self, query: &Lane, last_resort: bool) -> Option<Snapshot> {
        // This check comes before the read of the word, which may be in another core's cache.
        if !self.is_capable(query) {
            return None;
        }
        let seen = self.state.word.load();
        let may = seen.flags().are_offered(last_resort)
            && !query.excludes(&self.state)
            && !query.avoids(&self.state);
        may.then_some(seen)
    }

    /// Returns `true` if the endpoint may serve `query`, either now or when it has a slot free.
    pub(super) fn may_serve(&self, query: &Lane) -> bool {
        let flags = self.state.word.load().flags();
        self.is_capable(query)
            && flags.may_serve()
            && !query.excludes(&self.state)
            && !self.is_refused(flags)
    }

    /// Returns `true` if the endpoint is stopped and its driver rejects requests for it.
    fn is_refused(&self, flags: HealthFlags) -> bool {
        let on_demand = self.endpoint.on_demand();
        flags.contains(HealthFlags::STOPPED) && on_demand.is_some_and(OnDemand::is_refused)
    }

    #[inline]
    pub(super) fn is_capable(&self, query: &Lane) -> bool {
        self.has(query.needs) && query.context_length <= self.context_length
    }

    /// Returns `true` if the endpoint has these capabilities, whatever its context is.
    #[inline]
    pub(super) fn has(&self, needs: Capabilities) -> bool {
        self.capabilities.contains(needs)
    }

    /// Returns `true` if the endpoint answers, and can serve what `other` can.
    pub(super) fn can_replace(&self, other: &Self) -> bool {
        self.has(other.capabilities)
            && self.context_length >= other.context_length
            && self.state.word.flags().admissible() == Admissible::Always
            && self.endpoint.limit() > 0
    }

    /// Returns `true` if `query` may wait for the endpoint to come back into service. A retry may not, because its
    /// client can have the response of the failed attempt.
    pub(super) fn is_expected_back(&self, query: &Lane) -> bool {
        let flags = self.state.word.load().flags();
        query.failed_at.is_none()
            && self.is_capable(query)
            && flags.is_recovering()
            && !self.is_refused(flags)
    }

    /// Returns the capabilities that `lane` needs and the endpoint lacks.
    fn lacks(&self, lane: &Lane) -> Capabilities {
        let mut lacks = lane.needs - self.capabilities;
        let too_short = self.context_length < lane.context_length;
        lacks.set(Capabilities::CONTEXT_LENGTH, too_short);
        lacks
    }
}
