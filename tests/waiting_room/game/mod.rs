//! Overload as a game: what an honest tenant, silent and patient, is served while others attack the room, and afterwards.

pub(crate) mod adversary;
mod fluid;

use std::time::Duration;

use proptest::prelude::*;
use tower_triage::{Discipline, SlotPool, WaitingRoomConfig};

use self::adversary::{Adversary, Size, adversary, poisson};
use super::simulation::{Backend, Call, simulate};

/// The seconds before the attack.
const BEFORE: f64 = 10.0;
/// The seconds after the attack in which all has to become as before.
const RECOVERY: f64 = 10.0;
/// The seconds after that.
const AFTER: f64 = 30.0;

/// The way in which the slots are shared. Under `Fair` each adversary is one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Fifo,
    Fair,
    Deadline,
    /// The honest tenant has the higher level.
    HonestAbove,
    /// It has the lower one.
    HonestBelow,
}

const SHARINGS: [Sharing; 5] = [
    Sharing::Fifo,
    Sharing::Fair,
    Sharing::Deadline,
    Sharing::HonestAbove,
    Sharing::HonestBelow,
];

/// The service times of honest requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Services {
    Constant,
    Exponential,
    /// One in ten is ten times as long as the others.
    TwoClasses,
}

#[derive(Debug, Clone)]
pub(crate) struct Game {
    pub(crate) slots: usize,
    /// The mean service time of honest requests, in seconds.
    pub(crate) service: f64,
    pub(crate) services: Services,
    pub(crate) sharing: Sharing,
    /// `true` if the backend stops working for callers that left.
    pub(crate) notices: bool,
    /// The load of the honest tenant, in terms of what the slots can serve.
    pub(crate) honest: f64,
    pub(crate) adversaries: Vec<Adversary>,
    /// The length of the attack, in seconds.
    pub(crate) length: f64,
    pub(crate) seed: u64,
}

/// The shares of the honest tenant's requests that are answered in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) during: f64,
    /// From ten seconds after the attack on.
    pub(crate) after: f64,
    /// The shares that an ideal room with the same discipline admits, during the attack and after it.
    pub(crate) entitled: (f64, f64),
    /// The load of all requests in the busiest five seconds of the attack.
    pub(crate) peak: f64,
}

impl Services {
    fn one(self, mean: f64, random: &mut fastrand::Rng) -> f64 {
        match self {
            Self::Constant => mean,
            Self::Exponential => -mean * (1.0 - random.f64()).ln(),
            Self::TwoClasses => mean / 1.9 * if random.u8(..10) == 0 { 10.0 } else { 1.0 },
        }
    }
}

impl Default for Game {
    fn default() -> Self {
        Self {
            slots: 8,
            service: 0.2,
            services: Services::Constant,
            sharing: Sharing::Fifo,
            notices: false,
            honest: 0.75,
            adversaries: Vec::new(),
            length: 60.0,
            seed: 7,
        }
    }
}

impl Game {
    fn config(&self) -> WaitingRoomConfig {
        WaitingRoomConfig::default().discipline(match self.sharing {
            Sharing::Fair => Discipline::Fair,
            Sharing::Deadline => Discipline::Deadline,
            _ => Discipline::Fifo,
        })
    }

    fn honest(&self) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let per_second = self.honest * self.slots as f64 / self.service;
        let end = BEFORE + self.length + RECOVERY + AFTER;
        let times = poisson(per_second, 0.0, end, &mut random);
        let calls = times.into_iter().map(|at| Call {
            at: Duration::from_secs_f64(at),
            level: u8::from(self.sharing == Sharing::HonestBelow),
            service: Duration::from_secs_f64(self.services.one(self.service, &mut random)),
            ..Call::default()
        });
        calls.collect()
    }

    fn attack(&self) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(!self.seed);
        let size = Size {
            slots: self.slots,
            service: self.service,
        };
        let mut all = Vec::new();
        for (nth, adversary) in self.adversaries.iter().enumerate() {
            let calls = adversary.calls(size, (BEFORE, BEFORE + self.length), &mut random);
            all.extend(calls.into_iter().map(|call| Call {
                level: u8::from(self.sharing == Sharing::HonestAbove),
                tenant: nth + 1,
                ..call
            }));
        }
        all
    }

    pub(crate) fn play(&self) -> Served {
        let (honest, attack) = (self.honest(), self.attack());
        let mut calls = [&honest[..], &attack].concat();
        // Tenants share the slots' time.
        for call in &mut calls {
            call.cost = (call.service.as_micros() / 100) as u32 + 1;
        }
        let backend = Backend {
            notices: self.notices,
            ..Backend::default()
        };
        let attacked = BEFORE + self.length;
        let recovered = attacked + RECOVERY;
        // All callers have left then, or are served.
        let end = Duration::from_secs_f64(recovered + AFTER + 60.0);
        let slots = SlotPool::new(self.slots);
        let lives = simulate(&self.config(), slots, backend, &calls, end);
        let admitted = fluid::admitted(self, &calls);
        let during = |is_so: &dyn Fn(usize) -> bool| share(&honest, is_so, BEFORE, attacked);
        let after = |is_so: &dyn Fn(usize) -> bool| share(&honest, is_so, recovered, f64::INFINITY);
        let (in_time, entitled) = (
            |call: usize| lives[call].in_time,
            |call: usize| admitted[call],
        );
        Served {
            during: during(&in_time),
            after: after(&in_time),
            entitled: (during(&entitled), after(&entitled)),
            peak: self.peak(&calls),
        }
    }

    /// The load of these calls from a second on, until another, in terms of what the slots can serve.
    fn load(&self, calls: &[Call], from: f64, to: f64) -> f64 {
        let work = between(calls, from, to).map(|(_, call)| call.service);
        work.sum::<Duration>().as_secs_f64() / ((to - from) * self.slots as f64)
    }

    fn peak(&self, calls: &[Call]) -> f64 {
        const WINDOW: f64 = 5.0;
        let windows = (0..).map(|nth| BEFORE + f64::from(nth));
        let windows = windows.take_while(|from| from + WINDOW <= BEFORE + self.length);
        let loads = windows.map(|from| self.load(calls, from, from + WINDOW));
        loads.fold(0.0, f64::max)
    }
}

