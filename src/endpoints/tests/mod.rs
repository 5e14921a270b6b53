mod changes;
mod conformance;
mod decisions;
mod ejection;
mod estimates;
mod naive;
mod on_demand;
mod strategies;

use std::sync::Arc;

use super::*;
use crate::admit::{Capacity, LeaseError, PoolId, SlotUsage};
use crate::route::{RoutingConfig, StrategyChoice};

fn endpoint(name: &str, slots: u32, models: &[&str]) -> Endpoint {
    let empty =
        Endpoint::new(name, http::Uri::from_static("http://127.0.0.1")).max_concurrent(slots);
    models
        .iter()
        .fold(empty, |endpoint, &model| endpoint.model(Model::new(model)))
}

fn capacity(endpoints: impl Into<Vec<Endpoint>>) -> Endpoints {
    routed(endpoints, routing(StrategyChoice::LeastLoaded))
}

fn routing(strategy: StrategyChoice) -> RoutingConfig {
    RoutingConfig::default().strategy(strategy)
}

fn routed(endpoints: impl Into<Vec<Endpoint>>, routing: RoutingConfig) -> Endpoints {
    let rules = routing.rules().unwrap();
    Endpoints::with_rules(Registry::new(endpoints.into()).unwrap(), rules)
}

/// A runtime with a paused clock.
fn frozen_time() -> tokio::runtime::Runtime {
    let mut time = tokio::runtime::Builder::new_current_thread();
    time.enable_time().start_paused(true).build().unwrap()
}

fn lease(
    endpoints: &Endpoints,
    asked: &Requirements<'_>,
) -> Result<EndpointLease, LeaseError<RouteError>> {
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
    let endpoints = capacity([
        endpoint("a", 1, &["llama3:8b"]),
        endpoint("b", 1, &["mistral:7b"]),
    ]);
    assert_eq!(order(&endpoints, "llama3:8b"), ["a"]);
    assert_eq!(order(&endpoints, "mistral:7b"), ["b"]);
}

#[test]
fn the_lowest_priority_number_is_used_up_first() {
    let endpoints = capacity([
        endpoint("a", 2, &["m"]).priority(2),
        endpoint("b", 2, &["m"]).priority(1),
    ]);
    assert_eq!(order(&endpoints, "m"), ["b", "b", "a", "a"]);
}

#[test]
fn equals_go_by_free_share() {
    let endpoints = capacity([
        endpoint("a", 1, &["m"]),
        endpoint("b", 2, &["m"]),
        endpoint("c", 1, &["m"]),
    ]);
    let mut order = order(&endpoints, "m");
    assert_eq!(order.pop().as_deref(), Some("b"));
    order.sort();
    assert_eq!(order, ["a", "b", "c"]);
}

#[test]
fn priorities_above_a_hundred_are_equal() {
    let endpoints = capacity([
        endpoint("a", 1, &["m"]).priority(4_000_000_000),
        endpoint("b", 1, &["m"]).priority(100),
        endpoint("c", 1, &["m"]).priority(99),
    ]);
    let mut order = order(&endpoints, "m");
    assert_eq!(order.remove(0), "c");
    order.sort();
    assert_eq!(order, ["a", "b"]);
}

#[test]
fn busy_waits_and_a_released_slot_is_free_again() {
    let endpoints = capacity([endpoint("x", 1, &[]), endpoint("a", 1, &["m"])]);
    let held = lease(&endpoints, &Requirements::new("m")).unwrap();
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        LeaseError::Busy
    );
    assert_eq!(
        endpoints.usage(),
        SlotUsage {
            slots: 2,
            in_use: 1
        }
    );
    assert_eq!(endpoints.release(held), PoolId(1));
    assert_eq!(endpoints.usage().in_use, 0);
    assert_eq!(order(&endpoints, "m"), ["a"]);
}

#[test]
fn an_unknown_model_is_not_found() {
    let model: Arc<str> = "gpt-5".into();
    let not_found = RouteError::ModelNotFound {
        model: model.clone(),
        alias_of: None,
    };
    let nothing_to_know_it = RouteError::NoHealthyBackend { model };
    for (endpoints, why) in [
        (capacity([endpoint("a", 1, &["m"])]), not_found),
        (capacity([]), nothing_to_know_it),
    ] {
        assert_eq!(
            lease(&endpoints, &Requirements::new("gpt-5")).unwrap_err(),
            LeaseError::Unservable(why)
        );
    }
}

