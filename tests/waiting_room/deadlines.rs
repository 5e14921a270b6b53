//! A caller that names its deadline compared with the same caller that is silent.

use std::time::Duration;

use proptest::prelude::*;
use tower_triage::{Discipline, SlotPool, WaitingRoomConfig};

use super::game::adversary::poisson;
use super::simulation::{Backend, Call, Life, simulate};

const SECONDS: f64 = 60.0;

/// Requests that arrive at random. Times are in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    /// The part of the slots that they would take if all were served.
    load: f64,
    service: f64,
    /// `true` if service times are distributed exponentially.
    varies: bool,
    patience: f64,
    is_named: bool,
}

/// Two runs that differ in what one caller says.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    slots: usize,
    discipline: Discipline,
    notices: bool,
    caller: Stream,
    others: Vec<Stream>,
    seed: u64,
}

impl Stream {
    fn calls(&self, slots: usize, tenant: usize, seed: u64) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(seed ^ tenant as u64);
        let per_second = self.load * slots as f64 / self.service;
        let times = poisson(per_second, 0.0, SECONDS, &mut random);
        let patience = Duration::from_secs_f64(self.patience);
        let calls = times.into_iter().map(|at| {
            let factor = if self.varies {
                -(1.0 - random.f64()).ln()
            } else {
                1.0
            };
            Call {
                at: Duration::from_secs_f64(at),
                tenant,
                service: Duration::from_secs_f64(self.service * factor),
                patience,
                named: self.is_named.then_some(patience),
                ..Call::default()
            }
        });
        calls.collect()
    }
}

impl Comparison {
    /// Returns how many of the caller's requests are answered in time: with a deadline, without, and of how many.
    pub(crate) fn in_time(&self) -> (usize, usize, usize) {
        let [named, silent] = [true, false].map(|is_named| {
            let caller = Stream {
                is_named,
                ..self.caller.clone()
            };
            let streams = std::iter::once(&caller).chain(&self.others);
            let calls: Vec<Call> = streams
                .enumerate()
                .flat_map(|(tenant, stream)| stream.calls(self.slots, tenant, self.seed))
                .collect();
            let config = WaitingRoomConfig::default().discipline(self.discipline);
            let backend = Backend {
                notices: self.notices,
                ..Backend::default()
            };
            let end = Duration::from_secs_f64(2.0 * SECONDS);
            let slots = SlotPool::new(self.slots);
            let lives = simulate(&config, slots, backend, &calls, end);
            let own = calls.iter().zip(lives).filter(|(call, _)| call.tenant == 0);
            own.map(|(_, life): (_, Life)| life.in_time)
                .collect::<Vec<_>>()
        });
        let count = |lives: &[bool]| lives.iter().filter(|&&is| is).count();
        (count(&named), count(&silent), named.len())
    }
}

fn stream(
    load: impl Strategy<Value = f64>,
    service: impl Strategy<Value = f64>,
) -> impl Strategy<Value = Stream> {
    let patience = prop_oneof![2 => 0.3..3.0, 1 => 3.0..20.0];
    (load, service, any::<bool>(), patience, any::<bool>()).prop_map(
        |(load, service, varies, patience, is_named)| Stream {
            load,
            service,
            varies,
            patience,
            is_named,
        },
    )
}

/// A caller whose requests are few and mostly short, among others whose requests are mostly long.
pub(crate) fn comparison() -> impl Strategy<Value = Comparison> {
    (
        prop::sample::select(&[1usize, 2, 4, 8, 16, 32]),
        prop::sample::select(&[Discipline::Fifo, Discipline::Fair, Discipline::Deadline]),
        any::<bool>(),
        stream(0.005..0.1, prop_oneof![3 => Just(0.1), 1 => 0.3..3.0]),
        prop::collection::vec(
            stream(0.1..0.8, prop_oneof![1 => Just(0.1), 3 => 0.3..3.0]),
            1..4,
        ),
        any::<u64>(),
    )
        .prop_map(
            |(slots, discipline, notices, caller, others, seed)| Comparison {
                slots,
                discipline,
                notices,
                caller,
                others,
                seed,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn to_name_a_deadline_is_no_worse_than_to_be_silent(comparison in comparison()) {
        let (named, silent, all) = comparison.in_time();
        // The two runs draw different lots: 2.5 times what chance makes of so many requests.
        let chance = 2.5 * (all as f64).sqrt();
        prop_assert!(named as f64 + chance >= silent as f64, "{named} and {silent} of {all}");
    }
}

#[test]
fn short_requests_among_long_ones_may_name_their_deadlines() {
    let stream = |load, service, patience| Stream {
        load,
        service,
        varies: false,
        patience,
        is_named: false,
    };
    let among_four_slots = vec![
        stream(0.6, 2.64, 1.6),
        Stream {
            is_named: true,
            ..stream(0.6, 2.58, 16.6)
        },
        Stream {
            varies: true,
            is_named: true,
            ..stream(0.76, 1.35, 1.6)
        },
    ];
    let among_eight_slots = vec![
        stream(0.36, 1.6, 18.0),
        stream(0.16, 0.84, 2.45),
        stream(0.79, 0.48, 2.4),
    ];
    for (slots, caller, others) in [
        (4, stream(0.08, 0.1, 1.5), among_four_slots),
        (8, stream(0.06, 0.1, 0.31), among_eight_slots),
    ] {
        let (mut named, mut silent) = (0, 0);
        // Each wait is a matter of luck: the sums are not.
        for seed in 0..20 {
            let comparison = Comparison {
                slots,
                discipline: Discipline::Fifo,
                notices: false,
                caller: caller.clone(),
                others: others.clone(),
                seed,
            };
            let in_time = comparison.in_time();
            named += in_time.0;
            silent += in_time.1;
        }
        assert!(named as f64 >= 0.95 * silent as f64, "{named} and {silent}");
    }
}
