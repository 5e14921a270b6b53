//! A router that walks all endpoints and compares names for every request slows down with every model
//! that is added anywhere.
//!
//! A [`Fleet`] is the registry the other way round: from a name to the models to try, and from a model to
//! its endpoints. It never changes; another one takes its place.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::served::{Served, Server};
use super::way::{Step, Way, Ways};
use super::{Demand, EndpointRef, Lane};
use crate::admit::{LeaseError, Partition, PoolSet};
use crate::route::capabilities::Capabilities;
use crate::route::strategy::{Candidate, Candidates, Choice, Strategy, ask};
use crate::route::{FallbackWhen, Registry, Requirements, RouteError, RoutingConfig};

#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) registry: Arc<Registry>,
    pub(super) routing: Arc<RoutingConfig>,
    pub(super) endpoints: Arc<[EndpointRef]>,
    /// Endpoints that are registered no more and have requests in flight.
    pub(super) leaving: Vec<EndpointRef>,
    strategy: Arc<dyn Strategy>,
    strategy_name: &'static str,
    served: Vec<Served>,
    by_model: HashMap<Arc<str>, usize>,
    ways: Ways,
}

/// A slot that was taken, and why this one.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) choice: Choice<'a>,
    pub(super) step: &'a Step,
    pub(super) strategy: &'static str,
}

/// What came of trying one model.
enum Tried<'a> {
    Taken(Taken<'a>),
    Busy,
    /// Nobody who is well can serve it.
    Unavailable,
}

impl Fleet {
    /// `endpoints` are those of the registry, in its order. `old` lends what it remembers.
    pub(super) fn new(
        registry: Arc<Registry>,
        routing: Arc<RoutingConfig>,
        endpoints: Arc<[EndpointRef]>,
        leaving: Vec<EndpointRef>,
        old: Option<&Self>,
    ) -> Self {
        let mut served: Vec<Served> = Vec::new();
        let mut by_model: HashMap<Arc<str>, usize> = HashMap::new();
        for (endpoint, config) in endpoints.iter().zip(registry.endpoints()) {
            for (nth, model) in config.models.iter().enumerate() {
                let at = match by_model.get(model.name.as_str()) {
                    Some(&at) => at,
                    None => {
                        let name: Arc<str> = model.name.as_str().into();
                        let before = old.and_then(|old| old.served_as(&name));
                        by_model.insert(name.clone(), served.len());
                        served.push(Served::new(name, before));
                        served.len() - 1
                    }
                };
                served[at].push(endpoint.clone(), model, nth);
            }
        }
        let strategy = routing.strategy.strategy(routing.weights);
        Self {
            ways: Ways::new(&routing, &served, &by_model),
            strategy_name: strategy.name(),
            strategy,
            registry,
            routing,
            endpoints,
            leaving,
            served,
            by_model,
        }
    }

    pub(super) fn demand(&self, asked: &Requirements<'_>) -> Demand {
        let needs = Capabilities::NONE
            .with(Capabilities::VISION, asked.vision)
            .with(Capabilities::TOOLS, asked.tools)
            .with(Capabilities::JSON_MODE, asked.json_mode);
        let (name, way) = match self.ways.find(&asked.model) {
            Some((name, found)) => (Arc::clone(name), Some(found)),
            None => (Arc::from(&*asked.model), None),
        };
        Demand {
            wish: Lane {
                name,
                needs,
                context_length: asked.estimated_tokens,
                failed_at: None,
            },
            way,
            prefix: asked.prefix,
            retries: 0,
        }
    }

    /// The lane of those who wish the same, as far as anybody here can tell.
    pub(super) fn lane(&self, wish: &Lane) -> Lane {
        let tokens = wish.context_length;
        let contexts = self.ways.get(&wish.name).map(|way| way.contexts.iter());
        let enough = contexts
            .into_iter()
            .flatten()
            .find(|&&context| context >= tokens);
        Lane {
            context_length: *enough.unwrap_or(&tokens),
            ..wish.clone()
        }
    }

    /// Where `lane` waits: with all that ask for the same model.
    pub(super) fn partition(&self, lane: &Lane) -> Partition {
        let steps = self.ways.get(&lane.name).map_or(&[][..], |way| &way.steps);
        let Some(at) = steps.iter().find_map(|step| step.served) else {
            return Partition::default();
        };
        let served = &self.served[at];
        let Some(room) = self.routing.rooms.get(&*served.model) else {
            return Partition::default();
        };
        let slots = served.endpoints.iter();
        let slots = slots.map(|endpoint| endpoint.limit() as usize).sum();
        Partition {
            id: at as u32 + 1,
            max_size: room.max_size_for(slots, self.routing.room_ceiling),
            discipline: room.discipline,
        }
    }

