//! Slots are shared as time, whatever tenants do with them: three honest tenants beside one that leaves early, answers
//! slowly, or says nothing of what it used.

use std::time::Duration;

use proptest::prelude::*;
use tower_triage::{Discipline, SlotPool, WaitingRoomConfig};

use super::game::adversary::poisson;
use super::simulation::{Backend, Call, Life, simulate};

/// The tenant that takes more than its share. The others are honest.
const GREEDY: usize = 0;
const HONEST: usize = 3;
/// The seconds in which all send, and those of them that count.
const LENGTH: f64 = 60.0;
const WARM: f64 = 5.0;

#[derive(Debug, Clone)]
struct Scene {
    slots: usize,
    /// The load of the honest tenants together.
    honest: f64,
    /// The seconds for which the greedy tenant's requests hold a slot.
    hold: f64,
    /// The seconds after which its callers leave, with a slot or without.
    patience: f64,
    cost: u32,
    /// The load that it asks for.
    greedy: f64,
    seed: u64,
}

/// The outcome of a scene.
#[derive(Debug)]
struct Outcome {
    /// The share of honest requests that got a slot within 10 s.
    honest: f64,
    /// The share of all slot time that was used.
    used: f64,
}

impl Scene {
    /// Returns the scene of a greedy tenant whose requests hold their slots for this time, and cost next to nothing.
    fn of(hold: f64) -> Self {
        Self {
            slots: 8,
            honest: 0.7,
            hold,
            patience: 20.0,
            cost: 1,
            greedy: 5.0,
            seed: 1,
        }
    }

    fn calls(&self) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut calls = Vec::new();
        for tenant in 1..=HONEST {
            // 100 tokens in 0.2 s.
            let rate = self.honest / HONEST as f64 * self.slots as f64 / 0.2;
            let times = poisson(rate, 0.0, LENGTH, &mut random);
            calls.extend(times.into_iter().map(|at| Call {
                at: Duration::from_secs_f64(at),
                tenant,
                cost: 100,
                patience: Duration::from_secs(10),
                ..Call::default()
            }));
        }
        let rate = self.greedy * self.slots as f64 / self.hold.min(self.patience);
        let times = poisson(rate, 0.0, LENGTH, &mut random);
        calls.extend(times.into_iter().map(|at| Call {
            at: Duration::from_secs_f64(at),
            tenant: GREEDY,
            cost: self.cost,
            service: Duration::from_secs_f64(self.hold),
            patience: Duration::from_secs_f64(self.patience),
            ..Call::default()
        }));
        calls.sort_by_key(|call| call.at);
        calls
    }

    fn play(&self) -> Outcome {
        let config = WaitingRoomConfig::default().discipline(Discipline::Fair);
        let calls = self.calls();
        let backend = Backend {
            notices: true,
            ..Backend::default()
        };
        let end = Duration::from_secs_f64(2.0 * LENGTH);
        let lives = simulate(&config, SlotPool::new(self.slots), backend, &calls, end);
        let all = || calls.iter().zip(&lives);
        let counted =
            all().filter(|(call, _)| call.tenant != GREEDY && call.at.as_secs_f64() > WARM);
        let (asked, served) = counted.fold((0, 0), |(asked, served), (_, life)| {
            (asked + 1, served + usize::from(life.wait.is_some()))
        });
        let held = |(call, life): (&Call, &Life)| {
            let wait = life.wait?;
            Some(call.service.min(call.patience.saturating_sub(wait)))
        };
        let used: Duration = all().filter_map(held).sum();
        Outcome {
            honest: served as f64 / asked as f64,
            used: used.as_secs_f64() / (LENGTH * self.slots as f64),
        }
    }
}

#[test]
fn callers_that_leave_early_take_no_more_than_their_share() {
    for slots in [4, 8, 16] {
        let scene = Scene {
            slots,
            patience: 0.4,
            ..Scene::of(2.0)
        };
        let outcome = scene.play();
        assert!(outcome.honest >= 0.9, "{slots}: {outcome:?}");
    }
}

#[test]
fn slow_answers_of_one_token_take_no_more_than_their_share() {
    for slots in [4, 8, 16] {
        let scene = Scene {
            slots,
            ..Scene::of(2.0)
        };
        let outcome = scene.play();
        assert!(outcome.honest >= 0.9, "{slots}: {outcome:?}");
    }
}

#[test]
fn answers_without_usage_take_no_more_than_their_share() {
    for slots in [4, 8, 16] {
        let scene = Scene {
            slots,
            ..Scene::of(1.0)
        };
        let outcome = scene.play();
        assert!(outcome.honest >= 0.9, "{slots}: {outcome:?}");
    }
}

