//! A naive model of [`Endpoints`]: it looks at every endpoint for every request, without resolutions, lanes or packed
//! words.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Closed,
    Ejected,
    HalfOpen,
    Probed,
}

/// What the model knows of an endpoint that outlives changes of its configuration.
#[derive(Debug)]
pub(super) struct State {
    pub(super) pool: PoolId,
    pub(super) limit: u32,
    pub(super) in_use: u32,
    pub(super) down: bool,
    pub(super) draining: bool,
    pub(super) health: Health,
    /// How many probes it has had.
    pub(super) probes: u32,
    /// Its first check is still to come: the others go first.
    pub(super) new: bool,
    pub(super) latency_ms: Option<u32>,
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        let tried = matches!(self.health, Health::Closed | Health::HalfOpen);
        tried && !self.down && !self.draining
    }

    fn is_free(&self) -> bool {
        let slots = if self.new {
            1.min(self.limit)
        } else {
            self.limit
        };
        self.in_use < slots
    }

    fn goes_last(&self) -> bool {
        self.new && self.health == Health::Closed
    }
}

#[derive(Debug, Clone)]
pub(super) struct NaiveEndpoint {
    pub(super) config: Endpoint,
    pub(super) state: Rc<RefCell<State>>,
}

impl NaiveEndpoint {
    fn is(&self, config: &Endpoint) -> bool {
        self.config.name == config.name && self.config.url == config.url
    }

    fn lacks(&self, asked: &Requirements<'_>, model: &str) -> Option<HashSet<&'static str>> {
        let model = self.config.models.iter().find(|it| it.name == model)?;
        let lacks = [
            ("vision", asked.vision && model.vision == Some(false)),
            ("tools", asked.tools && model.tools == Some(false)),
            (
                "json_mode",
                asked.json_mode && model.json_mode == Some(false),
            ),
            (
                "context_length",
                (model.context_length).is_some_and(|longest| asked.estimated_tokens > longest),
            ),
        ];
        let lacks = lacks.into_iter().filter(|(_, lacks)| *lacks);
        Some(lacks.map(|(name, _)| name).collect())
    }
}

pub(super) struct Naive {
    pub(super) endpoints: Vec<NaiveEndpoint>,
    leaving: Vec<NaiveEndpoint>,
    routing: RoutingConfig,
    answers_first: bool,
    rotations: HashMap<String, usize>,
    /// Which of two endpoints is warmer for a prefix.
    warmer: RefCell<HashMap<(u64, String, String), bool>>,
}

/// The expected result of a request.
#[derive(Debug)]
pub(super) enum Expected {
    /// One of these endpoints serves it, as this model.
    At(Vec<usize>, String),
    Busy,
    Unservable(RouteError),
}

/// Where a retry has failed before.
pub(super) type FailedAt = Vec<PoolId>;

impl Naive {
    pub(super) fn new(endpoints: &Endpoints, routing: RoutingConfig) -> Self {
        let mut naive = Self {
            endpoints: Vec::new(),
            leaving: Vec::new(),
            routing,
            answers_first: endpoints.answers_first,
            rotations: HashMap::new(),
            warmer: RefCell::default(),
        };
        naive.change(endpoints);
        naive
    }

