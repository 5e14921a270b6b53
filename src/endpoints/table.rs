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
use super::resolve::{Resolution, Target, resolve_all};
use super::strategy::{Candidate, Candidates, Choice, ask};
use super::{
    Demand, EndpointLease, EndpointRef, FallbackWhen, Lane, Registry, Requirements, RouteError,
    RoutingRules, Via,
};
use crate::admit::{KeptSlots, LeaseError, Partition, PoolId, PoolSet};

#[derive(Debug)]
pub(crate) struct RoutingTable {
    /// How many tables there were before.
    #[cfg(feature = "swap")]
    pub(super) version: u64,
    pub(super) registry: Arc<Registry>,
    pub(crate) rules: RoutingRules,
    pub(super) strategy_name: &'static str,
    pub(crate) endpoints: Arc<[EndpointRef]>,
    /// Endpoints that are no longer registered and have requests in flight.
    pub(super) leaving: Vec<EndpointRef>,
    /// The index of each endpoint, by the number of its pool.
    by_pool: Vec<Option<usize>>,
    resolutions: Vec<Resolution>,
    /// Indices into `resolutions`.
    by_name: HashMap<Arc<str>, usize>,
}

/// The result of trying one model.
enum TargetOutcome<'a> {
    Taken(Choice<'a>),
    Busy,
    /// No endpoint in service can serve it.
    Unavailable,
}

impl RoutingTable {
    /// `endpoints` are those of the registry, by the same index. Rotations go on from `old`.
    pub(super) fn new(
        registry: Arc<Registry>,
        rules: RoutingRules,
        endpoints: Arc<[EndpointRef]>,
        leaving: Vec<EndpointRef>,
        old: Option<&Self>,
    ) -> Self {
        let mut models: Vec<ModelBackends> = Vec::new();
        let mut by_model: HashMap<&str, usize> = HashMap::new();
        for endpoint in &*endpoints {
            for (nth, model) in endpoint.config().models.iter().enumerate() {
                let idx = *by_model.entry(&model.name).or_insert_with(|| {
                    let before = old.and_then(|old| old.model(&model.name));
                    models.push(ModelBackends::new(&model.name, models.len(), before));
                    models.len() - 1
                });
                let backends = &mut models[idx].backends;
                backends.push(Backend::new(endpoint, model, nth));
            }
        }
        let models: Vec<_> = models.into_iter().map(Arc::new).collect();
        let models = by_model
            .into_iter()
            .map(|(name, idx)| (name, Arc::clone(&models[idx])));
        let resolutions = resolve_all(&rules.config, &models.collect());
        let names = resolutions.iter().map(|resolution| resolution.name.clone());
        Self {
            #[cfg(feature = "swap")]
            version: old.map_or(0, |old| old.version + 1),
            by_name: names.zip(0..).collect(),
            resolutions,
            strategy_name: rules.strategy.name(),
            registry,
            rules,
            by_pool: by_pool(&endpoints),
            endpoints,
            leaving,
        }
    }

    /// The endpoint with the slots of this pool.
    pub(super) fn endpoint(&self, PoolId(pool): PoolId) -> Option<&EndpointRef> {
        let idx = *self.by_pool.get(pool as usize)?;
        Some(&self.endpoints[idx?])
    }

    pub(super) fn demand(&self, asked: &Requirements<'_>) -> Demand {
        let (name, resolution) = match self.by_name.get_key_value(&*asked.model) {
            Some((name, &idx)) => (Arc::clone(name), Some(idx)),
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
        }
    }

    /// The lane of `asked`: its tokens are rounded up to a context length that an endpoint has.
    pub(super) fn lane(&self, asked: &Lane) -> Lane {
        let tokens = asked.context_length;
        let resolution = self.resolution(&asked.name);
        let contexts = resolution.map_or(&[][..], |resolution| &resolution.contexts);
        let enough = contexts.iter().find(|&&context| context >= tokens);
        Lane {
            context_length: *enough.unwrap_or(&tokens),
            ..asked.clone()
        }
    }

    /// The part of the waiting room for `lane`: that of the first model that it asks for.
    pub(super) fn partition(&self, lane: &Lane) -> Partition {
        let Some(model) = self.served(&lane.name).next() else {
            return Partition::default();
        };
        let config = &self.rules.config;
        let Some(room) = config.rooms.get(&*model.model) else {
            return Partition::default();
        };
        let endpoints = model.backends.iter().map(|backend| &backend.endpoint);
        let slots = endpoints
            .map(|endpoint| endpoint.own_limit() as usize)
            .sum();
        Partition {
            id: model.idx as u32 + 1, // 0 is the default partition
            max_size: room.max_size_for(slots, config.room_ceiling),
            discipline: room.discipline,
        }
    }

