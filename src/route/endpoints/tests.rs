use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::route::{Endpoint, Model, StrategyChoice};

fn endpoint(name: &str, slots: u32, models: &[&str]) -> Endpoint {
    let empty =
        Endpoint::new(name, http::Uri::from_static("http://127.0.0.1")).max_concurrent(slots);
    models
        .iter()
        .fold(empty, |endpoint, &model| endpoint.model(Model::new(model)))
}

fn fleet(endpoints: impl Into<Vec<Endpoint>>) -> Endpoints {
    let routing = RoutingConfig::default().strategy(StrategyChoice::LeastLoaded);
    routed(endpoints, routing)
}

fn routed(endpoints: impl Into<Vec<Endpoint>>, routing: RoutingConfig) -> Endpoints {
    Endpoints::with_routing(Registry::new(endpoints.into()).unwrap(), routing).unwrap()
}

fn lease(
    endpoints: &Endpoints,
    asked: &Requirements<'_>,
) -> Result<EndpointLease, Denied<RouteError>> {
    endpoints.try_lease(&endpoints.demand(asked))
}

/// The names of the endpoints that serve `model`, request after request, until all are busy.
fn order(endpoints: &Endpoints, model: &str) -> Vec<String> {
    let demand = endpoints.demand(&Requirements::new(model));
    let leases = std::iter::from_fn(|| endpoints.try_lease(&demand).ok());
    leases
        .map(|lease| lease.endpoint().name().to_owned())
        .collect()
}

#[test]
fn a_model_goes_where_it_is_served() {
    let endpoints = fleet([
        endpoint("a", 1, &["llama3:8b"]),
        endpoint("b", 1, &["mistral:7b"]),
    ]);
    assert_eq!(order(&endpoints, "llama3:8b"), ["a"]);
    assert_eq!(order(&endpoints, "mistral:7b"), ["b"]);
}

#[test]
fn the_lowest_priority_number_is_used_up_first() {
    let endpoints = fleet([
        endpoint("a", 2, &["m"]).priority(2),
        endpoint("b", 2, &["m"]).priority(1),
    ]);
    assert_eq!(order(&endpoints, "m"), ["b", "b", "a", "a"]);
}

#[test]
fn among_equals_the_largest_free_share_then_the_registry_order() {
    let endpoints = fleet([
        endpoint("a", 1, &["m"]),
        endpoint("b", 2, &["m"]),
        endpoint("c", 1, &["m"]),
    ]);
    assert_eq!(order(&endpoints, "m"), ["a", "b", "c", "b"]);
}

#[test]
fn priorities_above_a_hundred_are_equal() {
    let endpoints = fleet([
        endpoint("a", 1, &["m"]).priority(4_000_000_000),
        endpoint("b", 1, &["m"]).priority(100),
    ]);
    assert_eq!(order(&endpoints, "m"), ["a", "b"]);
}

#[test]
fn busy_waits_and_a_released_slot_is_free_again() {
    let endpoints = fleet([endpoint("x", 1, &[]), endpoint("a", 1, &["m"])]);
    let held = lease(&endpoints, &Requirements::new("m")).unwrap();
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        Denied::Busy
    );
    assert_eq!((endpoints.in_use(), endpoints.limit()), (1, 2));
    assert_eq!(endpoints.release(held), Pool(1));
    assert_eq!(endpoints.in_use(), 0);
    assert_eq!(order(&endpoints, "m"), ["a"]);
}

#[test]
fn an_unknown_model_is_not_found() {
    for endpoints in [fleet([]), fleet([endpoint("a", 1, &["m"])])] {
        let not_found = RouteError::ModelNotFound {
            model: "gpt-5".into(),
            alias_of: None,
        };
        assert_eq!(
            lease(&endpoints, &Requirements::new("gpt-5")).unwrap_err(),
            Denied::Never(not_found)
        );
    }
}

