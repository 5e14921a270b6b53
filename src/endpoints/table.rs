//! The routing table, which leads from a name to the models to try, and from a model to its endpoints. Each change of the
//! registry or the rules makes a new table, so that a decision neither compares names nor allocates.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tower::retry::budget::TpsBudget;

use super::backends::{Backend, ModelBackends};
use super::config::RoutingConfig;
use super::endpoint_word::{HealthFlags, Snapshot};
use super::lane::Capabilities;
use super::resolve::{Resolution, Target, resolve_all};
use super::strategy::{Candidate, Candidates, Choice, ask};
use super::{
    Demand, EndpointLease, EndpointRef, FallbackWhen, Lane, Model, Registry, Requirements,
    RouteError, RoutingRules, Via,
};
use crate::admit::{KeptSlots, LeaseError, Partition, PoolId};

/// A routing table, which is shared by all decisions until the next change replaces it.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    pub(super) registry: Arc<Registry>,
    pub(crate) rules: RoutingRules,
    /// The name of the strategy. It is asked for once, because a strategy may be user code.
    pub(super) strategy_name: &'static str,
    /// `true` if the strategy reads the prefix of a request, so that it has to be hashed.
    pub(crate) reads_prefixes: bool,
    /// `true` if the load of a model is shown to clients that wait for it.
    shows_loads: bool,
    pub(crate) endpoints: Arc<[EndpointRef]>,
    /// The endpoints that have left the registry and still have requests in flight.
    pub(super) leaving: Vec<EndpointRef>,
    /// The index of each endpoint in `endpoints`.
    by_pool: HashMap<PoolId, usize>,
    resolutions: Vec<Resolution>,
    /// The index of each name's resolution in `resolutions`.
    by_name: HashMap<Arc<str>, usize>,
}

/// The time for which a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// The number of retries per second that are allowed even with little traffic.
const MIN_RETRIES: u32 = 10;

impl RoutingTable {
    /// Makes a table of `endpoints`, which are those of the registry in the same order. Rotations continue from `old`.
    pub(super) fn new(
        registry: Arc<Registry>,
        rules: RoutingRules,
        endpoints: Arc<[EndpointRef]>,
        leaving: Vec<EndpointRef>,
        old: Option<&Self>,
    ) -> Self {
        let models = served_models(&rules.config, &endpoints, old);
        let models = models.into_iter().map(|(name, it)| (name, Arc::new(it)));
        let resolutions = resolve_all(&rules.config, &models.collect());
        let names = resolutions.iter().map(|resolution| resolution.name.clone());
        Self {
            by_name: names.zip(0..).collect(),
            resolutions,
            strategy_name: rules.config.strategy.name(),
            reads_prefixes: rules.config.strategy.reads_prefixes(),
            shows_loads: endpoints.iter().any(shows_load),
            registry,
            rules,
            by_pool: endpoints.iter().map(EndpointRef::pool).zip(0..).collect(),
            endpoints,
            leaving,
        }
    }

    /// Returns the endpoint with the slots of this pool.
    pub(super) fn endpoint(&self, pool: PoolId) -> Option<&EndpointRef> {
        self.by_pool.get(&pool).map(|&idx| &self.endpoints[idx])
    }

    /// Returns the budget of retries of a model that endpoints serve. The first attempt of each request that may be
    /// retried adds a fraction of a retry.
    pub(crate) fn retry_budget(&self, model: &str) -> Option<&TpsBudget> {
        self.model(model).map(|model| &*model.retry_budget)
    }

    /// Returns the demand of a request. The name is copied only if it is not configured.
    pub(crate) fn demand(&self, asked: &Requirements<'_>) -> Demand {
        let (name, idx) = match self.by_name.get_key_value(&*asked.model) {
            Some((name, &idx)) => (Arc::clone(name), Some(idx)),
            None => (Arc::from(&*asked.model), None),
        };
        let resolution = idx.map(|idx| &self.resolutions[idx]);
        let stripped = resolution.map_or(Capabilities::empty(), |resolution| resolution.stripped);
        let needs = Capabilities::of(asked.vision, asked.tools, asked.json_mode);
        let mut lane = Lane {
            name,
            needs: needs - stripped,
            context_length: asked.context_tokens.unwrap_or(asked.estimated_tokens),
            without_fallbacks: asked.without_fallbacks,
            failed_at: None,
            refused_by: None,
        };
        if let Some(resolution) = resolution {
            let any_length = asked.any_length == Some(true);
            lane.context_length = resolution.context_for(&lane, any_length);
        }
        Demand {
            asked: lane,
            resolution: idx,
            prefix: asked.prefix,
        }
    }

