//! One suite for every strategy: ours, and some that break their contract.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

use super::*;
use crate::endpoints::{Candidates, Choice, HealthCheck, Strategy};

/// A strategy that does something else than it was asked for.
#[derive(Debug, Clone, Copy)]
enum BrokenStrategy {
    NoChoice,
    Busiest,
    Last,
}

impl Strategy for BrokenStrategy {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        let all = candidates.all();
        let chosen = match self {
            Self::NoChoice => None,
            Self::Busiest => all.min_by_key(|it| it.limit().saturating_sub(it.in_flight())),
            Self::Last => {
                let last = candidates.len().checked_sub(1)?;
                candidates.get(last).or(all.last())
            }
        };
        chosen.map(|candidate| Choice::new(candidate).score(u32::MAX))
    }
}

fn for_every_strategy(promise: impl Fn(RoutingConfig)) {
    let ours = StrategyChoice::NAMES.map(|name| name.parse().unwrap());
    let broken = [
        BrokenStrategy::NoChoice,
        BrokenStrategy::Busiest,
        BrokenStrategy::Last,
    ]
    .map(|broken| StrategyChoice::Custom(Arc::new(broken)));
    for strategy in ours.into_iter().chain(broken) {
        println!("{strategy:?}");
        promise(routing(strategy));
    }
}

/// The nth request; every other one says how its prompt begins.
fn asked(nth: u64) -> Requirements<'static> {
    Requirements {
        prefix: nth.is_multiple_of(2).then_some(nth / 8),
        ..Requirements::new("m")
    }
}

#[test]
fn any_free_slot_is_found() {
    for_every_strategy(|routing| {
        let slots = [3, 1, 4, 1, 5];
        let several =
            slots.map(|slots| endpoint(&format!("e{slots}{}", fastrand::u64(..)), slots, &["m"]));
        let endpoints = routed(several, routing);
        let mut held = Vec::new();
        for round in 0..50 {
            while let Ok(one) = lease(&endpoints, &asked(held.len() as u64)) {
                held.push(one);
            }
            assert_eq!(held.len(), 14);
            let all = endpoints.endpoints();
            assert!(all.iter().all(|it| it.in_flight() == it.limit()));
            for _ in 0..round % 14 {
                let nth = fastrand::usize(..held.len());
                endpoints.release(held.swap_remove(nth));
            }
        }
    });
}

#[test]
fn only_capable_admissible_endpoints_serve() {
    for_every_strategy(|routing| {
        let seeing = |name: &str, slots| {
            endpoint(name, slots, &[]).model(Model::new("m").vision(true).context_length(8_192))
        };
        let short = Model::new("m").vision(true).context_length(4_096);
        let endpoints = routed(
            [
                seeing("sick", 9),
                endpoint("blind", 9, &["m"]),
                endpoint("short", 9, &[]).model(short),
                seeing("good", 2),
                seeing("ejected", 9),
                seeing("drained", 9),
                seeing("failed", 9),
                seeing("fine", 2),
                seeing("shut", 9),
                endpoint("other", 9, &["n"]),
            ],
            routing,
        );
        let all = endpoints.endpoints();
        let named = |name: &str| all.iter().find(|it| it.name() == name).unwrap();
        named("sick").set_healthy(false);
        _ = named("ejected").state().word.eject();
        _ = named("drained")
            .state()
            .word
            .set(HealthFlags::DRAINING, true);
        named("shut").set_limit(0);
        let allowed = HashSet::from(["good", "fine"]);
        for nth in 0..200 {
            let asked = Requirements {
                vision: true,
                estimated_tokens: 5_000,
                ..asked(nth)
            };
            let demand = endpoints.demand(&asked);
            let demand = demand.retry(named("failed"));
            let leases: Vec<_> = (0..4)
                .map(|_| endpoints.try_lease(&demand).unwrap())
                .collect();
            assert_eq!(endpoints.try_lease(&demand).unwrap_err(), LeaseError::Busy);
            for lease in leases {
                assert!(allowed.contains(lease.endpoint().name()), "{lease:?}");
                endpoints.release(lease);
            }
        }
    });
}

