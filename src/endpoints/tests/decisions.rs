//! Decisions of [`Endpoints`], step by step, against the naive model.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use http::Uri;

use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::naive::{Expected, FailedAt, Health, Naive, State};
use super::*;
use crate::endpoints::HealthCheck;
use crate::endpoints::latency::CoarseInstant;

#[derive(Debug, Clone)]
enum Step {
    Lease {
        name: usize,
        needs: [bool; 3],
        tokens: u32,
        prefix: Option<u64>,
        failed_at: Vec<usize>,
    },
    Release(usize),
    Limit(usize, u32),
    Up(usize, bool),
    Drain(usize, bool),
    Eject(usize),
    HalfOpen(usize),
    Close(usize),
    Answer(usize),
    Slow(usize, u32),
    Change(Vec<Option<Spec>>),
}

/// The configuration of one endpoint; its name is its index.
#[derive(Debug, Clone)]
struct Spec {
    moved: bool,
    checked: bool,
    slots: u32,
    priority: u32,
    models: [Option<([bool; 3], u32)>; 3],
}

const SPECS: usize = 5;

impl Spec {
    fn endpoint(&self, at: usize) -> Endpoint {
        let url = match self.moved {
            true => "http://127.0.0.1:1",
            false => "http://127.0.0.1:2",
        };
        let empty = Endpoint::new(format!("e{at}"), Uri::from_static(url))
            .max_concurrent(self.slots)
            .priority(self.priority);
        let empty = match self.checked {
            true => empty.health(HealthCheck::default()),
            false => empty,
        };
        let models = self.models.iter().zip(["m0", "m1", "m2"]);
        models.fold(empty, |endpoint, (model, name)| match *model {
            Some(([vision, tools, json_mode], context_length)) => endpoint.model(
                Model::new(name)
                    .vision(vision)
                    .tools(tools)
                    .json_mode(json_mode)
                    .context_length(context_length),
            ),
            None => endpoint,
        })
    }
}

fn registry(specs: &[Option<Spec>]) -> Registry {
    let specs = specs.iter().enumerate();
    let endpoints = specs.filter_map(|(at, spec)| Some(spec.as_ref()?.endpoint(at)));
    Registry::new(endpoints.collect()).unwrap()
}

const NAMES: [&str; 10] = [
    "m0", "m1", "m2", "gpt", "opus", "lost", "both", "chain", "ghosts", "unknown",
];

fn tangled(strategy: StrategyChoice, when: FallbackWhen) -> RoutingConfig {
    routing(strategy)
        .fallback_when(when)
        .alias("gpt", "m1")
        .alias("opus", "m0")
        .alias("lost", "nowhere")
        .alias("m2", "m0")
        .alias("both", "gpt")
        .fallbacks("m1", ["m2", "m0"])
        .fallbacks("opus", ["nowhere", "m1", "m0"])
        .fallbacks("chain", ["m1"])
        .fallbacks("ghosts", ["nowhere", "gpt"])
        .fallbacks("m0", [""; 0])
}

fn strategies() -> impl Strategy<Value = StrategyChoice> {
    let all = StrategyChoice::NAMES.map(|name| name.parse().unwrap());
    prop::sample::select(all.to_vec())
}

fn spec() -> impl Strategy<Value = Spec> {
    let model = prop::option::weighted(
        0.7,
        (
            any::<[bool; 3]>(),
            prop::sample::select(vec![2048, 4096, 8192]),
        ),
    );
    let priority = prop::sample::select(vec![0, 0, 1, 1, 2, 100, 4_000_000_000]);
    (
        prop::bool::weighted(0.2),
        any::<bool>(),
        1..4_u32,
        priority,
        [model.clone(), model.clone(), model],
    )
        .prop_map(|(moved, checked, slots, priority, models)| Spec {
            moved,
            checked,
            slots,
            priority,
            models,
        })
}

fn specs() -> impl Strategy<Value = Vec<Option<Spec>>> {
    prop::collection::vec(prop::option::weighted(0.8, spec()), SPECS)
}

fn step() -> impl Strategy<Value = Step> {
    let needs = prop::array::uniform3(prop::bool::weighted(0.2));
    let tokens = prop::sample::select(vec![0, 100, 2048, 3000, 4097, 8192, 9000]);
    let prefix = prop::option::of(0..8_u64);
    let failed_at = prop::collection::vec(any::<usize>(), 0..3);
    let at = 0..SPECS;
    prop_oneof![
        12 => (0..NAMES.len(), needs, tokens, prefix, failed_at).prop_map(
            |(name, needs, tokens, prefix, failed_at)| Step::Lease {
                name, needs, tokens, prefix, failed_at,
            }
        ),
        6 => any::<usize>().prop_map(Step::Release),
        1 => (at.clone(), 0..4_u32).prop_map(|(at, slots)| Step::Limit(at, slots)),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, up)| Step::Up(at, up)),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, drain)| Step::Drain(at, drain)),
        1 => at.clone().prop_map(Step::Eject),
        2 => at.clone().prop_map(Step::HalfOpen),
        1 => at.clone().prop_map(Step::Close),
        2 => at.clone().prop_map(Step::Answer),
        1 => (at, 0..1_500_u32).prop_map(|(at, ms)| Step::Slow(at, ms)),
        1 => specs().prop_map(Step::Change),
    ]
}

