//! Endpoints and models that change while requests come, wait and run.

use std::convert::Infallible;

use super::*;

fn change(endpoints: &Endpoints, to: impl Into<Vec<Endpoint>>) -> Changes {
    let registry = Registry::new(to.into()).unwrap();
    let changes = endpoints.change(|_| Ok::<_, Infallible>((registry, None)));
    changes.unwrap()
}

fn hold(endpoints: &Endpoints, model: &str) -> EndpointLease {
    lease(endpoints, &Requirements::new(model)).unwrap()
}

#[test]
fn a_leaving_endpoint_counts_until_its_last_lease() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| endpoint(name, 2, &["m"]));
    let endpoints = capacity([a.clone()]);
    let on_a = hold(&endpoints, "m");
    change(&endpoints, [a, b.clone()]);
    assert_eq!(change(&endpoints, [b.clone()]).removed, ["a"]);
    assert_eq!(
        endpoints.usage(),
        SlotUsage {
            slots: 2,
            in_use: 1
        }
    );
    change(&endpoints, [b.clone(), c.clone()]);
    change(&endpoints, [b.clone(), c.clone(), d.clone()]);
    assert_eq!(order(&endpoints, "m").len(), 6);
    let pools = endpoints.endpoints();
    let pools: Vec<PoolId> = pools.iter().map(EndpointRef::pool).collect();
    // Only what is its own no more is given to others.
    assert_eq!(pools, [PoolId(1), PoolId(2), PoolId(3)]);
    assert_eq!(endpoints.release(on_a), PoolId(0));
    let [e, f] = ["e", "f"].map(|name| endpoint(name, 2, &["m"]));
    change(&endpoints, [b.clone(), c.clone(), d.clone(), e.clone()]);
    change(&endpoints, [b, c, d, e, f]);
    let pools = endpoints.endpoints();
    assert_eq!(pools[4].pool(), PoolId(0));
    // Those that `order` took.
    assert_eq!(endpoints.usage().in_use, 6);
}

#[test]
fn an_endpoint_that_returns_keeps_its_leases() {
    let a = endpoint("a", 2, &["m"]);
    let endpoints = capacity([a.clone()]);
    let before = hold(&endpoints, "m");
    change(&endpoints, []);
    let gone = lease(&endpoints, &Requirements::new("m")).unwrap_err();
    assert!(matches!(
        gone,
        LeaseError::Unservable(RouteError::NoHealthyBackend { .. })
    ));
    assert_eq!(change(&endpoints, [a]).added, ["a"]);
    assert_eq!(
        endpoints.usage(),
        SlotUsage {
            slots: 2,
            in_use: 1
        }
    );
    let other = hold(&endpoints, "m");
    let busy = lease(&endpoints, &Requirements::new("m")).unwrap_err();
    assert_eq!(busy, LeaseError::Busy);
    endpoints.release(before);
    endpoints.release(other);
    assert_eq!(endpoints.usage().in_use, 0);
}

#[test]
fn an_ejected_endpoint_that_will_not_be_started_is_not_awaited() {
    use crate::endpoints::on_demand::{self, OnDemand, Refusal};

    let on_demand = OnDemand::default();
    let endpoints = capacity([on_demand::endpoint(
        "m",
        &Model::new("m"),
        1,
        on_demand.clone(),
    )]);
    _ = endpoints.endpoints()[0].state().word.eject();
    let waits = lease(&endpoints, &Requirements::new("m")).unwrap_err();
    assert_eq!(waits, LeaseError::Busy);
    on_demand.refuse(Refusal::Unloaded);
    let refused = lease(&endpoints, &Requirements::new("m")).unwrap_err();
    let model = "m".into();
    assert_eq!(
        refused,
        LeaseError::Unservable(RouteError::ModelUnloaded { model })
    );
}

