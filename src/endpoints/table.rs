//! The routing table: from a name to the models to try, and from a model to its endpoints.
//!
//! It is made once per change of the registry or the rules and never changes itself, so that a decision neither
//! compares names nor allocates.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::backends::{Backend, ModelBackends};
use super::capabilities::Capabilities;
use super::resolve::{Resolution, Resolutions, Target};
use super::strategy::{Candidate, Candidates, Choice, Strategy, ask};
use super::{
    Demand, EndpointRef, FallbackWhen, Lane, Registry, Requirements, RouteError, RoutingRules,
};
use crate::admit::{LeaseError, Partition, PoolSet};

#[derive(Debug)]
pub(super) struct RoutingTable {
    pub(super) registry: Arc<Registry>,
    pub(super) rules: Arc<RoutingRules>,
    pub(super) endpoints: Arc<[EndpointRef]>,
    /// Endpoints that are no longer registered and have requests in flight.
    pub(super) leaving: Vec<EndpointRef>,
    strategy: Arc<dyn Strategy>,
    strategy_name: &'static str,
    models: Vec<ModelBackends>,
    /// Indices into `models`.
    by_model: HashMap<Arc<str>, usize>,
    resolutions: Resolutions,
}

/// A slot that was taken, and why this one.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) choice: Choice<'a>,
    pub(super) target: &'a Target,
    pub(super) strategy: &'static str,
}

/// The result of trying one model.
enum TargetOutcome<'a> {
    Taken(Taken<'a>),
    Busy,
    /// No endpoint in service can serve it.
    Unavailable,
}

impl RoutingTable {
    /// `endpoints` are those of the registry, by the same index. Rotations go on from `old`.
    pub(super) fn new(
        registry: Arc<Registry>,
        rules: Arc<RoutingRules>,
        endpoints: Arc<[EndpointRef]>,
        leaving: Vec<EndpointRef>,
        old: Option<&Self>,
    ) -> Self {
        let mut models: Vec<ModelBackends> = Vec::new();
        let mut by_model: HashMap<Arc<str>, usize> = HashMap::new();
        for (endpoint, config) in endpoints.iter().zip(registry.endpoints()) {
            for (nth, model) in config.models.iter().enumerate() {
                let idx = match by_model.get(model.name.as_str()) {
                    Some(&idx) => idx,
                    None => {
                        let name: Arc<str> = model.name.as_str().into();
                        let before = old.and_then(|old| old.model(&name));
                        by_model.insert(name.clone(), models.len());
                        models.push(ModelBackends::new(name, before));
                        models.len() - 1
                    }
                };
                models[idx].push(endpoint.clone(), model, nth);
            }
        }
        let strategy = Arc::clone(&rules.strategy);
        Self {
            resolutions: Resolutions::new(&rules, &models, &by_model),
            strategy_name: strategy.name(),
            strategy,
            registry,
            rules,
            endpoints,
            leaving,
            models,
            by_model,
        }
    }

    pub(super) fn demand(&self, asked: &Requirements<'_>) -> Demand {
        let (name, resolution) = match self.resolutions.find(&asked.model) {
            Some((name, idx)) => (Arc::clone(name), Some(idx)),
            None => (Arc::from(&*asked.model), None),
        };
        Demand {
            asked: Lane {
                name,
                needs: Capabilities::of(asked.vision, asked.tools, asked.json_mode),
                context_length: asked.estimated_tokens,
                failed_at: None,
            },
            resolution,
            prefix: asked.prefix,
            retries: 0,
        }
    }

    /// The lane of `asked`: its tokens are rounded up to a context length that an endpoint has.
    pub(super) fn lane(&self, asked: &Lane) -> Lane {
        let tokens = asked.context_length;
        let resolution = self.resolutions.get(&asked.name);
        let contexts = resolution.map_or(&[][..], |resolution| &resolution.contexts);
        let enough = contexts.iter().find(|&&context| context >= tokens);
        Lane {
            context_length: *enough.unwrap_or(&tokens),
            ..asked.clone()
        }
    }

    /// The part of the waiting room for `lane`: that of the first model that it asks for.
    pub(super) fn partition(&self, lane: &Lane) -> Partition {
        let Some(idx) = self
            .targets(&lane.name)
            .iter()
            .find_map(|target| target.model_idx)
        else {
            return Partition::default();
        };
        let model = &self.models[idx];
        let Some(room) = self.rules.rooms.get(&*model.model) else {
            return Partition::default();
        };
        let slots = model.endpoints.iter();
        let slots = slots.map(|endpoint| endpoint.limit() as usize).sum();
        Partition {
            id: idx as u32 + 1, // 0 is the default partition
            max_size: room.max_size_for(slots, self.rules.room_ceiling),
            discipline: room.discipline,
        }
    }