#[test]
fn missing_capabilities_are_listed_in_the_error() {
    let with = |name, model| endpoint(name, 1, &[]).model(model);
    let endpoints = capacity([
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
        Err(LeaseError::Unservable(RouteError::CapabilityMismatch { missing, .. })) => {
            missing.join(",")
        }
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
        LeaseError::Busy
    );
    assert_eq!(
        lease(&endpoints, &asked(false, false, false, 17_000)).unwrap_err(),
        LeaseError::Unservable(RouteError::ContextLengthExceeded {
            model: "m".into(),
            tokens: 17_000,
            maximum: 8_192,
        })
    );
    assert_eq!(
        lease(&endpoints, &asked(true, false, false, 9_000)).unwrap_err(),
        LeaseError::Unservable(RouteError::ContextLengthExceeded {
            model: "m".into(),
            tokens: 9_000,
            maximum: 4_096,
        })
    );
    assert_eq!(
        missing(asked(false, false, true, 17_000)),
        "json_mode,context_length"
    );
    assert_eq!(missing(asked(true, true, false, 0)), "vision,tools");
}

#[test]
fn a_prompt_of_any_length_goes_to_the_longest_context_that_can() {
    let with = |name, model| endpoint(name, 1, &[]).model(model);
    let endpoints = capacity([
        with("eyes", Model::new("m").vision(true)),
        with("hands", Model::new("m").tools(true).context_length(8192)),
    ]);
    for (vision, any_length, expected) in [
        (false, Some(true), Some("hands")),
        (true, Some(true), Some("eyes")),
        (false, Some(false), None),
        (false, None, None),
    ] {
        let asked = Requirements {
            vision,
            any_length,
            estimated_tokens: 50_000,
            ..Requirements::new("m")
        };
        let lease = lease(&endpoints, &asked).ok();
        let name = lease.as_ref().map(|lease| lease.endpoint().name());
        assert_eq!(name, expected, "{vision} {any_length:?}");
        if let Some(lease) = lease {
            endpoints.release(lease);
        }
    }
}

#[test]
fn without_a_healthy_endpoint_demands_are_unservable() {
    let endpoints = capacity([endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])]);
    let all = endpoints.endpoints();
    all[0].set_healthy(false);
    assert_eq!(order(&endpoints, "m"), ["b"]);
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        LeaseError::Busy
    );
    all[1].set_healthy(false);
    let model = "m".into();
    assert_eq!(
        lease(&endpoints, &Requirements::new("m")).unwrap_err(),
        LeaseError::Unservable(RouteError::NoHealthyBackend { model })
    );
    all[0].set_healthy(true);
    assert_eq!(order(&endpoints, "m"), ["a"]);
}

#[test]
fn lanes_are_equal_for_the_same_endpoints_only() {
    let short = endpoint("short", 1, &["m", "n"]);
    let long = endpoint("long", 1, &[]).model(Model::new("m").context_length(8192));
    let endpoints = capacity([short, long]);
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
    assert_eq!(pools(&lane("m", 8193)), [1]);
    assert_eq!(pools(&lane("m", 16_384)), [1]);
    assert_eq!(pools(&lane("m", 16_385)), [0; 0]);
    assert_eq!(pools(&lane("n", 8192)), [0]);
    assert_eq!(pools(&lane("n", 8193)), [0; 0]);
    assert_eq!(pools(&lane("unknown", 0)), [0; 0]);
}

#[test]
fn a_demand_without_fallbacks_goes_to_the_name_and_its_target() {
    let all = [endpoint("a", 1, &["a"]), endpoint("b", 1, &["b"])];
    let routing = RoutingConfig::default()
        .alias("to-a", "a")
        .fallbacks("a", ["b"])
        .fallbacks("nowhere", ["b"])
        .fallback_when(FallbackWhen::Busy);
    let endpoints = routed(all, routing);
    let demand = |model: &'static str, without_fallbacks| {
        endpoints.demand(&Requirements {
            without_fallbacks,
            ..Requirements::new(model)
        })
    };
    assert_ne!(
        endpoints.lane(&demand("a", true)),
        endpoints.lane(&demand("a", false))
    );
    let taken = endpoints.try_lease(&demand("to-a", true)).unwrap();
    assert_eq!(taken.endpoint().name(), "a");
    let busy = endpoints.try_lease(&demand("a", true));
    assert_eq!(busy.unwrap_err(), LeaseError::Busy);
    taken.endpoint().set_healthy(false);
    let model: Arc<str> = "a".into();
    for name in ["a", "to-a"] {
        let error = endpoints.try_lease(&demand(name, true)).unwrap_err();
        let model = model.clone();
        let down = RouteError::NoHealthyBackend { model };
        assert_eq!(error, LeaseError::Unservable(down));
        let pools = endpoints.pools(&endpoints.lane(&demand(name, true)));
        assert!(pools.is_empty());
    }
    let nowhere = endpoints.try_lease(&demand("nowhere", true)).unwrap_err();
    assert!(matches!(
        nowhere,
        LeaseError::Unservable(RouteError::ModelNotFound { .. })
    ));
    let fallback = endpoints.try_lease(&demand("a", false)).unwrap();
    assert_eq!(fallback.endpoint().name(), "b");
}

#[test]
fn a_limit_lowered_in_use_holds_at_once() {
    let endpoints = capacity([endpoint("a", 8, &["m"])]);
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
