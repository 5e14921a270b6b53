//! What each strategy promises.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::Duration;

use super::*;
use crate::endpoints::latency::CoarseInstant;

const MS: Duration = Duration::from_millis(1);

fn trio(strategy: StrategyChoice, slots: u32) -> Endpoints {
    let several = ["a", "b", "c"].map(|name| endpoint(name, slots, &["m", "n"]));
    routed(several, routing(strategy))
}

/// The endpoint of one more request, which is then over.
fn one(endpoints: &Endpoints, asked: &Requirements<'_>) -> String {
    let lease = lease(endpoints, asked).unwrap();
    let name = lease.endpoint().name().to_owned();
    endpoints.release(lease);
    name
}

fn beginning(prefix: u64) -> Requirements<'static> {
    Requirements {
        prefix: Some(prefix),
        ..Requirements::new("m")
    }
}

/// How many of `requests` each endpoint is given, one after the other.
fn shares(endpoints: &Endpoints, requests: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for _ in 0..requests {
        *shares
            .entry(one(endpoints, &Requirements::new("m")))
            .or_default() += 1;
    }
    shares
}

fn slow(endpoints: &Endpoints, at: usize, took: Duration) {
    let endpoint = &endpoints.endpoints()[at];
    endpoint
        .state()
        .latency
        .answered(took, CoarseInstant::now());
}

#[test]
fn round_robin_spreads_six_requests_over_three_endpoints() {
    let endpoints = trio(StrategyChoice::RoundRobin, 8);
    let six = |model| {
        (0..6)
            .map(|_| one(&endpoints, &Requirements::new(model)))
            .collect::<String>()
    };
    assert_eq!(six("m"), "abcabc");
    assert_eq!(six("n"), "abcabc");
}

#[test]
fn each_model_has_its_own_rotation() {
    let endpoints = trio(StrategyChoice::RoundRobin, 8);
    let served: String = ["m", "n", "m", "n", "m", "m", "n"]
        .map(|model| one(&endpoints, &Requirements::new(model)))
        .concat();
    assert_eq!(served, "aabbcac");
}

#[test]
fn the_rotation_survives_a_change_of_endpoints() {
    let endpoints = trio(StrategyChoice::RoundRobin, 8);
    assert_eq!(one(&endpoints, &Requirements::new("m")), "a");
    let changes = endpoints.change(|registry| {
        let mut several = registry.endpoints().to_vec();
        several.push(endpoint("d", 8, &["m"]));
        Registry::new(several).map(|registry| (registry, None))
    });
    assert_eq!(changes.unwrap().added, ["d"]);
    let served: String = (0..4)
        .map(|_| one(&endpoints, &Requirements::new("m")))
        .collect();
    assert_eq!(served, "bcda");
}

#[test]
fn an_unhealthy_endpoint_is_left_out_of_the_rotation() {
    let endpoints = trio(StrategyChoice::RoundRobin, 8);
    endpoints.endpoints()[1].set_healthy(false);
    let shares = shares(&endpoints, 10);
    assert_eq!((shares["a"], shares["c"]), (5, 5));
}

#[test]
fn a_request_that_finds_no_slot_draws_no_rotation() {
    let endpoints = trio(StrategyChoice::RoundRobin, 1);
    let all: Vec<_> = (0..3)
        .map(|_| lease(&endpoints, &Requirements::new("m")).unwrap())
        .collect();
    for _ in 0..4 {
        let busy = lease(&endpoints, &Requirements::new("m"));
        assert_eq!(busy.unwrap_err(), LeaseError::Busy);
    }
    all.into_iter()
        .for_each(|lease| _ = endpoints.release(lease));
    assert_eq!(one(&endpoints, &Requirements::new("m")), "a");
}