    /// The configuration is now that of `endpoints`.
    pub(super) fn change(&mut self, endpoints: &Endpoints) {
        let old = std::mem::take(&mut self.endpoints);
        for endpoint in endpoints.endpoints().iter() {
            let config = endpoint.config().clone();
            let slots = config.max_concurrent;
            let checked = config.health.is_some();
            let stays = old.iter().find(|endpoint| endpoint.is(&config));
            let back = self
                .leaving
                .iter()
                .position(|endpoint| endpoint.is(&config));
            let state = match (stays, back) {
                (Some(stays), _) => {
                    if stays.config.max_concurrent != slots {
                        stays.state.borrow_mut().limit = slots;
                    }
                    Rc::clone(&stays.state)
                }
                (None, Some(back)) => {
                    let back = self.leaving.remove(back).state;
                    back.borrow_mut().limit = slots;
                    back.borrow_mut().draining = false;
                    back
                }
                (None, None) => Rc::new(RefCell::new(State {
                    pool: endpoint.pool(),
                    limit: slots,
                    in_use: 0,
                    down: false,
                    probes: 0,
                    draining: false,
                    health: Health::Closed,
                    new: self.answers_first,
                    latency_ms: None,
                })),
            };
            state.borrow_mut().new &= checked;
            assert_eq!(state.borrow().pool, endpoint.pool());
            self.endpoints.push(NaiveEndpoint { config, state });
        }
        self.leaving
            .retain(|endpoint| endpoint.state.borrow().in_use > 0);
        let stays = |old: &NaiveEndpoint| {
            self.endpoints
                .iter()
                .any(|new| Rc::ptr_eq(&new.state, &old.state))
        };
        let gone = old.into_iter().filter(|old| !stays(old));
        self.leaving.extend(gone);
        for endpoint in &self.leaving {
            endpoint.state.borrow_mut().limit = 0;
        }
        let all = self.endpoints.iter().chain(&self.leaving);
        let pools: HashSet<PoolId> = all.map(|endpoint| endpoint.state.borrow().pool).collect();
        assert_eq!(pools.len(), self.endpoints.len() + self.leaving.len());
        self.rotations.retain(|model, _| {
            let mut models = self
                .endpoints
                .iter()
                .flat_map(|endpoint| &endpoint.config.models);
            models.any(|it| it.name == *model)
        });
    }

    /// The models to try for `name`, and whether each is a fallback.
    pub(super) fn resolve(&self, name: &str) -> Vec<(String, bool)> {
        let alias = self.routing.aliases.get(name);
        let mut resolution = Vec::new();
        if alias.is_none() || self.is_known(name) {
            resolution.push((name.to_owned(), false));
        }
        resolution.extend(alias.map(|target| (target.model.clone(), false)));
        let chains = &self.routing.fallbacks;
        let chain = chains.get(name).filter(|chain| !chain.is_empty());
        let chain = chain.or_else(|| chains.get(&alias?.model));
        for model in chain.into_iter().flatten() {
            if resolution.iter().all(|(tried, _)| tried != model) {
                resolution.push((model.clone(), true));
            }
        }
        resolution
    }

    fn is_known(&self, model: &str) -> bool {
        let mut models = self
            .endpoints
            .iter()
            .flat_map(|endpoint| &endpoint.config.models);
        models.any(|it| it.name == model)
    }

    /// Whether `endpoint` may be taken out of service because it failed.
    pub(super) fn may_eject(&self, endpoint: &NaiveEndpoint) -> bool {
        let percent = self.routing.max_ejected_percent as usize;
        let others = |name: &str| -> Vec<&NaiveEndpoint> {
            let serves =
                |it: &&NaiveEndpoint| it.config.models.iter().any(|model| model.name == name);
            let is_other = |it: &&NaiveEndpoint| !Rc::ptr_eq(&it.state, &endpoint.state);
            self.endpoints
                .iter()
                .filter(is_other)
                .filter(serves)
                .collect()
        };
        let is_out = |it: &&NaiveEndpoint| it.state.borrow().health != Health::Closed;
        let in_service = |name: &str| {
            let others = others(name);
            others.iter().any(|it| {
                let state = it.state.borrow();
                let never_answered = state.new && state.in_use > 0;
                state.health == Health::Closed && state.is_open() && !never_answered
            })
        };
        let mut models = endpoint
            .config
            .models
            .iter()
            .map(|model| model.name.as_str());
        models.all(|model| {
            let out = others(model).into_iter().filter(|it| is_out(it)).count();
            let mut resolution = self.resolve(model).into_iter();
            let substitute = resolution.any(|(name, _)| name != model && in_service(&name));
            let share = (others(model).len() + 1) * percent / 100;
            let most = share.max(usize::from(substitute && percent > 0));
            out < most && (substitute || in_service(model))
        })
    }