#[test]
fn capabilities_choose_the_endpoint_and_what_is_missing_is_listed() {
    let with = |name, model| endpoint(name, 1, &[]).model(model);
    let endpoints = fleet([
        with("plain", Model::new("m")),
        with("eyes", Model::new("m").vision(true)),
        with("hands", Model::new("m").tools(true).context_length(8192)),
    ]);
    let asked = |vision, tools, json_mode, estimated_tokens| Requirements {
        vision,
        tools,
        json_mode,
        estimated_tokens,
        ..Requirements::new("m")
    };
    let missing = |asked| match lease(&endpoints, &asked) {
        Err(Denied::Never(RouteError::CapabilityMismatch { missing, .. })) => missing.join(","),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        lease(&endpoints, &asked(true, false, false, 1))
            .unwrap()
            .endpoint()
            .name(),
        "eyes"
    );
    assert_eq!(
        lease(&endpoints, &asked(false, false, false, 5000))
            .unwrap()
            .endpoint()
            .name(),
        "hands"
    );
    assert_eq!(
        lease(&endpoints, &asked(false, true, false, 0)).unwrap_err(),
        Denied::Busy
    );
    assert_eq!(
        missing(asked(false, false, true, 9000)),
        "json_mode,context_length"
    );
    assert_eq!(missing(asked(true, true, false, 0)), "vision,tools");
}

#[test]
fn an_unhealthy_endpoint_gets_nothing_and_the_last_one_denies_for_good() {
    let endpoints = fleet([endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])]);
    let all = endpoints.endpoints();
    all[0].set_healthy(false);
    assert_eq!(order(&endpoints, "m"), ["b"]);
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        Denied::Busy
    );
    all[1].set_healthy(false);
    let model = "m".into();
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        Denied::Never(RouteError::NoHealthyBackend { model })
    );
    all[0].set_healthy(true);
    assert_eq!(order(&endpoints, "m"), ["a"]);
}

#[test]
fn lanes_are_equal_exactly_if_the_same_endpoints_can_serve() {
    let short = endpoint("short", 1, &["m", "n"]);
    let long = endpoint("long", 1, &[]).model(Model::new("m").context_length(8192));
    let endpoints = fleet([short, long]);
    let lane = |model: &'static str, estimated_tokens| {
        let asked = Requirements {
            estimated_tokens,
            ..Requirements::new(model)
        };
        endpoints.lane(&endpoints.demand(&asked))
    };
    let pools = |lane: &Lane| {
        endpoints
            .pools(lane)
            .iter()
            .map(|pool| pool.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(lane("m", 0), lane("m", 4096));
    assert_eq!(lane("m", 4097), lane("m", 8192));
    assert_ne!(lane("m", 4096), lane("m", 4097));
    assert_ne!(lane("m", 0), lane("n", 0));
    assert_eq!(pools(&lane("m", 0)), [0, 1]);
    assert_eq!(pools(&lane("m", 5000)), [1]);
    assert_eq!(pools(&lane("m", 9000)), [0; 0]);
    assert_eq!(pools(&lane("unknown", 0)), [0; 0]);
}

#[derive(Debug, Clone)]
enum Step {
    Lease {
        model: usize,
        vision: bool,
        tokens: u32,
    },
    Release(usize),
    Limit(usize, u32),
    Health(usize, bool),
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_usize, any::<bool>(), 0..10_000_u32)
            .prop_map(|(model, vision, tokens)| Step::Lease { model, vision, tokens }),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (0..5_usize, 0..4_u32).prop_map(|(endpoint, limit)| Step::Limit(endpoint, limit)),
        1 => (0..5_usize, any::<bool>()).prop_map(|(endpoint, healthy)| Step::Health(endpoint, healthy)),
    ]
}

const MODELS: [&str; 4] = ["m0", "m1", "m2", "unknown"];

/// Five endpoints that differ in slots, priority, models, vision and context.
fn mixed() -> Vec<Endpoint> {
    (0..5_u32)
        .map(|i| {
            let empty = endpoint(&format!("e{i}"), 1 + i % 3, &[]).priority(i % 2);
            let models = (0..3).filter(|m| (i + m) % 3 != 0);
            models.fold(empty, |endpoint, m| {
                let model = Model::new(MODELS[m as usize]);
                endpoint.model(model.vision(i % 2 == 0).context_length(4096 << (i % 2)))
            })
        })
        .collect()
}