    /// Returns the lane of `asked`, with its tokens rounded up to a context length that an endpoint has.
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

    /// Returns the partition of the waiting room for `lane`, which is that of the first model that the lane leads to.
    pub(super) fn partition(&self, lane: &Lane) -> Partition {
        let Some(model) = self.served(lane).next() else {
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

    /// Takes a free slot for `demand`, and leaves the `kept` slots to higher levels. With `leases_slots`, it looks at the end
    /// of the slots' lease.
    pub(super) fn take<'a>(
        &'a self,
        demand: &'a Demand,
        kept: KeptSlots,
        leases_slots: bool,
    ) -> Result<(&'a Target, Choice<'a>), LeaseError<RouteError>> {
        let lane = &demand.asked;
        let Some(resolution) = self.resolution_of(demand) else {
            return Err(LeaseError::Unservable(self.not_configured(lane, None)));
        };
        // A later target is tried only if the earlier ones are unavailable, or if they are busy and a fallback may be
        // taken then.
        let mut busy = false;
        for target in resolution.targets(lane) {
            match self.try_target(target, demand, kept, leases_slots) {
                Ok(choice) => return Ok((target, choice)),
                Err(LeaseError::Busy) if self.waits_for_first() => return Err(LeaseError::Busy),
                Err(LeaseError::Busy) => busy = true,
                Err(LeaseError::Unservable(())) => {}
            }
        }
        // An endpoint that is out only for a while is worth a wait, like a busy one.
        let mut expected = expected_back(resolution.served(lane), lane);
        match busy || expected.next().is_some() {
            true => Err(LeaseError::Busy),
            false => Err(LeaseError::Unservable(self.why(resolution, lane))),
        }
    }

    /// Returns `true` if a demand waits for the first model that can serve it, rather than take a fallback.
    fn waits_for_first(&self) -> bool {
        self.rules.config.fallback_when == FallbackWhen::Unavailable
    }

    /// Takes a slot of an endpoint that serves `target`. The target is unservable if all its endpoints are out of service
    /// or cannot serve the demand.
    fn try_target<'a>(
        &'a self,
        target: &'a Target,
        demand: &'a Demand,
        kept: KeptSlots,
        leases_slots: bool,
    ) -> Result<Choice<'a>, LeaseError<()>> {
        let Some(model) = &target.served else {
            return Err(LeaseError::Unservable(()));
        };
        let mut candidates = Candidates::new(model, demand, kept);
        // The loop is lock-free. A round is repeated once for the last resort, or because another thread has changed
        // the word of the choice.
        loop {
            if let Some(choice) = self.choose(model, &candidates) {
                let Candidate { backend, seen, .. } = choice.candidate;
                // If the lease of the endpoint's slots has ended, the slot is given back, and all slots are taken away
                // from it.
                if backend.state.word.take(seen)
                    && !(leases_slots && backend.state.return_after_lease(&choice.candidate))
                {
                    return Ok(choice);
                }
                // The word has changed, so the preferred endpoints may have a slot free by now.
                candidates.last_resort = false;
            } else if !candidates.last_resort {
                candidates.last_resort = true; // now the endpoints that have yet to be checked, or are silent
            } else {
                let mut backends = model.backends.iter();
                return match backends.any(|backend| backend.may_serve(&demand.asked)) {
                    true => Err(LeaseError::Busy),
                    false => Err(LeaseError::Unservable(())),
                };
            }
        }
    }

    /// Returns the choice of the strategy, or the endpoint that has to be probed, or `None` if all candidates are busy.
    fn choose<'a>(&self, model: &ModelBackends, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let RoutingConfig {
            strategy, weights, ..
        } = &*self.rules.config;
        let choice = ask(|| strategy.choose(*weights, candidates));
        // If the strategy returns `None` or chooses a busy endpoint, the first free one is taken.
        let choice = choice
            .filter(|choice| choice.candidate.is_free())
            .or_else(|| candidates.free().next().map(Choice::new))?;
        // A probe goes first. Otherwise a strategy that avoids the endpoint would keep it half open.
        match half_open_candidate(model, candidates) {
            Some(other) if other.priority() <= choice.candidate.priority() => {
                Some(Choice::new(other))
            }
            _ => Some(choice),
        }
    }

    /// Returns `true` if `lane` may use a slot that was taken before for the same name, with the same model.
    pub(crate) fn fits(&self, lane: &Lane, taken: &EndpointLease) -> bool {
        let decision = &taken.decision;
        if lane.name != decision.asked {
            return false;
        }
        let models = self.served(lane);
        let mut backends = models
            .filter(|model| model.model == decision.model)
            .flat_map(|model| &model.backends);
        // A probe keeps other requests from the endpoint, but may stay there itself.
        backends.any(|it| {
            it.endpoint == decision.endpoint
                && it.is_capable(lane)
                && (taken.probe.is_some() || it.may_serve(lane))
        })
    }

    /// Returns the pools in which [`take`](Self::take) would look for a slot now, in the order in which it tries them.
    pub(crate) fn pools_in_order(&self, lane: &Lane) -> Vec<PoolId> {
        let mut pools = Vec::new();
        for model in self.served(lane) {
            let able = model.backends.iter();
            let mut able = able.filter(|backend| backend.may_serve(lane)).peekable();
            let is_served = able.peek().is_some();
            // A slot of an endpoint that refused the request is of no use to it, but the model is still waited for.
            let able = able.filter(|backend| !lane.avoids(&backend.state));
            pools.extend(able.map(|backend| backend.state.pool));
            if self.waits_for_first() && is_served {
                return pools;
            }
        }
        if pools.is_empty() {
            let expected = expected_back(self.served(lane), lane);
            pools.extend(expected.map(|backend| backend.state.pool));
        }
        pools
    }

    /// Returns `true` if an endpoint would give `demand` a slot now.
    pub(crate) fn has_free_slot(&self, demand: &Demand) -> bool {
        let lane = &demand.asked;
        let mut backends = self.served(lane).flat_map(|model| &model.backends);
        backends.any(|backend| {
            let mut seen = [false, true].into_iter();
            let seen = seen.find_map(|last_resort| backend.offer(lane, last_resort));
            seen.is_some_and(Snapshot::is_free)
        })
    }

    /// Returns the reason why the endpoints will not serve `lane`.
    fn why(&self, resolution: &Resolution, lane: &Lane) -> RouteError {
        if let Some(unable) = unable(resolution, lane) {
            return unable;
        }
        if let Some(refusal) = resolution.served(lane).find_map(ModelBackends::refusal) {
            return refusal;
        }
        if let Some(exhausted) = resolution.exhausted(lane) {
            return exhausted;
        }
        match resolution.served(lane).next() {
            Some(served) => RouteError::NoHealthyBackend {
                model: served.model.clone(),
            },
            None => self.not_configured(lane, resolution.alias_of()),
        }
    }

    /// Returns the error that lists the models tried for `lane`, if it has a fallback chain that cannot serve it.
    pub(crate) fn exhausted_chain(&self, lane: &Lane) -> Option<RouteError> {
        let exhausted = self.resolution(&lane.name)?.exhausted(lane)?;
        self.pools_in_order(lane).is_empty().then_some(exhausted)
    }

    /// Returns the error of a `lane` without endpoints. If the whole registry is empty, the name may well be right.
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

    /// Returns the resolution of `name`, if it is a model or an alias or has fallbacks.
    fn resolution(&self, name: &str) -> Option<&Resolution> {
        self.by_name.get(name).map(|&idx| &self.resolutions[idx])
    }

    /// Returns the resolution of a demand's name.
    fn resolution_of(&self, demand: &Demand) -> Option<&Resolution> {
        let name = &demand.asked.name;
        // The demand knows its resolution, unless another table has replaced the table that made it.
        let known = demand.resolution.and_then(|idx| self.resolutions.get(idx));
        let known = known.filter(|known| Arc::ptr_eq(&known.name, name));
        known.or_else(|| self.resolution(name))
    }

    /// Returns the models that requests of `lane` may go to, in order.
    fn served(&self, lane: &Lane) -> impl Iterator<Item = &ModelBackends> {
        let resolution = self.resolution(&lane.name).into_iter();
        resolution.flat_map(|resolution| resolution.served(lane))
    }

    /// Returns the model of this very name with its endpoints, if endpoints serve it.
    fn model(&self, name: &str) -> Option<&ModelBackends> {
        let first = self.resolution(name)?.targets.first()?;
        let served = first.served.as_deref();
        served.filter(|_| first.via == Via::Direct)
    }

    /// Returns `true` if a request with this demand waits for the start of its model, and its client may see the load.
    #[inline]
    pub(crate) fn shows_load(&self, demand: &Demand) -> bool {
        self.shows_loads && self.waits_for_shown_load(demand)
    }

    #[cold]
    fn waits_for_shown_load(&self, demand: &Demand) -> bool {
        let resolution = self.resolution_of(demand);
        let first = resolution.and_then(|it| it.served(&demand.asked).next());
        let waits = |endpoint: &EndpointRef| shows_load(endpoint) && is_stopped(endpoint);
        first.is_some_and(|model| model.backends.iter().all(|it| waits(&it.endpoint)))
    }

    /// Returns `true` if `name` is a model or an alias, or has fallbacks.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns `true` if `endpoint` may be ejected. For each of its models, the ejected endpoints must stay within their
    /// share, and another endpoint, or one of a fallback, must stay in service.
    pub(super) fn may_eject(&self, endpoint: &EndpointRef) -> bool {
        if self.present(endpoint).is_none() {
            return false; // it is leaving, so requests could not probe it
        }
        let percent = self.rules.config.max_ejected_percent as usize;
        self.models_of(endpoint).all(|model| {
            let backends = model.backends.iter();
            let ejected = backends.filter(|backend| {
                backend.endpoint != *endpoint && backend.state.word.flags().is_ejected()
            });
            let substitutes = || self.substitutes(&model.model, endpoint);
            let has_fallback = substitutes().any(|other| other.model != model.model);
            let share = model.backends.len() * percent / 100;
            // If a fallback can take over, one endpoint may be ejected even if the share rounds down to 0.
            let most = share.max(usize::from(percent > 0 && has_fallback));
            ejected.count() < most && substitutes().next().is_some()
        })
    }

    /// Returns `true` if no other endpoint is in service for one of the models of `endpoint`, and none of a fallback.
    #[cfg(feature = "client")]
    pub(crate) fn is_last(&self, endpoint: &EndpointRef) -> bool {
        let mut models = self.models_of(endpoint);
        models.any(|model| self.substitutes(&model.model, endpoint).next().is_none())
    }

    /// Returns `true` if other endpoints, which answer, can serve all that `endpoint` serves.
    pub(crate) fn is_replaceable(&self, endpoint: &EndpointRef) -> bool {
        let mut models = self.models_of(endpoint).chain(self.model(NO_MODEL));
        models.all(|model| {
            let is_own = |it: &&Backend| it.endpoint == *endpoint;
            let mut own = model.backends.iter().filter(is_own);
            own.all(|own| {
                let mut backends = model.backends.iter();
                backends.any(|it| !is_own(&it) && it.can_replace(own))
            })
        })
    }

    /// Returns an endpoint that is silent, and that others can no longer replace.
    pub(crate) fn needed_though_silent(&self) -> Option<&EndpointRef> {
        let is_silent = |it: &&EndpointRef| it.state().word.flags().contains(HealthFlags::SILENT);
        let mut silent = self.endpoints.iter().filter(is_silent);
        silent.find(|it| !self.is_replaceable(it))
    }

    /// Returns the models that requests for `name` could go to at another endpoint in service than `endpoint`.
    fn substitutes(
        &self,
        name: &str,
        endpoint: &EndpointRef,
    ) -> impl Iterator<Item = &ModelBackends> {
        let targets = self.resolution(name).into_iter().flat_map(|it| &it.targets);
        let models = targets.filter_map(|target| target.served.as_deref());
        models.filter(|model| {
            let mut backends = model.backends.iter();
            backends.any(|it| it.endpoint != *endpoint && it.state.can_stand_in())
        })
    }

    /// Records that `endpoint` is half open now, so that decisions about its models look for it.
    pub(super) fn expect_half_open(&self, endpoint: &EndpointRef) {
        self.models_of(endpoint)
            .for_each(|model| model.may_be_half_open.store(true, SeqCst));
    }

    /// Returns `endpoint` with its current configuration, unless it has left.
    fn present(&self, endpoint: &EndpointRef) -> Option<&EndpointRef> {
        let mut present = self.endpoints.iter();
        present.find(|present| **present == *endpoint)
    }

    /// Returns the models that `endpoint` serves with its current configuration.
    fn models_of(&self, endpoint: &EndpointRef) -> impl Iterator<Item = &ModelBackends> {
        let present = self.present(endpoint).into_iter();
        let models = present.flat_map(|present| &present.config().models);
        models.filter_map(|model| self.model(&model.name))
    }
}