    /// The requirements, with the tokens of the longest context that has the capabilities, if the estimate is up to twice as
    /// long.
    fn within_margin<'a>(
        &self,
        asked: &Requirements<'a>,
        resolution: &[(String, bool)],
    ) -> Requirements<'a> {
        let models = self.endpoints.iter().flat_map(|it| &it.config.models);
        let tried = models.filter(|it| resolution.iter().any(|(name, _)| *name == it.name));
        let tried = tried.filter(|it| {
            (it.vision != Some(false) || !asked.vision)
                && (it.tools != Some(false) || !asked.tools)
                && (it.json_mode != Some(false) || !asked.json_mode)
        });
        let longest = tried
            .map(|it| it.context_length.unwrap_or(u32::MAX))
            .max()
            .unwrap_or(0);
        let mut asked = asked.clone();
        if asked.estimated_tokens <= longest.saturating_mul(2) {
            asked.estimated_tokens = asked.estimated_tokens.min(longest);
        }
        asked
    }

    /// The expected result of a request, and the pools of the slots that it would wait for.
    pub(super) fn expect(
        &mut self,
        asked: &Requirements<'_>,
        failed_at: &FailedAt,
    ) -> (Expected, HashSet<PoolId>) {
        let resolution = self.resolve(&asked.model);
        let asked = &self.within_margin(asked, &resolution);
        let only_first = self.routing.fallback_when == FallbackWhen::Unavailable;
        let able = |model: &str| -> Vec<usize> {
            let able = (0..self.endpoints.len()).filter(|&at| {
                let endpoint = &self.endpoints[at];
                let capable = endpoint
                    .lacks(asked, model)
                    .is_some_and(|lacks| lacks.is_empty());
                let state = endpoint.state.borrow();
                capable && state.is_open() && !failed_at.contains(&state.pool)
            });
            able.collect()
        };
        let mut steps: Vec<(String, Vec<usize>)> = resolution
            .iter()
            .map(|(model, _)| (model.clone(), able(model)))
            .filter(|(_, able)| !able.is_empty())
            .collect();
        if only_first {
            steps.truncate(1);
        }
        let able_at_all = steps.iter().flat_map(|(_, able)| able);
        let pools: HashSet<PoolId> = able_at_all
            .map(|&at| self.endpoints[at].state.borrow().pool)
            .collect();
        for (model, able) in &steps {
            for last in [false, true] {
                let is_now = |at: &usize| self.endpoints[*at].state.borrow().goes_last() == last;
                let able: Vec<usize> = able.iter().copied().filter(is_now).collect();
                let is_free = |at: &usize| self.endpoints[*at].state.borrow().is_free();
                let free: Vec<usize> = able.iter().copied().filter(is_free).collect();
                if !free.is_empty() {
                    let chosen = self.choose(asked, model, &able, &free);
                    let chosen = self.probe(&free, chosen);
                    return (Expected::At(chosen, model.clone()), pools);
                }
            }
        }
        if !steps.is_empty() {
            return (Expected::Busy, pools);
        }
        // Out of service for a while only: waited for, unless the request has failed already.
        let recovers = |state: &State| {
            let recovers = matches!(state.health, Health::Ejected | Health::Probed);
            recovers && !state.down && !state.draining && failed_at.is_empty()
        };
        let mut back = HashSet::new();
        for (model, _) in &resolution {
            for endpoint in &self.endpoints {
                let able = endpoint
                    .lacks(asked, model)
                    .is_some_and(|lacks| lacks.is_empty());
                let state = endpoint.state.borrow();
                if able && recovers(&state) {
                    back.insert(state.pool);
                }
            }
        }
        if !back.is_empty() {
            return (Expected::Busy, back);
        }
        (
            Expected::Unservable(self.why(asked, &resolution)),
            HashSet::new(),
        )
    }

    fn priority(&self, at: usize) -> u32 {
        self.endpoints[at].config.priority.min(100)
    }

    fn choose(
        &mut self,
        asked: &Requirements<'_>,
        model: &str,
        able: &[usize],
        free: &[usize],
    ) -> Vec<usize> {
        let idlest = |among: &[usize]| {
            let share = |at: usize| {
                let state = self.endpoints[at].state.borrow();
                f64::from(state.in_use) / f64::from(state.limit)
            };
            let by_priority_and_share = |a: &usize, b: &usize| {
                let preferred = self.priority(*a).cmp(&self.priority(*b));
                preferred.then(share(*a).total_cmp(&share(*b)))
            };
            let idlest = among
                .iter()
                .min_by(|a, b| by_priority_and_share(a, b))
                .unwrap();
            let is_equal = |at: &usize| by_priority_and_share(at, idlest).is_eq();
            among.iter().copied().filter(is_equal).collect()
        };
        match self.routing.strategy {
            StrategyChoice::Smart => {
                let score = |at: usize| {
                    let state = self.endpoints[at].state.borrow();
                    let seconds = f64::from(state.latency_ms.unwrap_or(0)) / 1e3;
                    let late = (1.0 + 20.0 * seconds).ln() / 21.0_f64.ln() * 100.0 + 1e-5;
                    let latency = 100 - (late as u32).min(100);
                    let load = 100 - state.in_use * 100 / state.limit;
                    ((100 - self.priority(at)) * 50 + load * 30 + latency * 20) / 100
                };
                let best = free.iter().map(|&at| score(at)).max().unwrap();
                free.iter()
                    .copied()
                    .filter(|&at| score(at) == best)
                    .collect()
            }
            StrategyChoice::RoundRobin => {
                let rotation = self.rotations.entry(model.to_owned()).or_default();
                let first = *rotation % able.len();
                *rotation += 1;
                let mut in_turn = able[first..].iter().chain(&able[..first]);
                vec![*in_turn.find(|at| free.contains(at)).unwrap()]
            }
            StrategyChoice::PriorityOnly => {
                let least = free.iter().map(|&at| self.priority(at)).min();
                let is_preferred = |at: &usize| Some(self.priority(*at)) == least;
                free.iter().copied().filter(is_preferred).collect()
            }
            StrategyChoice::LeastLoaded => idlest(free),
            StrategyChoice::PrefixAffinity => {
                let Some(prefix) = asked.prefix else {
                    return idlest(free);
                };
                let states = || able.iter().map(|&at| self.endpoints[at].state.borrow());
                let in_flight: u32 = 1 + states().map(|state| state.in_use).sum::<u32>();
                let slots: u32 = states().map(|state| state.limit).sum();
                let has_room = |at: &usize| {
                    let state = self.endpoints[*at].state.borrow();
                    let limit = f64::from(state.limit);
                    let share = 1.25 * f64::from(in_flight) * limit / f64::from(slots);
                    f64::from(state.in_use) < share.ceil().max((limit / 2.0).ceil())
                };
                let roomy: Vec<usize> = free.iter().copied().filter(has_room).collect();
                let rendezvous = roomy
                    .iter()
                    .copied()
                    .reduce(|a, b| if self.is_warmer(prefix, b, a) { b } else { a });
                rendezvous.map_or_else(|| idlest(free), |at| vec![at])
            }
            _ => free.to_vec(),
        }
    }

    /// Whether, of these two alone and idle, `a` would be given what begins so.
    fn is_warmer(&self, prefix: u64, a: usize, b: usize) -> bool {
        let name = |at: usize| self.endpoints[at].config.name.clone();
        let key = (prefix, name(a), name(b));
        *self.warmer.borrow_mut().entry(key).or_insert_with(|| {
            let two = [name(b), name(a)].map(|name| endpoint(&name, 1, &["m"]));
            let two = routed(two, routing(StrategyChoice::PrefixAffinity));
            let asked = Requirements {
                prefix: Some(prefix),
                ..Requirements::new("m")
            };
            lease(&two, &asked).unwrap().endpoint().name() == name(a)
        })
    }

    /// A half-open endpoint goes first, unless the others are preferred.
    fn probe(&self, free: &[usize], chosen: Vec<usize>) -> Vec<usize> {
        let half_open = |at: &usize| self.endpoints[*at].state.borrow().health == Health::HalfOpen;
        let Some(probe) = free.iter().copied().find(half_open) else {
            return chosen;
        };
        let beats = |at: &usize| self.priority(probe) <= self.priority(*at);
        let mut candidates: Vec<usize> = chosen.iter().copied().filter(|at| !beats(at)).collect();
        if chosen.iter().any(beats) {
            candidates.push(probe);
        }
        candidates
    }

    fn why(&self, asked: &Requirements<'_>, resolution: &[(String, bool)]) -> RouteError {
        let tried = || {
            resolution
                .iter()
                .map(|(model, _)| model.as_str().into())
                .collect()
        };
        let has_chain = resolution.iter().any(|(_, fallback)| *fallback);
        let known = |(model, _): &&(String, bool)| self.is_known(model);
        let Some((first, _)) = resolution.iter().find(known) else {
            if has_chain {
                return RouteError::FallbackChainExhausted { tried: tried() };
            }
            if self.endpoints.is_empty() {
                return RouteError::NoHealthyBackend {
                    model: (*asked.model).into(),
                };
            }
            let alias = self.routing.aliases.get(&*asked.model);
            return RouteError::ModelNotFound {
                model: (*asked.model).into(),
                alias_of: alias.map(|target| target.model.as_str().into()),
            };
        };
        let lacks = |model: &str| -> Vec<HashSet<&'static str>> {
            let endpoints = self.endpoints.iter();
            endpoints
                .filter_map(|endpoint| endpoint.lacks(asked, model))
                .collect()
        };
        let capable = |(model, _): &(String, bool)| lacks(model).iter().any(HashSet::is_empty);
        if resolution.iter().any(capable) {
            return match has_chain {
                true => RouteError::FallbackChainExhausted { tried: tried() },
                false => RouteError::NoHealthyBackend {
                    model: first.as_str().into(),
                },
            };
        }
        let is_only_too_long = |lacks: &HashSet<&str>| *lacks == HashSet::from(["context_length"]);
        let contexts = resolution.iter().flat_map(|(model, _)| {
            let endpoints = self.endpoints.iter();
            endpoints.filter_map(|endpoint| {
                let models = &endpoint.config.models;
                let context = models.iter().find(|it| it.name == *model)?.context_length?;
                is_only_too_long(&endpoint.lacks(asked, model)?).then_some(context)
            })
        });
        if let Some(maximum) = contexts.max() {
            return RouteError::ContextLengthExceeded {
                model: first.as_str().into(),
                tokens: asked.estimated_tokens,
                maximum,
            };
        }
        let lacks = lacks(first);
        let named = |is_missing: &dyn Fn(&&'static str) -> bool| -> Vec<&'static str> {
            let all = ["vision", "tools", "json_mode", "context_length"];
            all.into_iter().filter(|name| is_missing(name)).collect()
        };
        let mut missing = named(&|name| lacks.iter().all(|lacks| lacks.contains(name)));
        if missing.is_empty() {
            missing = named(&|name| lacks.iter().any(|lacks| lacks.contains(name)));
        }
        RouteError::CapabilityMismatch {
            model: first.as_str().into(),
            missing,
        }
    }
}