/// The greedy tenant has all slots before the first request that costs something has run, so its time is cheap.
#[test]
fn a_tenant_that_was_first_takes_no_more_than_its_share() {
    for seed in 1..=8 {
        for hold in [0.5, 1.1, 1.2] {
            let scene = Scene {
                slots: 4,
                honest: 0.6,
                greedy: 7.5,
                seed,
                ..Scene::of(hold)
            };
            let outcome = scene.play();
            assert!(outcome.honest >= 0.9, "{seed}, {hold}: {outcome:?}");
        }
    }
}

/// Returns the waits of two tenants that share four slots by cost. With `refused`, a third one sends costly requests that
/// are refused, because their deadlines have passed.
fn waits_beside(refused: bool) -> Vec<Option<Duration>> {
    let tenant = |tenant: usize, service: f64| {
        let calls = (0..600).map(move |nth| Call {
            at: Duration::from_secs_f64(f64::from(nth) * 0.1 + tenant as f64 * 0.01),
            tenant,
            cost: 100,
            service: Duration::from_secs_f64(service),
            ..Call::default()
        });
        calls.collect::<Vec<_>>()
    };
    let mut calls = [tenant(1, 0.25), tenant(2, 0.3)].concat();
    if refused {
        calls.extend((50..600).map(|nth| Call {
            at: Duration::from_secs_f64(f64::from(nth) * 0.1 + 0.005),
            tenant: 3,
            cost: u32::MAX,
            named: Some(Duration::ZERO),
            ..Call::default()
        }));
    }
    calls.sort_by_key(|call| call.at);
    let config = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let end = Duration::from_secs(120);
    let lives = simulate(&config, SlotPool::new(4), Backend::default(), &calls, end);
    let all = calls.iter().zip(&lives);
    let (third, others): (Vec<_>, Vec<_>) = all.partition(|(call, _)| call.tenant == 3);
    assert!(third.iter().all(|(_, life)| life.rejected.is_some()));
    others.iter().map(|(_, life)| life.wait).collect()
}

#[test]
fn costs_of_refused_requests_do_not_change_what_others_pay() {
    // Compared as a whole, because a failure would print each wait.
    assert!(waits_beside(false) == waits_beside(true));
}

/// Tenants whose holds are short and long in turn.
#[test]
fn costs_that_explain_their_time_decide_the_order() {
    let call = |at: f64, tenant: usize, cost: u32| Call {
        at: Duration::from_secs_f64(at),
        tenant,
        cost,
        service: Duration::from_secs_f64(f64::from(cost) / 500.0),
        ..Call::default()
    };
    let earlier = (0..40).map(|nth| {
        let cost = if nth / 2 % 2 == 0 { 10 } else { 1_000 };
        call(2.5 * f64::from(nth), 1 + nth as usize % 2, cost)
    });
    let mut calls: Vec<Call> = earlier.collect();
    let (costly, cheap) = (calls.len() + 1, calls.len() + 2);
    calls.extend([
        call(110.0, 3, 1_000),
        call(110.1, 1, 300),
        call(110.2, 2, 10),
    ]);
    let config = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let end = Duration::from_secs(120);
    let lives = simulate(&config, SlotPool::new(1), Backend::default(), &calls, end);
    assert!(lives[cheap].wait.is_some());
    assert!(lives[cheap].wait < lives[costly].wait);
}

#[test]
fn one_tenant_alone_has_all_slots() {
    let scene = Scene {
        honest: 0.001,
        ..Scene::of(2.0)
    };
    let outcome = scene.play();
    assert!(outcome.used > 0.95, "{outcome:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: (ProptestConfig::default().cases / 8).max(1),
        ..ProptestConfig::default()
    })]

    /// Holds of up to the honest callers' patience. Longer ones are lent slots that their tenant may keep.
    #[test]
    fn the_share_of_a_tenant_holds_whatever_another_does_with_its_slots(
        slots in prop::sample::select(&[4_usize, 8, 16]),
        hold in 0.05..5.0_f64,
        patience in prop_oneof![Just(20.0), 0.3..5.0_f64],
        cost in prop_oneof![Just(1), 1..5_000_u32],
        greedy in 1.0..10.0_f64,
        seed in any::<u64>(),
    ) {
        let scene = Scene { slots, honest: 0.6, hold, patience, cost, greedy, seed };
        let outcome = scene.play();
        prop_assert!(outcome.honest >= 0.9, "{outcome:?}");
    }
}