/// `Endpoints` and the model, side by side.
struct Pair {
    endpoints: Endpoints,
    naive: Naive,
    /// The lease, its endpoint, and the number of the probe that it is.
    held: Vec<(EndpointLease, Rc<RefCell<State>>, Option<u32>)>,
}

impl Pair {
    /// With `answers_first`, endpoints are new when they enter service.
    fn new(specs: &[Option<Spec>], routing: RoutingConfig, answers_first: bool) -> Self {
        let endpoints = Endpoints::routed(registry(specs), routing.rules().unwrap(), answers_first);
        Self {
            naive: Naive::new(&endpoints, routing),
            endpoints,
            held: Vec::new(),
        }
    }

    fn pair_at(&self, at: usize) -> Option<(EndpointRef, RefMut<'_, State>)> {
        let name = format!("e{at}");
        let all = self.endpoints.endpoints();
        let endpoint = all.iter().find(|endpoint| endpoint.name() == name)?;
        let mut endpoints = self.naive.endpoints.iter();
        let naive = endpoints.find(|naive| naive.config.name == name)?;
        Some((endpoint.clone(), naive.state.borrow_mut()))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Lease {
                name,
                needs: [vision, tools, json_mode],
                tokens,
                prefix,
                failed_at,
            } => {
                let asked = Requirements {
                    vision,
                    tools,
                    json_mode,
                    estimated_tokens: tokens,
                    prefix,
                    ..Requirements::new(NAMES[name])
                };
                self.lease(&asked, &failed_at);
            }
            Step::Release(nth) if !self.held.is_empty() => {
                let (lease, state, probe) = self.held.swap_remove(nth % self.held.len());
                let mut state = state.borrow_mut();
                let is_probe = probe == Some(state.probes) && state.health == Health::Probed;
                if is_probe {
                    state.health = Health::HalfOpen;
                }
                state.in_use -= 1;
                assert_eq!(self.endpoints.release(lease), state.pool);
            }
            Step::Release(_) => {}
            Step::Change(specs) => {
                let registry = registry(&specs);
                let changes = self
                    .endpoints
                    .change(|_| Ok::<_, std::convert::Infallible>((registry, None)));
                changes.unwrap();
                self.naive.change(&self.endpoints);
            }
            Step::Limit(at, slots) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    endpoint.set_limit(slots);
                    state.limit = slots;
                }
            }
            Step::Up(at, up) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    let is_new = state.down == up || state.new;
                    assert_eq!(endpoint.set_healthy(up), is_new);
                    state.down = !up;
                    state.new = false;
                }
            }
            Step::Drain(at, draining) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    let word = &endpoint.state().word;
                    assert_eq!(
                        word.set(HealthFlags::DRAINING, draining).is_new(),
                        state.draining != draining
                    );
                    state.draining = draining;
                }
            }
            Step::Eject(at) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    let newly = endpoint.state().word.eject();
                    assert_eq!(newly.is_new(), state.health != Health::Ejected);
                    state.health = Health::Ejected;
                }
            }
            Step::HalfOpen(at) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    self.endpoints.half_open(&endpoint);
                    if state.health == Health::Ejected {
                        state.health = Health::HalfOpen;
                    }
                }
            }
            Step::Close(at) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    let back = endpoint.state().word.close();
                    assert_eq!(back.is_new(), state.health != Health::Closed);
                    state.health = Health::Closed;
                }
            }
            Step::Answer(at) => {
                if let Some((endpoint, mut state)) = self.pair_at(at) {
                    let news = endpoint.state().word.answered();
                    assert_eq!(news.is_some(), state.new);
                    state.new = false;
                }
            }
            Step::Slow(at, ms) => {
                if let Some((endpoint, mut state)) = self.pair_at(at)
                    && state.latency_ms.is_none()
                {
                    let took = Duration::from_millis(ms.into());
                    endpoint
                        .state()
                        .latency
                        .answered(took, CoarseInstant::now());
                    state.latency_ms = Some(ms);
                }
            }
        }
    }

    fn lease(&mut self, asked: &Requirements<'_>, failed_at: &[usize]) {
        let mut demand = self.endpoints.demand(asked);
        let mut pools: FailedAt = Vec::new();
        for &nth in failed_at {
            let Some(at) = nth.checked_rem(self.held.len()) else {
                break;
            };
            let endpoint = self.held[at].0.endpoint().clone();
            demand = demand.retry(&endpoint);
            pools.push(endpoint.pool());
        }
        let (expected, pools) = self.naive.expect(asked, &pools);
        let lane = self.endpoints.lane(&demand);
        let waits_for: HashSet<PoolId> = self.endpoints.pools(&lane).iter().copied().collect();
        assert_eq!(waits_for, pools);
        match (self.endpoints.try_lease(&demand), expected) {
            (Ok(lease), Expected::At(candidates, model)) => {
                let name = lease.endpoint().name();
                let mut endpoints = candidates.iter().map(|&at| &self.naive.endpoints[at]);
                let naive = endpoints.find(|naive| naive.config.name == name);
                let naive = naive.unwrap_or_else(|| panic!("{name} instead of {candidates:?}"));
                let state = Rc::clone(&naive.state);
                assert_eq!(lease.model(), model);
                assert_eq!(*lease.decision().asked, *asked.model);
                let mut changed = state.borrow_mut();
                changed.in_use += 1;
                let is_probe = lease.probe.is_some();
                assert_eq!(is_probe, changed.health == Health::HalfOpen);
                if is_probe {
                    changed.health = Health::Probed;
                    changed.probes += 1;
                }
                let probe = is_probe.then_some(changed.probes);
                drop(changed);
                self.held.push((lease, state, probe));
            }
            (Err(LeaseError::Busy), Expected::Busy) => {}
            (Err(LeaseError::Unservable(why)), Expected::Unservable(expected)) => {
                assert_eq!(why, expected)
            }
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    fn check(&self) {
        for (endpoint, naive) in self.endpoints.endpoints().iter().zip(&self.naive.endpoints) {
            let state = naive.state.borrow();
            assert_eq!(endpoint.config(), &naive.config);
            assert_eq!(endpoint.in_flight(), state.in_use);
            assert_eq!(endpoint.limit(), state.limit);
            assert_eq!(endpoint.draining(), state.draining);
            let healthy = !state.down && state.health == Health::Closed;
            assert_eq!(endpoint.healthy(), healthy);
            let may_eject = self.naive.may_eject(naive);
            assert_eq!(self.endpoints.table.load().may_eject(endpoint), may_eject);
        }
        assert_eq!(self.endpoints.usage().in_use, self.held.len());
        let limits = self
            .naive
            .endpoints
            .iter()
            .map(|naive| naive.state.borrow().limit as usize);
        assert_eq!(self.endpoints.usage().slots, limits.sum::<usize>());
    }
}

proptest! {
    #[test]
    fn decisions_equal_the_naive_models(
        strategy in strategies(),
        when in prop::sample::select(vec![FallbackWhen::Unavailable, FallbackWhen::Busy]),
        answers_first in any::<bool>(),
        first in specs(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let time = frozen_time();
        let _entered = time.enter();
        let mut pair = Pair::new(&first, tangled(strategy, when), answers_first);
        for step in steps {
            pair.take(step);
            pair.check();
        }
    }

    /// What the waiting room relies on: it asks for one lane of many and takes the answer for all.
    #[test]
    fn demands_of_the_same_pools_are_busy_together(
        when in prop::sample::select(vec![FallbackWhen::Unavailable, FallbackWhen::Busy]),
        answers_first in any::<bool>(),
        first in specs(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::new(&first, tangled(StrategyChoice::LeastLoaded, when), answers_first);
        let mut waiting = Vec::new();
        for step in steps {
            if let Step::Lease { name, tokens, .. } = step {
                let asked = Requirements { estimated_tokens: tokens, ..Requirements::new(NAMES[name]) };
                let demand = pair.endpoints.demand(&asked);
                let again = pair.held.iter().map(|(lease, ..)| demand.clone().retry(lease.endpoint()));
                waiting.extend(again.take(1));
                waiting.push(demand);
            }
            pair.take(step);
            let mut busy: HashMap<Vec<PoolId>, bool> = HashMap::new();
            let mut lanes: HashMap<Lane, bool> = HashMap::new();
            for demand in &waiting {
                let lane = pair.endpoints.lane(demand);
                let pools = pair.endpoints.pools(&lane);
                let is_busy = match pair.endpoints.try_lease(demand) {
                    Ok(lease) => {
                        prop_assert!(pools.contains(&lease.endpoint().pool()));
                        _ = pair.endpoints.release(lease);
                        false
                    }
                    Err(LeaseError::Busy) => true,
                    Err(LeaseError::Unservable(_)) => {
                        prop_assert!(pools.is_empty());
                        continue;
                    }
                };
                prop_assert_eq!(*busy.entry(pools.to_vec()).or_insert(is_busy), is_busy);
                prop_assert_eq!(*lanes.entry(lane).or_insert(is_busy), is_busy);
            }
        }
    }
}
