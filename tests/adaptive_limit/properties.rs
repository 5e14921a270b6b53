use std::time::{Duration, Instant};

use proptest::prelude::*;
use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm, LimitOutcome, LimitSample, Limiter};

const ALL: [LimitAlgorithm; 2] = [LimitAlgorithm::Aimd, LimitAlgorithm::Vegas];

fn configs(algorithms: &[LimitAlgorithm]) -> impl Strategy<Value = AdaptiveLimit> + use<> {
    let bounds = (1usize..50, 0usize..2000, 0usize..2000);
    (prop::sample::select(algorithms.to_vec()), bounds).prop_map(
        |(algorithm, (min, more, initial))| {
            AdaptiveLimit::default()
                .algorithm(algorithm)
                .min(min)
                .max(min + more)
                .initial(initial)
        },
    )
}

/// Calls of one kind, as often as it says.
fn samples() -> impl Strategy<Value = (LimitSample, usize)> {
    let latency = prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0u64..10_000_000).prop_map(Duration::from_micros),
    ];
    let in_flight = prop_oneof![Just(0), Just(usize::MAX), 1usize..3000];
    let outcome = prop_oneof![
        5 => Just(LimitOutcome::Ok),
        1 => Just(LimitOutcome::Overloaded),
        1 => Just(LimitOutcome::Ignored),
    ];
    (latency, in_flight, any::<bool>(), outcome, 1usize..600).prop_map(
        |(latency, in_flight, waiting, outcome, times)| {
            let sample = LimitSample {
                latency,
                in_flight,
                waiting,
                outcome,
            };
            (sample, times)
        },
    )
}

proptest! {
    #[test]
    fn the_limit_stays_within_bounds_and_moves_in_bounded_steps(
        config in configs(&ALL),
        samples in prop::collection::vec(samples(), 1..60),
    ) {
        let mut limiter = Limiter::new(&config).expect("a valid configuration");
        let mut now = Instant::now();
        let mut before = limiter.limit();
        prop_assert!((config.min..=config.max).contains(&before));
        for (sample, times) in samples {
            for _ in 0..times {
                now += Duration::from_millis(1);
                let limit = limiter.observe(sample, now);
                prop_assert_eq!(limit, limiter.limit());
                prop_assert!((config.min..=config.max).contains(&limit));
                prop_assert!(limit <= before * 2 + 1 && limit + 1 >= before / 2, "{} to {}", before, limit);
                if sample.outcome == LimitOutcome::Ignored {
                    prop_assert_eq!(limit, before);
                }
                before = limit;
            }
        }
    }

    #[test]
    fn no_latency_leaves_a_limit_stuck(
        config in configs(&ALL),
        samples in prop::collection::vec(samples(), 1..20),
    ) {
        let mut limiter = Limiter::new(&config).expect("a valid configuration");
        let mut now = Instant::now();
        for (sample, times) in samples {
            for _ in 0..times {
                limiter.observe(sample, now);
            }
        }
        // A service without a limit: whatever came before, the limit goes up.
        let before = limiter.limit();
        let healthy = |in_flight| LimitSample {
            latency: Duration::from_millis(10),
            in_flight,
            waiting: true,
            outcome: LimitOutcome::Ok,
        };
        let mut most = before;
        for _ in 0..200_000 {
            now += Duration::from_micros(100);
            most = most.max(limiter.observe(healthy(limiter.limit()), now));
            if most > before {
                break;
            }
        }
        prop_assert!(most > before || before == config.max, "{} of {}", before, config.max);
    }
}