    /// Takes a slot for `demand` where one is free beside those that are `kept`. With `leases_slots`, the slots of a lease that
    /// has ended are not free.
    pub(super) fn take<'a>(
        &'a self,
        demand: &'a Demand,
        kept: KeptSlots,
        leases_slots: bool,
    ) -> Result<(&'a Target, Choice<'a>), LeaseError<RouteError>> {
        let lane = &demand.asked;
        // Known from the demand, unless the table is another one by now.
        let known = demand.resolution.and_then(|idx| self.resolutions.get(idx));
        let known = known.filter(|known| Arc::ptr_eq(&known.name, &lane.name));
        let Some(resolution) = known.or_else(|| self.resolution(&lane.name)) else {
            return Err(LeaseError::Unservable(self.not_configured(lane, None)));
        };
        // A later target is tried only if the earlier ones are unavailable, or busy and a fallback may be taken then.
        let mut busy = false;
        for target in &resolution.targets {
            match self.try_target(target, demand, kept, leases_slots) {
                TargetOutcome::Taken(choice) => return Ok((target, choice)),
                TargetOutcome::Busy if self.waits_for_first() => return Err(LeaseError::Busy),
                TargetOutcome::Busy => busy = true,
                TargetOutcome::Unavailable => {}
            }
        }
        let mut expected = expected_back(resolution.served(), lane);
        match busy || expected.next().is_some() {
            true => Err(LeaseError::Busy),
            false => Err(LeaseError::Unservable(self.why(resolution, lane))),
        }
    }

    /// Whether a demand waits for the first model that can serve it, rather than take a fallback.
    fn waits_for_first(&self) -> bool {
        self.rules.config.fallback_when == FallbackWhen::Unavailable
    }

    fn try_target<'a>(
        &'a self,
        target: &'a Target,
        demand: &'a Demand,
        kept: KeptSlots,
        leases_slots: bool,
    ) -> TargetOutcome<'a> {
        let Some(model) = &target.served else {
            return TargetOutcome::Unavailable;
        };
        let mut candidates = Candidates {
            backends: &model.backends,
            query: &demand.asked,
            last_resort: false,
            kept,
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
            // Returned after the end of its lease, the slot is taken from the endpoint, too.
            if backend.state.word.take(seen)
                && !(leases_slots && backend.state.return_after_lease(&choice.candidate))
            {
                return TargetOutcome::Taken(choice);
            }
            // The word has changed. The preferred endpoints may have a slot by now.
            candidates.last_resort = false;
        }
    }

    fn choose<'a>(&self, model: &ModelBackends, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let choice = ask(&*self.rules.strategy, candidates);
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

    /// Returns `true` if `lane` may use a slot that was taken: it asks for the same name, and the endpoint may serve it with
    /// the same model.
    pub(super) fn fits(&self, lane: &Lane, taken: &EndpointLease) -> bool {
        let decision = &taken.decision;
        if lane.name != decision.asked {
            return false;
        }
        let models = self.served(&lane.name);
        let mut backends = models
            .filter(|model| model.model == decision.model)
            .flat_map(|model| &model.backends);
        // A probe keeps others from the endpoint, but not itself.
        backends.any(|it| {
            it.endpoint.is_same(&decision.endpoint)
                && it.is_capable(lane)
                && (taken.probe.is_some() || it.may_serve(lane))
        })
    }

    /// The pools in which [`take`](Self::take) would look for a slot now.
    pub(super) fn pools(&self, lane: &Lane) -> PoolSet {
        self.pools_in_order(lane).into_iter().collect()
    }

    /// The same, in the order of the steps and the registry.
    pub(super) fn pools_in_order(&self, lane: &Lane) -> Vec<PoolId> {
        let mut pools = Vec::new();
        for model in self.served(&lane.name) {
            let able = model.backends.iter();
            let able = able.filter(|backend| backend.may_serve(lane));
            pools.extend(able.map(|backend| backend.state.pool));
            if self.waits_for_first() && !pools.is_empty() {
                break;
            }
        }
        if pools.is_empty() {
            let expected = expected_back(self.served(&lane.name), lane);
            pools.extend(expected.map(|backend| backend.state.pool));
        }
        pools
    }

    /// Why no endpoint will serve `lane`.
    fn why(&self, resolution: &Resolution, lane: &Lane) -> RouteError {
        // If every model lacks something, the request is at fault; otherwise the health of the endpoints is.
        let mut missing = resolution.served().map(|model| model.missing(lane));
        if let Some(Some(missing_at_first)) = missing.next()
            && missing.all(|missing| missing.is_some())
        {
            return missing_at_first;
        }
        #[cfg(feature = "swap")]
        {
            let mut refusals = resolution.served().flat_map(|model| {
                let backends = model.backends.iter();
                backends.filter_map(|backend| backend.refusal(&model.model))
            });
            if let Some(refusal) = refusals.next() {
                return refusal;
            }
        }
        if let Some(exhausted) = resolution.exhausted() {
            return exhausted;
        }
        match resolution.served().next() {
            Some(served) => RouteError::NoHealthyBackend {
                model: served.model.clone(),
            },
            None => self.not_configured(lane, resolution.alias_of()),
        }
    }

    /// Returns the models that were tried for `lane`, if they are a fallback chain that no endpoint could serve.
    pub(super) fn exhausted_chain(&self, lane: &Lane) -> Option<RouteError> {
        let exhausted = self.resolution(&lane.name)?.exhausted()?;
        self.pools_in_order(lane).is_empty().then_some(exhausted)
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

    fn resolution(&self, name: &str) -> Option<&Resolution> {
        self.by_name.get(name).map(|&idx| &self.resolutions[idx])
    }

    /// The models that requests for `name` may go to, in order.
    fn served(&self, name: &str) -> impl Iterator<Item = &ModelBackends> {
        self.resolution(name)
            .into_iter()
            .flat_map(Resolution::served)
    }

    fn model(&self, name: &str) -> Option<&ModelBackends> {
        let first = self.resolution(name)?.targets.first()?;
        let served = first.served.as_deref();
        served.filter(|_| first.via == Via::Direct)
    }

    /// Whether `name` is a model, an alias, or has fallbacks.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether `endpoint` may be ejected: of each of its models, no more than a share of the endpoints is ejected, and
    /// another one stays in service. A model's only endpoint may be ejected where a fallback could serve.
    pub(super) fn may_eject(&self, endpoint: &EndpointRef) -> bool {
        if self.present(endpoint).is_none() {
            return false; // it is leaving: no request would probe it
        }
        let percent = self.rules.config.max_ejected_percent as usize;
        self.models_of(endpoint).all(|model| {
            let backends = model.backends.iter();
            let ejected = backends.filter(|backend| {
                !backend.endpoint.is_same(endpoint) && backend.state.word.is_ejected()
            });
            let substitutes = || self.substitutes(&model.model, endpoint);
            let has_fallback = substitutes().any(|other| other.model != model.model);
            let share = model.backends.len() * percent / 100;
            let most = match percent > 0 && has_fallback {
                true => share.max(1),
                false => share,
            };
            ejected.count() < most && substitutes().next().is_some()
        })
    }

    /// The models that requests for `name` could go to at an endpoint in service other than `endpoint`.
    fn substitutes(
        &self,
        name: &str,
        endpoint: &EndpointRef,
    ) -> impl Iterator<Item = &ModelBackends> {
        self.served(name).filter(|model| {
            let mut backends = model.backends.iter();
            backends.any(|it| !it.endpoint.is_same(endpoint) && it.state.can_stand_in())
        })
    }

    /// `endpoint` has become half open: decisions about its models look for it.
    pub(super) fn expect_half_open(&self, endpoint: &EndpointRef) {
        self.models_of(endpoint)
            .for_each(|model| model.may_be_half_open.store(true, SeqCst));
    }

    /// `endpoint` as it is configured now.
    fn present(&self, endpoint: &EndpointRef) -> Option<&EndpointRef> {
        let mut present = self.endpoints.iter();
        present.find(|present| present.is_same(endpoint))
    }

    fn models_of(&self, endpoint: &EndpointRef) -> impl Iterator<Item = &ModelBackends> {
        let present = self.present(endpoint).into_iter();
        let models = present.flat_map(|present| &present.config().models);
        models.filter_map(|model| self.model(&model.name))
    }
}

/// Pools are numbered densely, but those of endpoints that left are missing.
fn by_pool(endpoints: &[EndpointRef]) -> Vec<Option<usize>> {
    let mut by_pool = Vec::new();
    for (idx, endpoint) in endpoints.iter().enumerate() {
        let pool = endpoint.pool().0 as usize;
        if pool >= by_pool.len() {
            by_pool.resize(pool + 1, None);
        }
        by_pool[pool] = Some(idx);
    }
    by_pool
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

/// The endpoints for which `lane` waits if no endpoint in service can serve it: those that are out for a while.
fn expected_back<'a>(
    models: impl Iterator<Item = &'a ModelBackends>,
    lane: &Lane,
) -> impl Iterator<Item = &'a Backend> {
    let backends = models.flat_map(|model| &model.backends);
    backends.filter(|backend| backend.is_expected_back(lane))
}