/// Returns `true` if the load of an endpoint is shown to clients that wait for it.
fn shows_load(endpoint: &EndpointRef) -> bool {
    endpoint.config().shows_load
}

fn is_stopped(endpoint: &EndpointRef) -> bool {
    endpoint.state().word.flags().contains(HealthFlags::STOPPED)
}

/// Returns all models that endpoints serve, by name. The default endpoint serves [`NO_MODEL`], too.
fn served_models<'a>(
    config: &RoutingConfig,
    endpoints: &'a [EndpointRef],
    old: Option<&RoutingTable>,
) -> HashMap<&'a str, ModelBackends> {
    // New budgets start with their full reserve, so an unchanged share keeps the old budgets.
    let keeps_budgets = old.is_some_and(|old| old.rules.config.retry_share == config.retry_share);
    let mut models: HashMap<&str, ModelBackends> = HashMap::new();
    let mut add = |name: &'a str, backend: Backend| {
        let idx = models.len();
        let served = models.entry(name).or_insert_with(|| {
            let before = old.and_then(|old| old.model(name));
            let budget = before.filter(|_| keeps_budgets).map_or_else(
                || {
                    Arc::new(TpsBudget::new(
                        RECENT,
                        MIN_RETRIES,
                        config.retry_share as f32,
                    ))
                },
                |before| Arc::clone(&before.retry_budget),
            );
            ModelBackends::new(name, idx, before, budget)
        });
        served.backends.push(backend);
    };
    for endpoint in endpoints {
        for (nth, model) in endpoint.config().models.iter().enumerate() {
            add(&model.name, Backend::new(endpoint, model, nth));
        }
        if config.default_endpoint.as_deref() == Some(endpoint.name()) {
            let any = Model::new(NO_MODEL)
                .context_length(u32::MAX)
                .vision(true)
                .tools(true)
                .json_mode(true);
            add(NO_MODEL, Backend::new(endpoint, &any, usize::MAX)); // it is none of its models
        }
    }
    models.values_mut().for_each(ModelBackends::ignore_stripped);
    models
}