#[test]
fn a_waiter_keeps_its_tokens_when_contexts_change() {
    let with = |context| endpoint("a", 1, &[]).model(Model::new("m").context_length(context));
    let endpoints = capacity([with(8_192)]);
    let asked = |estimated_tokens| Requirements {
        estimated_tokens,
        ..Requirements::new("m")
    };
    let [short, long] = [5_000, 7_000].map(|tokens| endpoints.demand(&asked(tokens)));
    assert_eq!(endpoints.lane(&short), endpoints.lane(&long));
    change(&endpoints, [with(6_000)]);
    assert_ne!(endpoints.lane(&short), endpoints.lane(&long));
    let lease = endpoints.try_lease(&short).unwrap();
    assert!(matches!(
        endpoints.try_lease(&long),
        Err(LeaseError::Unservable(_))
    ));
    endpoints.release(lease);
}

#[test]
fn a_retry_may_go_to_an_endpoint_with_a_failed_ones_pool() {
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)]
        .map(|(name, priority)| endpoint(name, 1, &["m"]).priority(priority));
    let endpoints = capacity([a, b.clone()]);
    let failed = hold(&endpoints, "m");
    let a_pool = failed.endpoint().pool();
    let demand = endpoints.demand(&Requirements::new("m"));
    let elsewhere = demand.retry(failed.endpoint());
    endpoints.release(failed);
    change(&endpoints, [b.clone()]);
    change(&endpoints, [b.clone()]); // forgets what has left and is idle
    change(&endpoints, [b, c]);
    let on_b = endpoints.try_lease(&elsewhere).unwrap();
    let on_c = endpoints.try_lease(&elsewhere).unwrap();
    assert_eq!(
        (on_c.endpoint().name(), on_c.endpoint().pool()),
        ("c", a_pool)
    );
    endpoints.release(on_b);
    endpoints.release(on_c);
}

/// Two endpoints of which the first is preferred; the second is half open.
fn second_half_open() -> (Endpoints, EndpointRef) {
    let several = ["a", "b"].map(|name| endpoint(name, 9, &["m"]));
    let endpoints = routed(several, routing(StrategyChoice::PriorityOnly));
    let second = endpoints.endpoints()[1].clone();
    _ = second.state().word.eject();
    endpoints.half_open(&second);
    (endpoints, second)
}

fn serves(endpoints: &Endpoints, model: &str) -> String {
    let lease = hold(endpoints, model);
    let name = lease.endpoint().name().to_owned();
    endpoints.release(lease);
    name
}

#[test]
fn a_request_elsewhere_does_not_end_a_probe() {
    let (endpoints, second) = second_half_open();
    let probe = hold(&endpoints, "m");
    assert!(probe.probe.is_some());
    assert_eq!(serves(&endpoints, "m"), "a");
    endpoints.release(probe);
    assert!(endpoints.take_abandoned_probe());
    assert_eq!(serves(&endpoints, "m"), "b");
    second.set_healthy(false);
    assert_eq!(serves(&endpoints, "m"), "a");
    second.set_healthy(true);
    assert_eq!(serves(&endpoints, "m"), "b");
}

#[test]
fn a_past_probe_ends_no_later_one() {
    let (endpoints, second) = second_half_open();
    let past = hold(&endpoints, "m");
    _ = second.state().word.eject(); // for another request's failure
    endpoints.half_open(&second);
    let present = hold(&endpoints, "m");
    assert!(past.probe.is_some() && present.probe.is_some());
    endpoints.release(past);
    assert!(!endpoints.take_abandoned_probe());
    assert_eq!(serves(&endpoints, "m"), "a");
    endpoints.release(present);
    assert!(endpoints.take_abandoned_probe());
    assert_eq!(serves(&endpoints, "m"), "b");
}

#[test]
fn a_half_open_endpoint_is_probed_with_a_new_model() {
    let (endpoints, second) = second_half_open();
    change(
        &endpoints,
        [endpoint("a", 9, &["n"]), endpoint("b", 9, &["n"])],
    );
    assert_eq!(serves(&endpoints, "n"), "b");
    assert!(second.state().word.close().is_new());
    assert!(hold(&endpoints, "n").probe.is_none());
}