#[test]
fn round_robin_is_exact_across_threads() {
    const EACH: usize = 3_000;
    let endpoints = trio(StrategyChoice::RoundRobin, 100);
    let counts: Vec<HashMap<String, usize>> = thread::scope(|scope| {
        let serve = || {
            let mut counts = HashMap::new();
            for _ in 0..EACH {
                *counts
                    .entry(one(&endpoints, &Requirements::new("m")))
                    .or_default() += 1;
            }
            counts
        };
        let threads = [(); 4].map(|()| scope.spawn(serve));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    for name in ["a", "b", "c"] {
        let sum: usize = counts.iter().map(|counts| counts[name]).sum();
        assert_eq!(sum, 4 * EACH / 3, "{name}");
    }
}

#[test]
fn all_endpoints_are_equally_likely() {
    fastrand::seed(1);
    let endpoints = trio(StrategyChoice::Random, 8);
    for _ in 0..20 {
        let shares = shares(&endpoints, 100);
        // Four standard deviations.
        assert!(
            shares.values().all(|share| (15..=52).contains(share)),
            "{shares:?}"
        );
    }
    let shares = shares(&endpoints, 100);
    assert!(
        shares.values().all(|share| (25..=45).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn free_endpoints_are_equally_likely_beside_busy_ones() {
    fastrand::seed(2);
    let several = ["a", "b", "c", "d", "e", "f"].map(|name| endpoint(name, 8, &["m"]));
    let endpoints = routed(several, routing(StrategyChoice::Random));
    for at in [0, 1, 3, 4] {
        endpoints.endpoints()[at].set_limit(0);
    }
    let shares = shares(&endpoints, 1_000);
    assert!((430..=570).contains(&shares["c"]), "{shares:?}");
    assert_eq!(shares.len(), 2);
}

#[test]
fn power_of_two_draws_evenly_beside_busy_endpoints() {
    let time = frozen_time();
    let _entered = time.enter();
    fastrand::seed(3);
    // One endpoint in three is free in the first registry, so most draws hit a free one. One in thirteen is free in the
    // second, so most draws read all endpoints.
    for busy in [2, 12] {
        let several = (0..4 * (busy + 1)).map(|nth| endpoint(&format!("e{nth:02}"), 8, &["m"]));
        let endpoints = routed(
            several.collect::<Vec<_>>(),
            routing(StrategyChoice::PowerOfTwo),
        );
        // The first four endpoints are free, with one that follows a run of busy ones.
        for busy in &endpoints.endpoints()[4..] {
            busy.set_limit(0);
        }
        let shares = shares(&endpoints, 4_000);
        assert_eq!(shares.len(), 4, "{shares:?}");
        // The standard deviation is 27.
        assert!(
            shares.values().all(|share| (890..=1_110).contains(share)),
            "{busy}: {shares:?}"
        );
    }
}

#[test]
fn the_lowest_priority_number_is_filled_first() {
    let several = [("a", 2), ("b", 1), ("c", 1)];
    let several = several.map(|(name, priority)| endpoint(name, 2, &["m"]).priority(priority));
    let endpoints = routed(several, routing(StrategyChoice::PriorityOnly));
    let shares = shares(&endpoints, 200);
    assert!(shares["b"] > 50 && shares["c"] > 50, "{shares:?}");
    let order = order(&endpoints, "m").concat();
    assert_eq!(&order[4..], "aa", "{order}");
}

#[test]
fn less_in_flight_and_less_latency_score_more() {
    let time = frozen_time();
    let _entered = time.enter();
    let endpoints = trio(StrategyChoice::Smart, 20);
    slow(&endpoints, 0, 200 * MS);
    slow(&endpoints, 1, 50 * MS);
    slow(&endpoints, 2, 50 * MS);
    let first = lease(&endpoints, &Requirements::new("m")).unwrap();
    assert_ne!(first.endpoint().name(), "a");
    // 99 × 50, 100 × 30 and 78 × 20, of 10,000.
    assert_eq!(first.decision().score, Some(95));
    let ten: Vec<_> = (0..10)
        .map(|_| lease(&endpoints, &Requirements::new("m")).unwrap())
        .collect();
    let on = |name| {
        ten.iter()
            .filter(|lease| lease.endpoint().name() == name)
            .count()
    };
    assert!(on("a") < on("b") && on("a") < on("c"));
}

#[test]
fn of_equal_endpoints_each_is_drawn() {
    let time = frozen_time();
    let _entered = time.enter();
    fastrand::seed(7);
    for strategy in [
        StrategyChoice::Smart,
        StrategyChoice::LeastLoaded,
        StrategyChoice::PriorityOnly,
        StrategyChoice::PrefixAffinity,
    ] {
        let endpoints = trio(strategy, 200);
        let shares = shares(&endpoints, 300);
        // Expected 100, with a standard deviation of 8.
        assert!(
            shares.values().all(|count| (60..140).contains(count)),
            "{shares:?}"
        );
    }
}

#[test]
fn latency_that_varies_by_a_factor_of_two_outweighs_few_slots() {
    let time = frozen_time();
    let _entered = time.enter();
    let endpoints = trio(StrategyChoice::Smart, 16);
    slow(&endpoints, 0, 400 * MS);
    slow(&endpoints, 1, 800 * MS);
    slow(&endpoints, 2, 800 * MS);
    let held: Vec<_> = (0..24)
        .map(|_| lease(&endpoints, &Requirements::new("m")).unwrap())
        .collect();
    let on = |name| {
        held.iter()
            .filter(|lease| lease.endpoint().name() == name)
            .count()
    };
    assert!((8..=11).contains(&on("a")), "{} of 24", on("a"));
}

#[test]
fn of_two_the_faster_and_the_idler_is_preferred() {
    let time = frozen_time();
    let _entered = time.enter();
    fastrand::seed(3);
    let pair = || {
        routed(
            ["a", "b"].map(|name| endpoint(name, 100, &["m"])),
            routing(StrategyChoice::PowerOfTwo),
        )
    };
    let endpoints = pair();
    slow(&endpoints, 0, 100 * MS);
    slow(&endpoints, 1, 10 * MS);
    assert_eq!(shares(&endpoints, 50)["b"], 50);
    let held: Vec<_> = (0..44)
        .map(|_| lease(&endpoints, &Requirements::new("m")).unwrap())
        .collect();
    let on_b = held
        .iter()
        .filter(|lease| lease.endpoint().name() == "b")
        .count();
    // Ten times as fast is worth ten times as many.
    assert!((39..=41).contains(&on_b), "{on_b}");

    let several: Vec<_> = (0..50)
        .map(|nth| endpoint(&format!("e{nth}"), 100, &["m"]))
        .collect();
    let endpoints = routed(several, routing(StrategyChoice::PowerOfTwo));
    let held: Vec<_> = (0..1_000)
        .map(|_| lease(&endpoints, &Requirements::new("m")).unwrap())
        .collect();
    let most = endpoints
        .endpoints()
        .iter()
        .map(EndpointRef::in_flight)
        .max();
    // At random alone, one of them would have 33 or more.
    assert!(most < Some(25), "{most:?}");
    drop(held);
}

#[test]
fn equal_prefixes_share_an_endpoint_up_to_its_bound() {
    let endpoints = trio(StrategyChoice::PrefixAffinity, 8);
    for prefix in 0..50 {
        let home = one(&endpoints, &beginning(prefix));
        assert_eq!(one(&endpoints, &beginning(prefix)), home);
        let leases: Vec<_> = (0..24)
            .map(|_| lease(&endpoints, &beginning(prefix)).unwrap())
            .collect();
        // Half of its slots are its own in any case.
        assert!(
            leases[..4]
                .iter()
                .all(|lease| lease.endpoint().name() == home)
        );
        let others = leases[..9]
            .iter()
            .filter(|lease| lease.endpoint().name() != home);
        assert!(others.count() >= 3);
        leases
            .into_iter()
            .for_each(|lease| _ = endpoints.release(lease));
    }
}

#[test]
fn beginnings_are_spread_over_the_endpoints() {
    let endpoints = trio(StrategyChoice::PrefixAffinity, 8);
    let mut homes: HashMap<String, usize> = HashMap::new();
    for prefix in 0..3_000 {
        *homes
            .entry(one(&endpoints, &beginning(prefix)))
            .or_default() += 1;
    }
    assert!(
        homes.values().all(|homes| (850..1_150).contains(homes)),
        "{homes:?}"
    );
}

#[test]
fn removing_an_endpoint_moves_only_its_own_prefixes() {
    let endpoints = trio(StrategyChoice::PrefixAffinity, 8);
    let homes = || {
        (0..300)
            .map(|prefix| one(&endpoints, &beginning(prefix)))
            .collect::<Vec<_>>()
    };
    let before = homes();
    let gone = endpoints.endpoints()[1].clone();
    gone.set_healthy(false);
    let during = homes();
    for (before, during) in before.iter().zip(&during) {
        assert!(before == during || before == "b");
        assert_ne!(during, "b");
    }
    let moved = |to| {
        before
            .iter()
            .zip(&during)
            .filter(|(from, now)| *from == "b" && *now == to)
            .count()
    };
    assert!(moved("a") > 20 && moved("c") > 20);
    gone.set_healthy(true);
    assert_eq!(homes(), before);
}