#[test]
fn unchecked_endpoints_are_chosen_last_and_once() {
    for_every_strategy(|routing| {
        let checked = |name: &str| endpoint(name, 3, &["m"]).health(HealthCheck::default());
        let three = ["new", "known", "newer"].map(checked);
        let registry = Registry::new(three.into()).unwrap();
        let endpoints = Endpoints::routed(registry, routing.rules().unwrap(), true);
        endpoints.endpoints()[1].set_healthy(true);
        let leases: Vec<_> = (0..5)
            .map(|nth| lease(&endpoints, &asked(nth)).unwrap())
            .collect();
        let names: Vec<&str> = leases.iter().map(|it| it.endpoint().name()).collect();
        assert_eq!(names[..3], ["known"; 3]);
        assert_ne!(names[3], names[4]);
        let more = lease(&endpoints, &asked(5)).unwrap_err();
        assert_eq!(more, LeaseError::Busy);
        leases
            .into_iter()
            .for_each(|lease| _ = endpoints.release(lease));
    });
}

#[test]
fn nothing_is_allocated_for_a_decision() {
    for_every_strategy(|routing| {
        let several = (0..20).map(|nth| endpoint(&format!("e{nth}"), 2, &["m", "n"]));
        let endpoints = routed(several.collect::<Vec<_>>(), routing.alias("alias", "m"));
        let decide = |nth, model: &'static str| {
            let asked = Requirements {
                model: model.into(),
                ..asked(nth)
            };
            let lease = lease(&endpoints, &asked).unwrap();
            endpoints.release(lease);
        };
        // The first look at a snapshot makes this thread's part in it.
        decide(0, "m");
        let busy: Vec<_> = (0..20)
            .map(|nth| lease(&endpoints, &asked(nth)).unwrap())
            .collect();
        let allocated = allocation_counter::measure(|| {
            (0..100).for_each(|nth| decide(nth, ["m", "n", "alias"][nth as usize % 3]));
        });
        assert_eq!(allocated.count_total, 0);
        busy.into_iter()
            .for_each(|lease| _ = endpoints.release(lease));
    });
}

#[test]
fn threads_never_hold_more_leases_than_slots() {
    const THREADS: u64 = 4;
    const SLOTS: u32 = 3;
    for_every_strategy(|routing| {
        let several = ["a", "b", "c", "d"].map(|name| endpoint(name, SLOTS, &["m"]));
        let endpoints = &routed(several, routing);
        let held: [AtomicU32; 4] = Default::default();
        let at = |lease: &EndpointLease| &held[lease.endpoint().pool().0 as usize];
        let back = |lease: EndpointLease| {
            at(&lease).fetch_sub(1, SeqCst);
            endpoints.release(lease);
        };
        let (at, back) = (&at, &back);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut leases = Vec::new();
                    for round in 0..4_000 {
                        if let Ok(lease) = lease(endpoints, &asked(round * THREADS + thread)) {
                            let before = at(&lease).fetch_add(1, SeqCst);
                            assert!(
                                before < SLOTS,
                                "{before} leases were out when one more was given"
                            );
                            leases.push(lease);
                        }
                        if leases.len() as u64 > round % 5 {
                            back(leases.swap_remove(0));
                        }
                    }
                    leases.into_iter().for_each(back);
                });
            }
        });
        assert_eq!(endpoints.usage().in_use, 0);
    });
}

/// An endpoint that is draining and idle gets no request any more.
#[test]
fn a_draining_endpoint_gets_nothing_new() {
    for_every_strategy(|routing| {
        let several = ["a", "b", "c"].map(|name| endpoint(name, 8, &["m"]));
        let endpoints = routed(several, routing);
        let drained = endpoints.endpoints()[1].clone();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..2 {
                let (endpoints, done) = (&endpoints, &done);
                scope.spawn(move || {
                    for nth in (thread..).take_while(|_| !done.load(SeqCst)) {
                        let leases: Vec<_> = (0..3)
                            .filter_map(|_| lease(endpoints, &asked(nth)).ok())
                            .collect();
                        leases
                            .into_iter()
                            .for_each(|lease| _ = endpoints.release(lease));
                    }
                });
            }
            for _ in 0..60 {
                _ = drained.state().word.set(HealthFlags::DRAINING, true);
                let mut least = drained.in_flight();
                for _ in 0..50 {
                    let now = drained.in_flight();
                    assert!(now <= least, "{least} in flight, then {now}");
                    least = now;
                }
                _ = drained.state().word.set(HealthFlags::DRAINING, false);
                thread::yield_now();
            }
            done.store(true, SeqCst);
        });
    });
}
