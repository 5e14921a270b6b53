//! How many endpoints may be ejected at a time, also when several fail at once.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::endpoints::HealthCheck;

const MODELS: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Endpoints by the models that each of them serves.
fn with_models(served: &[HashSet<usize>], percent: u32) -> Endpoints {
    let endpoints = served.iter().enumerate().map(|(nth, models)| {
        let models: Vec<&str> = models.iter().map(|&model| MODELS[model]).collect();
        endpoint(&format!("e{nth}"), 1, &models)
    });
    let routing = RoutingConfig::default().max_ejected_percent(percent);
    routed(endpoints.collect::<Vec<_>>(), routing)
}

/// Of each model, how many endpoints it has, are out by failures, and are in service.
fn counts(endpoints: &Endpoints, name: &str) -> (usize, usize, usize) {
    let all = endpoints.endpoints();
    let serves = |endpoint: &&EndpointRef| {
        let mut models = endpoint.config().models.iter();
        models.any(|model| model.name == name)
    };
    let own: Vec<&EndpointRef> = all.iter().filter(serves).collect();
    let out = own.iter().filter(|own| !own.healthy());
    let open = own
        .iter()
        .filter(|own| own.state().word.flags().is_in_service());
    (own.len(), out.count(), open.count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every endpoint fails on a thread of its own, all at the same instant.
    #[test]
    fn concurrent_failures_eject_no_more_than_the_share(
        served in prop::collection::vec(prop::collection::hash_set(0..MODELS.len(), 1..3), 1..6),
        percent in prop::sample::select(vec![0, 33, 50, 67, 100]),
    ) {
        let endpoints = with_models(&served, percent);
        let all = endpoints.endpoints();
        for _ in 0..4 {
            let together = Barrier::new(all.len());
            thread::scope(|scope| {
                for endpoint in all.iter() {
                    scope.spawn(|| {
                        together.wait();
                        _ = endpoints.eject(endpoint);
                    });
                }
            });
            for model in MODELS {
                let (own, out, open) = counts(&endpoints, model);
                prop_assert!(out <= own * percent as usize / 100, "{out} of {own}");
                prop_assert!(own == 0 || open > 0);
            }
            // Each that stayed has to stay.
            let stayed = || all.iter().filter(|endpoint| endpoint.healthy());
            prop_assert!(stayed().all(|endpoint| endpoints.eject(endpoint).is_none()));
            all.iter().for_each(|endpoint| _ = endpoint.state().word.close());
        }
    }
}

/// Without a lock both threads find, every few thousand rounds, that one more may go.
#[test]
fn two_concurrent_failures_never_eject_both() {
    const ROUNDS: usize = 10_000;
    let endpoints = with_models(&[HashSet::from([0]), HashSet::from([0])], 50);
    let all = endpoints.endpoints();
    let (round, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait = |counter: &AtomicUsize, until: usize| {
        for spins in 0_u32.. {
            if counter.load(SeqCst) >= until {
                return;
            }
            match spins % 1_000 {
                999 => thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 1..=ROUNDS {
                wait(&round, nth);
                _ = endpoints.eject(&all[1]);
                done.store(nth, SeqCst);
            }
        });
        for nth in 1..=ROUNDS {
            round.store(nth, SeqCst);
            _ = endpoints.eject(&all[0]);
            wait(&done, nth);
            let out = all.iter().filter(|endpoint| !endpoint.healthy());
            if out.count() != 1 {
                // The other thread must come to its end before this one can.
                round.store(ROUNDS, SeqCst);
                panic!("in round {nth}");
            }
            all.iter()
                .for_each(|endpoint| _ = endpoint.state().word.close());
        }
    });
}

/// How many of `count` endpoints of one model can be ejected.
fn ejected(count: usize, percent: u32) -> usize {
    let endpoints = with_models(&vec![HashSet::from([0]); count], percent);
    let all = endpoints.endpoints();
    all.iter()
        .filter(|endpoint| endpoints.eject(endpoint).is_some())
        .count()
}

#[test]
fn the_share_rounds_down_and_the_last_stays() {
    for (count, percent, expected) in [
        (1, 50, 0),
        (2, 50, 1),
        (3, 50, 1),
        (4, 50, 2),
        (5, 50, 2),
        (4, 0, 0),
        (3, 33, 0),
        (3, 34, 1),
        (1, 100, 0),
        (4, 100, 3),
    ] {
        assert_eq!(ejected(count, percent), expected, "{count} {percent}");
    }
}

#[test]
fn a_probed_endpoint_still_counts_as_ejected() {
    let endpoints = capacity([endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])]);
    let all = endpoints.endpoints();
    assert!(endpoints.eject(&all[0]).is_some());
    endpoints.half_open(&all[0]);
    assert!(endpoints.eject(&all[1]).is_none());
    assert!(endpoints.eject(&all[0]).is_some(), "a probe may fail");
}

#[test]
fn down_or_draining_endpoints_cannot_stand_in() {
    for down in [true, false] {
        let four = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
        let endpoints = capacity(four);
        let all = endpoints.endpoints();
        for endpoint in &all[1..] {
            match down {
                true => _ = endpoint.set_healthy(false),
                false => _ = endpoint.state().word.set(HealthFlags::DRAINING, true),
            }
        }
        assert!(endpoints.eject(&all[0]).is_none());
    }
}

#[test]
fn a_models_only_endpoint_is_ejected_with_a_fallback() {
    for (percent, goes) in [(50, true), (0, false)] {
        let routing = routing(StrategyChoice::LeastLoaded)
            .fallbacks("m", ["n"])
            .max_ejected_percent(percent);
        let two = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
        let endpoints = routed(two, routing);
        let all = endpoints.endpoints();
        assert!(endpoints.eject(&all[1]).is_none());
        assert_eq!(endpoints.eject(&all[0]).is_some(), goes);
        _ = all[0].state().word.close();
        all[1].set_healthy(false);
        assert!(endpoints.eject(&all[0]).is_none());
    }
}

#[test]
fn an_endpoint_that_never_answered_cannot_stand_in() {
    let two = ["a", "new"].map(|name| endpoint(name, 1, &["m"]).health(HealthCheck::default()));
    let registry = Registry::new(two.into()).unwrap();
    let endpoints = Endpoints::routed(registry, RoutingRules::default(), true);
    let all = endpoints.endpoints();
    all[0].set_healthy(true);
    assert!(endpoints.eject(&all[0]).is_some(), "it was never asked");
    _ = all[0].state().word.close();
    all[1].state().ejection.failures.failed(5);
    assert!(endpoints.eject(&all[0]).is_none());
    _ = all[1].state().word.answered();
    assert!(endpoints.eject(&all[0]).is_some());
}
