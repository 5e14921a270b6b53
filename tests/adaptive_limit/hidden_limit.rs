use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm, LimitOutcome, Limiter};

use crate::backend::{Measured, Phase, Setup, ratio, run};

const SEEDS: std::ops::Range<u64> = 0..10;

fn adaptive(setup: &Setup, seed: u64, config: AdaptiveLimit) -> Vec<Measured> {
    let mut limiter = Limiter::new(&config).expect("a valid configuration");
    let initial = limiter.limit();
    run(setup, seed, initial, |sample, now, _| {
        limiter.observe(sample, now)
    })
}

/// One that knows the limit.
fn oracle(setup: &Setup, seed: u64) -> Vec<Measured> {
    let initial = setup.phases[0].slots;
    run(setup, seed, initial, |_, _, phase| {
        setup.phases[phase].slots
    })
}

/// How often the limit was within ± 20 % at the end of a phase, and the mean of the goodput as a share of the oracle's.
fn score(setup: &Setup, config: AdaptiveLimit) -> (f64, f64) {
    let (mut within, mut goodput) = (0, 0.0);
    for seed in SEEDS {
        let measured = adaptive(setup, seed, config);
        let share = ratio(&measured, &oracle(setup, seed));
        let limits: Vec<f64> = measured.iter().map(|phase| phase.limit).collect();
        println!(
            "{:?}, seed {seed}: limits {limits:.1?}, goodput {share:.3}",
            config.algorithm
        );
        let close =
            |(limit, phase): (&f64, &Phase)| (limit / phase.slots as f64 - 1.0).abs() <= 0.2;
        within += limits
            .iter()
            .zip(&setup.phases)
            .filter(|pair| close(*pair))
            .count();
        goodput += share;
    }
    let runs = SEEDS.count();
    let (within, goodput) = (
        within as f64 / (runs * setup.phases.len()) as f64,
        goodput / runs as f64,
    );
    println!(
        "{:?}: {within:.2} within ± 20 %, goodput {goodput:.3}",
        config.algorithm
    );
    (within, goodput)
}

#[test]
fn the_default_finds_a_hidden_limit_of_20_then_10_then_40() {
    let (within, goodput) = score(&Setup::saturated(&[20, 10, 40]), AdaptiveLimit::default());
    assert_eq!(within, 1.0);
    assert!(goodput >= 0.95, "{goodput}");
}

#[test]
fn aimd_finds_what_a_backend_refuses_beyond() {
    let setup = Setup {
        refuses: true,
        ..Setup::saturated(&[20, 10, 40])
    };
    let config = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
    let (within, goodput) = score(&setup, config);
    assert_eq!(within, 1.0);
    assert!(goodput >= 0.9, "{goodput}");
}

#[test]
fn aimd_probes_a_refusing_backend_ever_less_often() {
    for slots in [4, 16] {
        let setup = Setup {
            refuses: true,
            ..Setup::saturated(&[slots, slots])
        };
        let config = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
        let mut limiter = Limiter::new(&config).expect("a valid configuration");
        let (mut refused, mut calls) = (0, 0);
        run(&setup, 1, limiter.limit(), |sample, now, phase| {
            if phase == 1 {
                calls += 1;
                refused += usize::from(sample.outcome == LimitOutcome::Overloaded);
            }
            limiter.observe(sample, now)
        });
        let share = refused as f64 / calls as f64;
        println!("{slots} slots: {share:.4} refused");
        assert!(share < 0.01, "{slots}: {share}");
    }
}

#[test]
fn limits_of_1_to_8_are_found() {
    for slots in [1, 2, 4, 8] {
        let setup = Setup::saturated(&[slots]);
        let (mut limit, mut goodput) = (0.0, 0.0);
        for seed in SEEDS {
            let measured = adaptive(&setup, seed, AdaptiveLimit::default().initial(1));
            limit += measured[0].limit / SEEDS.count() as f64;
            goodput += ratio(&measured, &oracle(&setup, seed)) / SEEDS.count() as f64;
        }
        println!("{slots} slots: limit {limit:.1}, goodput {goodput:.3}");
        assert!((limit - slots as f64).abs() <= 1.5, "{slots}: {limit}");
        assert!(goodput >= 0.9, "{slots}: {goodput}");
    }
}

#[test]
fn a_backend_that_becomes_slower_is_not_starved() {
    let phase = |mean, seconds| Phase {
        slots: 20,
        mean,
        seconds,
    };
    let setup = Setup {
        phases: vec![phase(0.1, 60.0), phase(0.3, 120.0), phase(0.3, 60.0)],
        ..Setup::saturated(&[])
    };
    for seed in SEEDS {
        let measured = adaptive(&setup, seed, AdaptiveLimit::default());
        println!("seed {seed}: {measured:?}");
        assert!(measured[2].limit >= 15.0, "{seed}: {measured:?}");
    }
}

#[test]
fn an_idle_limit_holds() {
    let setup = Setup {
        rate: 30.0,
        ..Setup::saturated(&[20])
    };
    for algorithm in [LimitAlgorithm::Vegas, LimitAlgorithm::Aimd] {
        let config = AdaptiveLimit::default().algorithm(algorithm);
        let measured = adaptive(&setup, 1, config);
        assert!(
            (19.9..24.0).contains(&measured[0].limit),
            "{algorithm:?}: {measured:?}"
        );
    }
}