/// The name in place of a model's in a request that names no model. Models and aliases have names that are not empty.
const NO_MODEL: &str = "";

/// Returns a half-open endpoint with a slot free, which the request may probe.
fn half_open_candidate<'a>(
    model: &ModelBackends,
    candidates: &Candidates<'a>,
) -> Option<Candidate<'a>> {
    let may_be_half_open = &model.may_be_half_open;
    if !may_be_half_open.load(SeqCst) {
        return None; // the usual case
    }
    // The flag is cleared before the words are read. An endpoint that becomes half open meanwhile sets it again, so it
    // is not missed.
    may_be_half_open.store(false, SeqCst);
    let mut backends = model.backends.iter();
    if !backends.any(|it| it.state.word.flags().contains(HealthFlags::HALF_OPEN)) {
        return None;
    }
    may_be_half_open.store(true, SeqCst);
    candidates.free().find(Candidate::is_probe)
}

/// Returns the error of a `lane` that needs something which every model lacks, so that the request is at fault. Otherwise the
/// health of the endpoints is, and the result is `None`.
fn unable(resolution: &Resolution, lane: &Lane) -> Option<RouteError> {
    let served = || resolution.served(lane);
    let model = served().next()?.model.clone();
    let missing: Option<Vec<Capabilities>> = served().map(|model| model.missing(lane)).collect();
    let missing = missing?;
    // A shorter prompt would be served there, whatever other endpoints lack.
    let longest = served()
        .filter_map(|model| model.longest_context(lane))
        .max();
    Some(match longest {
        Some(maximum) => RouteError::ContextLengthExceeded {
            model,
            tokens: lane.context_length,
            maximum,
        },
        None => RouteError::CapabilityMismatch {
            model,
            missing: missing.first()?.names().collect(),
        },
    })
}

/// Returns the endpoints that `lane` waits for if all others are out of service, because they are out only for a while.
fn expected_back<'a>(
    models: impl Iterator<Item = &'a ModelBackends>,
    lane: &Lane,
) -> impl Iterator<Item = &'a Backend> {
    let backends = models.flat_map(|model| &model.backends);
    backends.filter(|backend| backend.is_expected_back(lane))
}
