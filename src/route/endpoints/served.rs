//! Where a model is served, and what is known of it beyond one snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::{EndpointRef, Lane, Live};
use crate::route::capabilities::Capabilities;
use crate::route::{Model, RouteError};

/// A model, and who serves it.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) model: Arc<str>,
    /// In the registry's order.
    pub(super) servers: Vec<Server>,
    pub(super) memory: Arc<Memory>,
}

/// What is remembered of a model while its endpoints change.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// How many turns were given to requests for it.
    pub(super) turns: AtomicU64,
    /// One of its endpoints may be waiting for its trial.
    pub(super) has_trial: AtomicBool,
}

/// An endpoint that serves a model, and what it can do with it.
#[derive(Debug)]
pub(in crate::route) struct Server {
    pub(in crate::route) endpoint: EndpointRef,
    /// The endpoint's, one step nearer.
    pub(in crate::route) live: Arc<Live>,
    pub(in crate::route) priority: u32,
    /// Of the endpoint's name.
    pub(in crate::route) hash: u64,
    /// Which of the endpoint's models it is.
    pub(in crate::route) nth_model: usize,
    pub(super) context_length: u32,
    capabilities: Capabilities,
}

impl Served {
    pub(super) fn new(model: Arc<str>, memory: Option<Arc<Memory>>) -> Self {
        Self {
            model,
            servers: Vec::new(),
            memory: memory.unwrap_or_default(),
        }
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
    pub(super) fn new(endpoint: EndpointRef, model: &Model, nth: usize) -> Self {
        Self {
            nth_model: nth,
            live: endpoint.live_handle(),
            priority: endpoint.priority(),
            hash: hash(endpoint.name()),
            context_length: model.context_length,
            capabilities: Capabilities::NONE
                .with(Capabilities::VISION, model.vision)
                .with(Capabilities::TOOLS, model.tools)
                .with(Capabilities::JSON_MODE, model.json_mode),
            endpoint,
        }
    }

    #[inline]
    pub(in crate::route) fn can_serve(&self, lane: &Lane) -> bool {
        self.lacks(lane) == Capabilities::NONE
    }

    #[inline]
    fn lacks(&self, lane: &Lane) -> Capabilities {
        lane.needs.without(self.capabilities).with(
            Capabilities::CONTEXT_LENGTH,
            self.context_length < lane.context_length,
        )
    }
}

/// FNV-1a: the same in every process, so that a restart leaves warm endpoints warm.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