    /// Takes a slot for `demand` where one is free.
    pub(super) fn take<'a>(
        &'a self,
        demand: &'a Demand,
    ) -> Result<Taken<'a>, LeaseError<RouteError>> {
        let lane = &demand.wish;
        let Some(way) = self.ways.at(demand.way, &lane.name) else {
            return Err(LeaseError::Unservable(self.unknown(lane, None)));
        };
        let mut busy = false;
        for step in &way.steps {
            match self.try_step(step, demand) {
                Tried::Taken(taken) => return Ok(taken),
                Tried::Busy if self.waits_for_first() => return Err(LeaseError::Busy),
                Tried::Busy => busy = true,
                Tried::Unavailable => {}
            }
        }
        match busy || self.expected_back(&way.steps, lane).next().is_some() {
            true => Err(LeaseError::Busy),
            false => Err(LeaseError::Unservable(self.why(way, lane))),
        }
    }

    fn waits_for_first(&self) -> bool {
        self.routing.fallback_when == FallbackWhen::Unavailable
    }

    fn try_step<'a>(&'a self, step: &'a Step, demand: &'a Demand) -> Tried<'a> {
        let Some(served) = step.served.map(|at| &self.served[at]) else {
            return Tried::Unavailable;
        };
        let mut candidates = Candidates {
            servers: &served.servers,
            endpoints: &served.endpoints,
            asks: demand.wish.asks(),
            last: false,
            prefix: demand.prefix,
            turns: &served.turns,
            turn: Cell::new(None),
            now: Cell::new(None),
        };
        // Each round but the last means that another thread has taken or given back a slot since the choice.
        loop {
            let Some(choice) = self.choose(served, &candidates) else {
                if !candidates.last {
                    candidates.last = true;
                    continue;
                }
                let may_serve = |server: &Server| server.may_serve(candidates.asks);
                return match served.servers.iter().any(may_serve) {
                    true => Tried::Busy,
                    false => Tried::Unavailable,
                };
            };
            let Candidate { server, seen, .. } = choice.candidate;
            if server.live.availability.take(seen) {
                return Tried::Taken(Taken {
                    choice,
                    step,
                    strategy: self.strategy_name,
                });
            }
            // Something has changed: those that go first may have a slot by now.
            candidates.last = false;
        }
    }

    fn choose<'a>(&self, served: &Served, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let choice = ask(&*self.strategy, candidates);
        let choice = choice
            .filter(|choice| choice.candidate.is_free())
            .or_else(|| candidates.free().next().map(Choice::new))?;
        match next_on_trial(served, candidates) {
            Some(other) if other.priority() <= choice.candidate.priority() => {
                Some(Choice::new(other))
            }
            _ => Some(choice),
        }
    }

    /// The pools whose slots [`take`](Self::take) would look at now.
    pub(super) fn pools(&self, lane: &Lane) -> PoolSet {
        let steps = self.ways.get(&lane.name).map_or(&[][..], |way| &way.steps);
        let mut pools = Vec::new();
        for step in steps {
            let servers = self.servers(step);
            let able = servers.filter(|server| server.may_serve(lane.asks()));
            pools.extend(able.map(|server| server.live.pool));
            if self.waits_for_first() && !pools.is_empty() {
                break;
            }
        }
        if pools.is_empty() {
            let expected = self.expected_back(steps, lane);
            pools.extend(expected.map(|server| server.live.pool));
        }
        pools.into_iter().collect()
    }

    fn servers(&self, step: &Step) -> impl Iterator<Item = &Server> {
        let served = step.served.map(|at| &self.served[at]);
        served.into_iter().flat_map(|served| &served.servers)
    }

    /// The endpoints for which `lane` waits if no other can serve it, not even a busy one: those that are out of
    /// service for a while only.
    fn expected_back<'a>(
        &'a self,
        steps: &'a [Step],
        lane: &'a Lane,
    ) -> impl Iterator<Item = &'a Server> {
        let servers = steps.iter().flat_map(|step| self.servers(step));
        servers.filter(|server| server.is_expected_back(lane.asks()))
    }

    /// Why nobody will serve `lane`.
    fn why(&self, way: &Way, lane: &Lane) -> RouteError {
        let known = || way.steps.iter().filter_map(|step| step.served);
        let missing = known().map(|at| self.served[at].missing(lane));
        let Some(first) = known().next() else {
            return match way.has_fallbacks() {
                true => exhausted(way),
                false => self.unknown(lane, way.alias_of()),
            };
        };
        // If nobody could whatever happens, it is the request's fault; else it is that of who is not well.
        match missing.collect::<Option<Vec<_>>>() {
            Some(missing) => {
                let missing = missing.into_iter().next();
                missing.unwrap_or_else(|| self.unknown(lane, None))
            }
            None if way.has_fallbacks() => exhausted(way),
            None => RouteError::NoHealthyBackend {
                model: self.served[first].model.clone(),
            },
        }
    }

    /// No endpoint is configured for `lane`. Where there is none at all, nothing can be said of its model.
    fn unknown(&self, lane: &Lane, alias_of: Option<&Arc<str>>) -> RouteError {
        let model = lane.name.clone();
        if self.endpoints.is_empty() {
            return RouteError::NoHealthyBackend { model };
        }
        RouteError::ModelNotFound {
            model,
            alias_of: alias_of.cloned(),
        }
    }

    pub(super) fn served_as(&self, model: &str) -> Option<&Served> {
        self.by_model.get(model).map(|&at| &self.served[at])
    }

    #[cfg(feature = "metrics")]
    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.ways.get(name).is_some()
    }

    /// Whether requests for the name `asked` would have nobody but `endpoint`, on all of their way.
    pub(super) fn is_last(&self, endpoint: &EndpointRef, asked: &str) -> bool {
        let steps = self.ways.get(asked).map_or(&[][..], |way| &way.steps);
        let served = steps.iter().filter_map(|step| step.served);
        let mut others = served
            .flat_map(|at| &self.served[at].endpoints)
            .filter(|other| !other.is_same(endpoint));
        !others.any(|other| other.live().can_stand_in())
    }

    /// Whether `endpoint` may be taken out of service because it failed: of each of its models, no more than a
    /// share is out so, and another endpoint stays. Where a fallback could serve, a model's only one may go.
    pub(super) fn may_eject(&self, endpoint: &EndpointRef) -> bool {
        let is_same = |other: &&EndpointRef| other.is_same(endpoint);
        let Some(endpoint) = self.endpoints.iter().find(is_same) else {
            return false;
        };
        let percent = self.routing.max_ejected_percent as usize;
        self.served_by(endpoint).all(|served| {
            let others = served.endpoints.iter().filter(|other| !is_same(other));
            let out = others.filter(|other| other.live().availability.is_out_by_failures());
            let share = served.endpoints.len() * percent / 100;
            let most = match percent > 0 && self.has_substitute(served, endpoint) {
                true => share.max(1),
                false => share,
            };
            out.count() < most && !self.is_last(endpoint, &served.model)
        })
    }

    /// Whether a model other than `served`, on the way of its name, has an endpoint in service beside `endpoint`.
    fn has_substitute(&self, served: &Served, endpoint: &EndpointRef) -> bool {
        let way = self.ways.get(&served.model);
        let steps = way.map_or(&[][..], |way| &way.steps).iter();
        let substitutes = steps
            .filter(|step| step.model != served.model)
            .filter_map(|step| step.served);
        let mut endpoints = substitutes.flat_map(|at| &self.served[at].endpoints);
        endpoints.any(|other| !other.is_same(endpoint) && other.live().can_stand_in())
    }

    /// Each model of `endpoint` has somebody who may be waiting for its trial.
    pub(super) fn expect_trial(&self, endpoint: &EndpointRef) {
        self.served_by(endpoint)
            .for_each(|served| served.may_have_trial.store(true, SeqCst));
    }

    fn served_by(&self, endpoint: &EndpointRef) -> impl Iterator<Item = &Served> {
        let models = endpoint.config().models.iter();
        models.filter_map(|model| self.served_as(&model.name))
    }
}

/// Who has to be tried, and has a slot free.
fn next_on_trial<'a>(served: &Served, candidates: &Candidates<'a>) -> Option<Candidate<'a>> {
    let may = &served.may_have_trial;
    if !may.load(SeqCst) {
        return None;
    }
    // In this order, so that whoever is put on trial meanwhile is not forgotten.
    may.store(false, SeqCst);
    let mut servers = served.servers.iter();
    if !servers.any(|server| server.live.availability.awaits_trial()) {
        return None;
    }
    may.store(true, SeqCst);
    candidates.free().find(Candidate::is_trial)
}

fn exhausted(way: &Way) -> RouteError {
    RouteError::FallbackChainExhausted {
        tried: way.steps.iter().map(|step| step.model.clone()).collect(),
    }
}
