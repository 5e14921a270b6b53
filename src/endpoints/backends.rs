//! The endpoints that serve one model, and which of them can serve a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::capabilities::Capabilities;
use super::endpoint_ref::EndpointState;
use super::endpoint_word::{HealthFlags, Snapshot};
#[cfg(feature = "swap")]
use super::on_demand::OnDemand;
use super::{EndpointRef, Lane, Model, RouteError};

/// A model and the endpoints that serve it.
#[derive(Debug)]
pub(super) struct ModelBackends {
    pub(super) model: Arc<str>,
    /// Its place among the models of the table.
    pub(super) idx: usize,
    /// In the registry's order.
    pub(super) backends: Vec<Backend>,
    /// The next rotation number, shared with earlier tables.
    pub(super) rotation: Arc<AtomicU64>,
    /// Set if one of the endpoints may be half open. It may be set for nothing.
    pub(super) may_be_half_open: AtomicBool,
}

/// What a decision reads of an endpoint that serves a model. Small, because a decision reads all of them.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) endpoint: EndpointRef,
    /// The endpoint's, without the way through it.
    pub(crate) state: Arc<EndpointState>,
    /// The model's index among those of the endpoint, or `u16::MAX` beyond that.
    pub(crate) nth_model: u16,
    pub(super) context_length: u32,
    pub(crate) priority: u8,
    capabilities: Capabilities,
}

impl ModelBackends {
    /// Without endpoints yet. `old` is the same model in the table before.
    pub(super) fn new(model: &str, idx: usize, old: Option<&Self>) -> Self {
        Self {
            model: model.into(),
            idx,
            backends: Vec::new(),
            rotation: old.map(|old| Arc::clone(&old.rotation)).unwrap_or_default(),
            may_be_half_open: AtomicBool::new(true), // the first decision finds out
        }
    }

    /// What is missing here of what `lane` needs. `None` if one endpoint has all of it.
    pub(super) fn missing(&self, lane: &Lane) -> Option<RouteError> {
        let lacks = || self.backends.iter().map(|backend| backend.lacks(lane));
        if lacks().any(|lacks| lacks.is_empty()) {
            return None;
        }
        // What every endpoint lacks; if each lacks something else, all of that.
        let nowhere = lacks().reduce(|a, b| a & b);
        let missing = match nowhere.filter(|nowhere| !nowhere.is_empty()) {
            Some(nowhere) => nowhere,
            None => lacks().fold(Capabilities::empty(), |a, b| a | b),
        };
        Some(RouteError::CapabilityMismatch {
            model: self.model.clone(),
            missing: missing.names().collect(),
        })
    }
}

impl Backend {
    /// An endpoint of which this is the `nth` model.
    pub(super) fn new(endpoint: &EndpointRef, model: &Model, nth: usize) -> Self {
        Self {
            endpoint: endpoint.clone(),
            nth_model: u16::try_from(nth).unwrap_or(u16::MAX),
            state: Arc::clone(endpoint.state()),
            priority: endpoint.priority_byte(),
            context_length: model.context_length,
            capabilities: Capabilities::of(model.vision, model.tools, model.json_mode),
        }
    }

    /// The endpoint's word, if a strategy may choose it: in the first round, or in the last one.
    #[inline]
    pub(crate) fn offer(&self, query: &Lane, last_resort: bool) -> Option<Snapshot> {
        // Before the word is read: it may be in another core's cache.
        if !self.is_capable(query) {
            return None;
        }
        let seen = self.state.word.load();
        let may = seen.flags().are_offered(last_resort) && !query.excludes(&self.state);
        may.then_some(seen)
    }

    /// Whether the endpoint may serve `query`, now or when it has a slot free.
    pub(super) fn may_serve(&self, query: &Lane) -> bool {
        let flags = self.state.word.load().flags();
        self.is_capable(query)
            && flags.may_serve()
            && !query.excludes(&self.state)
            && !self.is_refused(flags)
    }

    /// Whether it does not run, and can't be waited for.
    #[cfg(feature = "swap")]
    fn is_refused(&self, flags: HealthFlags) -> bool {
        let on_demand = self.endpoint.on_demand();
        flags.contains(HealthFlags::STOPPED) && on_demand.is_some_and(OnDemand::is_refused)
    }

    #[cfg(not(feature = "swap"))]
    fn is_refused(&self, _: HealthFlags) -> bool {
        false
    }

    /// Why it can't be waited for, if it does not run.
    #[cfg(feature = "swap")]
    pub(super) fn refusal(&self, model: &Arc<str>) -> Option<RouteError> {
        let on_demand = self.endpoint.on_demand()?;
        on_demand
            .refusal(model)
            .filter(|_| self.endpoint.is_stopped())
    }

    #[inline]
    pub(super) fn is_capable(&self, query: &Lane) -> bool {
        self.capabilities.contains(query.needs) && query.context_length <= self.context_length
    }

    /// Whether `query` may wait for the endpoint to be back in service. A retry does not: it has a response already.
    pub(super) fn is_expected_back(&self, query: &Lane) -> bool {
        let flags = self.state.word.load().flags();
        query.failed_at.is_none()
            && self.is_capable(query)
            && flags.is_recovering()
            && !self.is_refused(flags)
    }

    fn lacks(&self, lane: &Lane) -> Capabilities {
        let mut lacks = lane.needs - self.capabilities;
        let too_short = self.context_length < lane.context_length;
        lacks.set(Capabilities::CONTEXT_LENGTH, too_short);
        lacks
    }
}