    /// Takes a slot for `demand` where one is free.
    pub(super) fn take<'a>(
        &'a self,
        demand: &'a Demand,
    ) -> Result<Taken<'a>, LeaseError<RouteError>> {
        let lane = &demand.asked;
        let Some(resolution) = self.resolutions.at(demand.resolution, &lane.name) else {
            return Err(LeaseError::Unservable(self.not_configured(lane, None)));
        };
        // A later target is tried only if the earlier ones are unavailable, or busy and a fallback may be taken then.
        let mut busy = false;
        for target in &resolution.targets {
            match self.try_target(target, demand) {
                TargetOutcome::Taken(taken) => return Ok(taken),
                TargetOutcome::Busy if self.waits_for_first() => return Err(LeaseError::Busy),
                TargetOutcome::Busy => busy = true,
                TargetOutcome::Unavailable => {}
            }
        }
        match busy
            || self
                .expected_back(&resolution.targets, lane)
                .next()
                .is_some()
        {
            true => Err(LeaseError::Busy),
            false => Err(LeaseError::Unservable(self.why(resolution, lane))),
        }
    }

    /// Whether a demand waits for the first model that can serve it, rather than take a fallback.
    fn waits_for_first(&self) -> bool {
        self.rules.fallback_when == FallbackWhen::Unavailable
    }

    fn try_target<'a>(&'a self, target: &'a Target, demand: &'a Demand) -> TargetOutcome<'a> {
        let Some(model) = target.model_idx.map(|idx| &self.models[idx]) else {
            return TargetOutcome::Unavailable;
        };
        let mut candidates = Candidates {
            backends: &model.backends,
            endpoints: &model.endpoints,
            query: demand.asked.query(),
            last_resort: false,
            prefix: demand.prefix,
            next_rotation: &model.rotation,
            rotation: Cell::new(None),
            now: Cell::new(None),
        };
        // Lock-free: a round is repeated once for the last resort, or because another thread changed the word that was
        // chosen.
        loop {
            let Some(choice) = self.choose(model, &candidates) else {
                if !candidates.last_resort {
                    candidates.last_resort = true; // now the endpoints that are not checked yet
                    continue;
                }
                let may_serve = |backend: &Backend| backend.may_serve(candidates.query);
                return match model.backends.iter().any(may_serve) {
                    true => TargetOutcome::Busy,
                    false => TargetOutcome::Unavailable,
                };
            };
            let Candidate { backend, seen, .. } = choice.candidate;
            if backend.state.word.take(seen) {
                return TargetOutcome::Taken(Taken {
                    choice,
                    target,
                    strategy: self.strategy_name,
                });
            }
            // The word has changed. The preferred endpoints may have a slot by now.
            candidates.last_resort = false;
        }
    }

    fn choose<'a>(&self, model: &ModelBackends, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let choice = ask(&*self.strategy, candidates);
        // A strategy that chose a busy endpoint, or none, gets the first free one.
        let choice = choice
            .filter(|choice| choice.candidate.is_free())
            .or_else(|| candidates.free().next().map(Choice::new))?;
        // A probe goes first, or a strategy that avoids the endpoint would keep it half open.
        match half_open_candidate(model, candidates) {
            Some(other) if other.priority() <= choice.candidate.priority() => {
                Some(Choice::new(other))
            }
            _ => Some(choice),
        }
    }

    /// The pools in which [`take`](Self::take) would look for a slot now.
    pub(super) fn pools(&self, lane: &Lane) -> PoolSet {
        let targets = self.targets(&lane.name);
        let mut pools = Vec::new();
        for target in targets {
            let backends = self.backends(target);
            let able = backends.filter(|backend| backend.may_serve(lane.query()));
            pools.extend(able.map(|backend| backend.state.pool));
            if self.waits_for_first() && !pools.is_empty() {
                break;
            }
        }
        if pools.is_empty() {
            let expected = self.expected_back(targets, lane);
            pools.extend(expected.map(|backend| backend.state.pool));
        }
        pools.into_iter().collect()
    }

    fn targets(&self, name: &str) -> &[Target] {
        let resolution = self.resolutions.get(name);
        resolution.map_or(&[], |resolution| &resolution.targets)
    }

    fn backends(&self, target: &Target) -> impl Iterator<Item = &Backend> {
        let model = target.model_idx.map(|idx| &self.models[idx]);
        model.into_iter().flat_map(|model| &model.backends)
    }

    /// The endpoints for which `lane` waits if no endpoint in service can serve it: those that are out for a while.
    fn expected_back<'a>(
        &'a self,
        targets: &'a [Target],
        lane: &'a Lane,
    ) -> impl Iterator<Item = &'a Backend> {
        let backends = targets.iter().flat_map(|target| self.backends(target));
        backends.filter(|backend| backend.is_expected_back(lane.query()))
    }

    /// Why no endpoint will serve `lane`.
    fn why(&self, resolution: &Resolution, lane: &Lane) -> RouteError {
        let known = || {
            let targets = resolution.targets.iter();
            targets.filter_map(|target| target.model_idx)
        };
        let missing = known().map(|idx| self.models[idx].missing(lane));
        let Some(first) = known().next() else {
            return match resolution.has_fallbacks() {
                true => exhausted(resolution),
                false => self.not_configured(lane, resolution.alias_of()),
            };
        };
        // If every model lacks something, the request is at fault; otherwise the health of the endpoints is.
        match missing.collect::<Option<Vec<_>>>() {
            Some(missing) => {
                let missing = missing.into_iter().next();
                missing.unwrap_or_else(|| self.not_configured(lane, None))
            }
            None if resolution.has_fallbacks() => exhausted(resolution),
            None => RouteError::NoHealthyBackend {
                model: self.models[first].model.clone(),
            },
        }
    }

    /// No endpoint is configured for `lane`. Without any endpoint, the name may well be right.
    fn not_configured(&self, lane: &Lane, alias_of: Option<&Arc<str>>) -> RouteError {
        let model = lane.name.clone();
        if self.endpoints.is_empty() {
            return RouteError::NoHealthyBackend { model };
        }
        RouteError::ModelNotFound {
            model,
            alias_of: alias_of.cloned(),
        }
    }

    fn model(&self, name: &str) -> Option<&ModelBackends> {
        self.by_model.get(name).map(|&idx| &self.models[idx])
    }

    /// Whether `name` is a model, an alias, or has fallbacks.
    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.resolutions.get(name).is_some()
    }

    /// Whether requests for `name` would have no endpoint in service but this one, fallbacks included.
    pub(super) fn is_last(&self, endpoint: &EndpointRef, name: &str) -> bool {
        let models = self.targets(name).iter();
        let models = models.filter_map(|target| target.model_idx);
        let mut others = models
            .flat_map(|idx| &self.models[idx].endpoints)
            .filter(|other| !other.is_same(endpoint));
        !others.any(|other| other.state().can_stand_in())
    }

    /// Whether `endpoint` may be ejected: of each of its models, no more than a share of the endpoints is ejected, and
    /// another one stays in service. A model's only endpoint may be ejected where a fallback could serve.
    pub(super) fn may_eject(&self, endpoint: &EndpointRef) -> bool {
        let is_same = |other: &&EndpointRef| other.is_same(endpoint);
        let Some(endpoint) = self.endpoints.iter().find(is_same) else {
            return false; // it is leaving: no request would probe it
        };
        let percent = self.rules.max_ejected_percent as usize;
        self.models_of(endpoint).all(|model| {
            let others = model.endpoints.iter().filter(|other| !is_same(other));
            let ejected = others.filter(|other| other.state().word.is_ejected());
            let share = model.endpoints.len() * percent / 100;
            let most = match percent > 0 && self.has_substitute(model, endpoint) {
                true => share.max(1),
                false => share,
            };
            ejected.count() < most && !self.is_last(endpoint, &model.model)
        })
    }

    /// Whether requests for `model` could go to another model, at an endpoint in service other than `endpoint`.
    fn has_substitute(&self, model: &ModelBackends, endpoint: &EndpointRef) -> bool {
        let substitutes = self
            .targets(&model.model)
            .iter()
            .filter(|target| target.model != model.model)
            .filter_map(|target| target.model_idx);
        let mut endpoints = substitutes.flat_map(|idx| &self.models[idx].endpoints);
        endpoints.any(|other| !other.is_same(endpoint) && other.state().can_stand_in())
    }

    /// `endpoint` has become half open: decisions about its models look for it.
    pub(super) fn expect_half_open(&self, endpoint: &EndpointRef) {
        self.models_of(endpoint)
            .for_each(|model| model.may_be_half_open.store(true, SeqCst));
    }

    fn models_of(&self, endpoint: &EndpointRef) -> impl Iterator<Item = &ModelBackends> {
        let models = endpoint.config().models.iter();
        models.filter_map(|model| self.model(&model.name))
    }
}

/// A half-open endpoint with a slot free.
fn half_open_candidate<'a>(
    model: &ModelBackends,
    candidates: &Candidates<'a>,
) -> Option<Candidate<'a>> {
    let may_be_half_open = &model.may_be_half_open;
    if !may_be_half_open.load(SeqCst) {
        return None; // most of the time
    }
    // Cleared before the words are read: an endpoint that becomes half open meanwhile sets it again and is not missed.
    may_be_half_open.store(false, SeqCst);
    let mut backends = model.backends.iter();
    if !backends.any(|backend| backend.state.word.is_half_open()) {
        return None;
    }
    may_be_half_open.store(true, SeqCst);
    candidates.free().find(Candidate::is_probe)
}

fn exhausted(resolution: &Resolution) -> RouteError {
    let targets = resolution.targets.iter();
    RouteError::FallbackChainExhausted {
        tried: targets.map(|target| target.model.clone()).collect(),
    }
}
