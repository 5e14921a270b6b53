//! A router that walks all endpoints and compares names for every request slows down with every model
//! that is added anywhere.
//!
//! A [`Fleet`] is the registry the other way round: from a model to its endpoints, the preferred first.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Demand, EndpointRef, Lane};
use crate::route::capabilities::Capabilities;
use crate::route::slots::Load;
use crate::route::{Model, Registry, Requirements, RouteError};
use crate::{Denied, Pool, Pools};

#[derive(Debug)]
pub(super) struct Fleet {
    registry: Arc<Registry>,
    endpoints: Arc<[EndpointRef]>,
    models: HashMap<Arc<str>, Served>,
}

/// Where a model is served.
#[derive(Debug, Default)]
struct Served {
    /// By priority, then in the registry's order.
    candidates: Vec<Candidate>,
    /// The context lengths to be had, each once, ascending.
    contexts: Vec<u32>,
}

/// An endpoint that serves a model, and what it can do with it.
#[derive(Debug)]
struct Candidate {
    endpoint: EndpointRef,
    context_length: u32,
    capabilities: Capabilities,
}

impl Fleet {
    pub(super) fn new(registry: Registry) -> Self {
        let endpoints: Arc<[EndpointRef]> = (0..)
            .zip(registry.endpoints())
            .map(|(index, endpoint)| EndpointRef::new(endpoint, Pool(index)))
            .collect();
        let mut models: HashMap<Arc<str>, Served> = HashMap::new();
        for (endpoint, config) in endpoints.iter().zip(registry.endpoints()) {
            for model in &config.models {
                let served = models.entry(model.name.as_str().into()).or_default();
                served
                    .candidates
                    .push(Candidate::new(endpoint.clone(), model));
                served.contexts.push(model.context_length);
            }
        }
        for Served {
            candidates,
            contexts,
        } in models.values_mut()
        {
            candidates.sort_by_key(|candidate| candidate.endpoint.priority()); // stable
            contexts.sort_unstable();
            contexts.dedup();
        }
        Self {
            registry: Arc::new(registry),
            endpoints,
            models,
        }
    }

    pub(super) fn registry(&self) -> Arc<Registry> {
        self.registry.clone()
    }

    pub(super) fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.endpoints.clone()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &EndpointRef> {
        self.endpoints.iter()
    }

    pub(super) fn demand(&self, asked: &Requirements<'_>) -> Demand {
        let needs = Capabilities::NONE
            .with(Capabilities::VISION, asked.vision)
            .with(Capabilities::TOOLS, asked.tools)
            .with(Capabilities::JSON_MODE, asked.json_mode);
        let tokens = asked.estimated_tokens;
        let (model, context_length) = match self.models.get_key_value(&*asked.model) {
            Some((model, Served { contexts, .. })) => {
                let enough = contexts.iter().find(|&&context| context >= tokens);
                (model.clone(), *enough.unwrap_or(&tokens))
            }
            None => (Arc::from(&*asked.model), tokens),
        };
        Demand {
            lane: Lane {
                model,
                needs,
                context_length,
            },
        }
    }

    /// The endpoint that should serve `lane` now, and its load, under which it had a slot free.
    pub(super) fn choose(&self, lane: &Lane) -> Result<(&EndpointRef, Load), Denied<RouteError>> {
        let candidates = self.candidates(lane);
        let mut best: Option<(&EndpointRef, Load)> = None;
        let mut healthy = false;
        for Candidate { endpoint, .. } in candidates
            .iter()
            .filter(|candidate| candidate.can_serve(lane))
        {
            // Of those that come later, none is preferred to one that idles, or to one of lower number.
            if best.is_some_and(|(chosen, seen)| {
                seen.in_use == 0 || chosen.priority() < endpoint.priority()
            }) {
                break;
            }
            if !endpoint.healthy() {
                continue;
            }
            healthy = true;
            let load = endpoint.slots().load();
            if load.free() > 0 && best.is_none_or(|(_, seen)| load.is_idler_than(seen)) {
                best = Some((endpoint, load));
            }
        }
        match best {
            Some(chosen) => Ok(chosen),
            None if healthy => Err(Denied::Busy),
            None => Err(Denied::Never(never(candidates, lane))),
        }
    }

    pub(super) fn pools(&self, lane: &Lane) -> Pools {
        let candidates = self.candidates(lane).iter();
        let capable = candidates.filter(|candidate| candidate.can_serve(lane));
        capable.map(|candidate| candidate.endpoint.pool()).collect()
    }

    fn candidates(&self, lane: &Lane) -> &[Candidate] {
        self.models
            .get(&lane.model)
            .map_or(&[], |served| &served.candidates)
    }
}

impl Candidate {
    fn new(endpoint: EndpointRef, model: &Model) -> Self {
        Self {
            endpoint,
            context_length: model.context_length,
            capabilities: Capabilities::NONE
                .with(Capabilities::VISION, model.vision)
                .with(Capabilities::TOOLS, model.tools)
                .with(Capabilities::JSON_MODE, model.json_mode),
        }
    }

    fn can_serve(&self, lane: &Lane) -> bool {
        self.lacks(lane) == Capabilities::NONE
    }

    fn lacks(&self, lane: &Lane) -> Capabilities {
        lane.needs.without(self.capabilities).with(
            Capabilities::CONTEXT_LENGTH,
            self.context_length < lane.context_length,
        )
    }
}

/// Why none of `candidates` will serve `lane`.
fn never(candidates: &[Candidate], lane: &Lane) -> RouteError {
    let model = lane.model.clone();
    if candidates.is_empty() {
        return RouteError::ModelNotFound { model };
    }
    if candidates.iter().any(|candidate| candidate.can_serve(lane)) {
        return RouteError::NoHealthyBackend { model };
    }
    let lacks = || candidates.iter().map(|candidate| candidate.lacks(lane));
    // What nobody has; or, if each has what others lack, all that is not everywhere.
    let missing = match lacks().reduce(Capabilities::and) {
        None | Some(Capabilities::NONE) => lacks().fold(Capabilities::NONE, Capabilities::or),
        Some(nowhere) => nowhere,
    };
    RouteError::CapabilityMismatch {
        model,
        missing: missing.names().collect(),
    }
}