/// The calls that arrive from a second on, until another, with their numbers.
fn between(calls: &[Call], from: f64, to: f64) -> impl Iterator<Item = (usize, &Call)> {
    let all = calls.iter().enumerate();
    all.filter(move |(_, call)| (from..to).contains(&call.at.as_secs_f64()))
}

/// The share of the calls that arrive from a second on, until another, for which this is `true`.
fn share(calls: &[Call], is_so: &dyn Fn(usize) -> bool, from: f64, to: f64) -> f64 {
    let chosen = between(calls, from, to).filter(|&(number, _)| is_so(number));
    chosen.count() as f64 / between(calls, from, to).count() as f64
}

/// A game with an honest tenant of this load, in which all adversaries together have another.
pub(crate) fn game(
    honest: impl Strategy<Value = f64>,
    attack: impl Strategy<Value = f64>,
    sharings: &'static [Sharing],
) -> impl Strategy<Value = Game> {
    let services = [
        Services::Constant,
        Services::Exponential,
        Services::TwoClasses,
    ];
    (
        prop::sample::select(&[1usize, 2, 4, 8, 16, 32]),
        0.0..1.0,
        prop::sample::select(services.to_vec()),
        prop::sample::select(sharings),
        any::<bool>(),
        (honest, attack),
        prop::collection::vec(adversary(), 1..4),
        any::<u64>(),
    )
        .prop_map(
            |(slots, pace, services, sharing, notices, (honest, attack), mut adversaries, seed)| {
                // From 20 to 160 services per second, of 20 to 200 ms each.
                let shortest = (slots as f64 / 160.0).max(0.02);
                let longest = (slots as f64 / 20.0).min(0.2);
                let weights: f64 = adversaries.iter().map(|one| one.load).sum();
                for one in &mut adversaries {
                    one.load *= attack / weights;
                }
                Game {
                    slots,
                    service: shortest + pace * (longest - shortest),
                    services,
                    sharing,
                    notices,
                    honest,
                    adversaries,
                    seed,
                    ..Game::default()
                }
            },
        )
}

/// Returns a configuration that plays one game per `cases` random cases, because a game is long.
fn one_in(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: (ProptestConfig::default().cases / cases).max(1),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(one_in(12))]

    #[test]
    fn adversaries_with_half_of_the_capacity_take_no_more_and_only_while_they_last(
        game in game(Just(0.75), 0.0..0.5, &SHARINGS)
    ) {
        let served = game.play();
        prop_assert!(served.during >= 0.9 * served.entitled.0, "{served:?}");
        prop_assert!(served.after >= 0.97 * served.entitled.1, "{served:?}");
    }

    #[test]
    fn adversaries_with_a_tenth_of_the_capacity_are_hardly_felt(
        game in game(Just(0.75), Just(0.1), &SHARINGS)
    ) {
        let served = game.play();
        // More than that is overload by chance.
        prop_assume!(served.peak <= 1.0);
        prop_assert!(served.during >= 0.97, "{served:?}");
        prop_assert!(served.after >= 0.99, "{served:?}");
    }
}

proptest! {
    #![proptest_config(one_in(32))]

    #[test]
    fn a_flood_costs_no_more_than_its_share_with_fair(
        game in game(0.2..0.75, prop::sample::select(&[2.0, 5.0, 20.0]), &[Sharing::Fair])
    ) {
        // A flood of a minute is a million requests.
        let served = Game { length: 20.0, ..game }.play();
        prop_assert!(served.during >= 0.95 * served.entitled.0, "{served:?}");
    }
}

#[test]
fn hang_ups_of_others_do_not_lock_out_patient_callers() {
    for (load, least) in [(0.1, 0.97), (0.25, 0.9), (0.5, 0.85)] {
        for sharing in SHARINGS {
            let hang_ups = Adversary {
                load,
                hang_up: Some(0.1),
                ..Adversary::default()
            };
            let game = Game {
                sharing,
                adversaries: vec![hang_ups],
                ..Game::default()
            };
            let served = game.play();
            assert!(served.during >= least, "{sharing:?}, {load}: {served:?}");
            assert!(served.after >= 0.999, "{sharing:?}, {load}: {served:?}");
        }
    }
}

#[test]
fn many_short_requests_of_others_are_not_taken_for_overload() {
    for slots in [1, 4] {
        for seed in 0..5 {
            let short = Adversary {
                load: 0.1,
                service: 0.03,
                ..Adversary::default()
            };
            let game = Game {
                slots,
                services: Services::Exponential,
                adversaries: vec![short],
                length: 20.0,
                seed,
                ..Game::default()
            };
            let served = game.play();
            assert!(served.during >= 0.86, "{slots}, {seed}: {served:?}");
        }
    }
}