proptest! {
    /// Against a scan that knows nothing of tiers, lanes or packed words.
    #[test]
    fn leases_follow_the_naive_scan(steps in prop::collection::vec(step(), 1..200)) {
        let config = mixed();
        let endpoints = fleet(config.clone());
        let live = endpoints.endpoints();
        let mut held = Vec::new();
        for step in steps {
            match step {
                Step::Lease { model, vision, tokens } => {
                    let asked = Requirements { vision, estimated_tokens: tokens, ..Requirements::new(MODELS[model]) };
                    let capable: Vec<usize> = (0..config.len())
                        .filter(|&i| config[i].models.iter().any(|m| {
                            m.name == asked.model && (m.vision || !vision) && m.context_length >= tokens
                        }))
                        .collect();
                    let mut healthy = capable.iter().copied().filter(|&i| live[i].healthy()).peekable();
                    let none_healthy = healthy.peek().is_none();
                    let share = |i: usize| f64::from(live[i].in_flight()) / f64::from(live[i].limit());
                    let expected = healthy
                        .filter(|&i| live[i].in_flight() < live[i].limit())
                        .min_by(|&a, &b| {
                            let preferred = config[a].priority.cmp(&config[b].priority);
                            preferred.then(share(a).total_cmp(&share(b)))
                        });
                    let pools: Vec<usize> = {
                        let lane = endpoints.lane(&endpoints.demand(&asked));
                        endpoints.pools(&lane).iter().map(|pool| pool.0 as usize).collect()
                    };
                    let able: Vec<usize> = capable.iter().copied().filter(|&i| live[i].healthy()).collect();
                    prop_assert_eq!(pools, able);
                    match (lease(&endpoints, &asked), expected) {
                        (Ok(lease), Some(i)) => {
                            prop_assert_eq!(lease.endpoint().name(), &config[i].name);
                            held.push(lease);
                        }
                        (Err(Denied::Busy), None) => prop_assert!(!none_healthy),
                        (Err(Denied::Never(_)), None) => prop_assert!(none_healthy),
                        (got, expected) => prop_assert!(false, "{:?} instead of {:?}", got, expected),
                    }
                }
                Step::Release(nth) => if !held.is_empty() {
                    let lease = held.swap_remove(nth % held.len());
                    let pool = lease.endpoint().pool();
                    prop_assert_eq!(endpoints.release(lease), pool);
                },
                Step::Limit(i, limit) => live[i].set_limit(limit),
                Step::Health(i, healthy) => _ = live[i].set_healthy(healthy),
            }
            let mut count: HashMap<&str, u32> = HashMap::new();
            for lease in &held {
                *count.entry(lease.endpoint().name()).or_default() += 1;
            }
            for endpoint in live.iter() {
                prop_assert_eq!(endpoint.in_flight(), count.get(endpoint.name()).copied().unwrap_or(0));
            }
            prop_assert_eq!(endpoints.in_use(), held.len());
        }
    }
}

#[test]
fn threads_never_hold_more_leases_than_slots_and_spread_evenly() {
    const THREADS: usize = 4;
    let endpoints = fleet(["a", "b", "c", "d"].map(|name| endpoint(name, 3, &["m"])));
    let held: [AtomicUsize; 4] = Default::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let demand = endpoints.demand(&Requirements::new("m"));
                let mut leases = Vec::new();
                for turn in 0..20_000 {
                    if let Ok(lease) = endpoints.try_lease(&demand) {
                        let pool = lease.endpoint().pool().0 as usize;
                        let before = held[pool].fetch_add(1, Ordering::SeqCst);
                        assert!(
                            before < 3,
                            "{before} leases were out when one more was given"
                        );
                        leases.push(lease);
                    }
                    if leases.len() > turn % 5 {
                        let lease = leases.swap_remove(0);
                        held[lease.endpoint().pool().0 as usize].fetch_sub(1, Ordering::SeqCst);
                        endpoints.release(lease);
                    }
                }
                for lease in leases {
                    held[lease.endpoint().pool().0 as usize].fetch_sub(1, Ordering::SeqCst);
                    endpoints.release(lease);
                }
            });
        }
    });
    assert_eq!(endpoints.in_use(), 0);
    let order = order(&endpoints, "m");
    assert_eq!(order, ["a", "b", "c", "d"].repeat(3));
}

#[test]
fn a_limit_that_falls_in_use_holds_from_then_on() {
    let endpoints = fleet([endpoint("a", 8, &["m"])]);
    let demand = endpoints.demand(&Requirements::new("m"));
    let mut leases: Vec<_> = std::iter::from_fn(|| endpoints.try_lease(&demand).ok()).collect();
    endpoints.endpoints()[0].set_limit(3);
    while let Some(lease) = leases.pop() {
        endpoints.release(lease);
        let free = endpoints
            .try_lease(&demand)
            .map(|lease| endpoints.release(lease))
            .is_ok();
        assert_eq!(free, leases.len() < 3, "{} in flight", leases.len());
    }
}
