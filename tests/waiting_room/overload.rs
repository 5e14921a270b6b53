//! Overload: the share of the capacity that serves requests in time, in virtual time.

use std::convert::Infallible;
use std::time::Duration;

use tower_triage::admit::{
    Capacity, LeaseError, Partition, PoolId, PoolSet, ReservedSlots, Slot, SlotUsage, TargetWait,
};
use tower_triage::{Discipline, SlotPool, WaitingRoomConfig};

use super::game::adversary::poisson;
use super::simulation::{Backend, Call, Life, Slots, simulate};

const SLOTS: usize = 8;
const SERVICE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(1);
const SECONDS: u64 = 120;

/// A service of `SLOTS` slots, and callers that go away after `PATIENCE`.
struct Study {
    config: WaitingRoomConfig,
    /// Arrivals in terms of what the slots can serve.
    load: f64,
    /// The share of arrivals of the higher level.
    high: f64,
    /// Whether callers say how long they wait.
    is_told: bool,
    /// Of how many tenants each sends as much as another; the first sends as much as all others together.
    tenants: usize,
    /// From when to when the service stands still, in seconds.
    pause: (u64, u64),
    /// The share of the first tenant's requests that are given up after 1 ms.
    hasty: f64,
}

impl Default for Study {
    fn default() -> Self {
        Self {
            config: WaitingRoomConfig::default(),
            load: 1.5,
            high: 0.0,
            is_told: true,
            tenants: 1,
            pause: (0, 0),
            hasty: 0.0,
        }
    }
}

/// A request, and what became of it.
struct Request {
    call: Call,
    life: Life,
}

/// The slots of a partition with a discipline of its own.
struct Partitioned(SlotPool, Discipline);

impl Capacity for Partitioned {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Unservable = Infallible;

    fn try_lease(&self, (): &()) -> Result<Slot, LeaseError<Infallible>> {
        self.0.try_lease(&())
    }

    fn release(&self, slot: Slot) -> PoolId {
        self.0.release(slot)
    }

    fn pool(&self, slot: &Slot) -> PoolId {
        self.0.pool(slot)
    }

    fn lane(&self, (): &()) {}

    fn pools(&self, (): &()) -> PoolSet {
        PoolSet::one(PoolId(0))
    }

    fn partition(&self, (): &()) -> Partition {
        Partition::new(1).discipline(self.1)
    }

    fn pool_usage(&self, pool: PoolId) -> SlotUsage {
        self.0.pool_usage(pool)
    }

    fn usage(&self) -> SlotUsage {
        self.0.usage()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}

impl Study {
    fn run(self) -> Vec<Request> {
        self.run_with(SlotPool::new(SLOTS))
    }

    fn run_with(self, slots: impl Slots) -> Vec<Request> {
        let (calls, end) = (self.calls(), Duration::from_secs(SECONDS));
        let backend = Backend {
            pause: self.pause,
            ..Backend::default()
        };
        let lives = simulate(&self.config, slots, backend, &calls, end);
        let all = calls.into_iter().zip(lives);
        all.map(|(call, life)| Request { call, life }).collect()
    }

    fn calls(&self) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(7);
        let per_second = self.load * SLOTS as f64 / SERVICE.as_secs_f64();
        let (mut calls, mut at) = (Vec::new(), Duration::ZERO);
        while at < Duration::from_secs(SECONDS) {
            let gap = -(1.0 - random.f64()).ln() / per_second;
            let level = u8::from(random.f64() >= self.high);
            let tenant = match random.bool() {
                true => 0,
                false => random.usize(..self.tenants),
            };
            let is_hasty = tenant == 0 && self.hasty > 0.0 && random.f64() < self.hasty;
            let patience = match is_hasty {
                true => Duration::from_millis(1),
                false => PATIENCE,
            };
            calls.push(Call {
                at,
                level,
                tenant,
                service: SERVICE,
                patience,
                named: self.is_told.then_some(patience),
                ..Call::default()
            });
            at += Duration::from_secs_f64(gap);
        }
        calls
    }
}

/// The share of the slots' time from second `from` on that was spent on requests that were answered in time.
fn useful(requests: &[Request], from: u64) -> f64 {
    let since = Duration::from_secs(from);
    let in_time = requests
        .iter()
        .filter(|request| request.life.in_time && request.call.at >= since);
    let work = in_time.count() as f64 * SERVICE.as_secs_f64();
    work / (SLOTS as f64 * (SECONDS - from) as f64)
}

fn share(
    requests: &[Request],
    of: impl Fn(&Request) -> bool,
    is: impl Fn(&Request) -> bool,
) -> f64 {
    // The last second is not over.
    let all = requests
        .iter()
        .filter(|request| request.call.at.as_secs() < SECONDS - 1 && of(request));
    let (mut all_of, mut those) = (0.0, 0.0);
    for request in all {
        all_of += 1.0;
        those += f64::from(u8::from(is(request)));
    }
    those / all_of
}

fn quantile(requests: &[Request], of: impl Fn(&Request) -> bool, q: f64) -> Duration {
    let waits = requests.iter().filter(|request| of(request));
    let mut waits: Vec<_> = waits.filter_map(|request| request.life.wait).collect();
    waits.sort_unstable();
    waits[(waits.len() as f64 * q) as usize]
}

fn p99(requests: &[Request], of: impl Fn(&Request) -> bool) -> Duration {
    quantile(requests, of, 0.99)
}

const DISCIPLINES: [Discipline; 3] = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];

#[test]
fn the_capacity_is_spent_on_requests_that_are_in_time() {
    for discipline in DISCIPLINES {
        for load in [1.2, 1.5, 3.0] {
            let config = WaitingRoomConfig::default().discipline(discipline);
            let all = Study {
                config,
                load,
                ..Study::default()
            };
            let all = all.run();
            let useful = useful(&all, 0);
            assert!(useful >= 0.98, "{discipline:?} at {load}: {useful}");
            // All who are refused are told at once.
            let in_vain = share(&all, |r| !r.life.in_time, |r| r.life.rejected.is_none());
            assert!(in_vain <= 0.01, "{discipline:?} at {load}: {in_vain}");
        }
    }
}

#[test]
fn without_a_target_the_capacity_is_wasted() {
    let config = WaitingRoomConfig::default().target_wait(TargetWait::Off);
    let all = Study {
        config,
        is_told: false,
        ..Study::default()
    };
    let useful = useful(&all.run(), 0);
    assert!(useful < 0.5, "{useful}");
}

#[test]
fn silent_callers_are_served_in_time_in_lasting_overload() {
    for load in [1.5, 3.0] {
        let all = Study {
            load,
            is_told: false,
            ..Study::default()
        };
        // A burst is let in for longer than these callers wait, because the room does not know how long that is.
        let useful = useful(&all.run(), 10);
        assert!(useful >= 0.85, "at {load}: {useful}");
    }
}

#[test]
fn a_service_that_stood_still_is_used_again_at_once() {
    for (is_told, pause) in [(true, (20, 50)), (true, (10, 80)), (false, (20, 30))] {
        let all = Study {
            is_told,
            pause,
            ..Study::default()
        };
        let useful = useful(&all.run(), pause.1 + 5);
        let least = if is_told { 0.95 } else { 0.8 };
        assert!(useful >= least, "{is_told} {pause:?}: {useful}");
    }
}

#[test]
fn a_high_level_is_served_as_if_it_were_alone() {
    for load in [1.5, 3.0] {
        let all = Study {
            load,
            high: 0.2,
            ..Study::default()
        };
        let all = all.run();
        let served = share(&all, |r| r.call.level == 0, |r| r.life.in_time);
        assert_eq!(served, 1.0, "at {load}");
        let p99 = p99(&all, |r| r.call.level == 0);
        assert!(p99 <= SERVICE, "at {load}: {p99:?}");
        let useful = useful(&all, 0);
        assert!(useful >= 0.98, "at {load}: {useful}");
    }
}

#[test]
fn tenants_within_their_share_are_not_refused_for_a_greedy_one() {
    let served = |discipline, hasty| {
        let all = Study {
            config: WaitingRoomConfig::default().discipline(discipline),
            tenants: 10,
            hasty,
            ..Study::default()
        };
        share(&all.run(), |r| r.call.tenant > 0, |r| r.life.in_time)
    };
    let (fifo, fair) = (served(Discipline::Fifo, 0.0), served(Discipline::Fair, 0.0));
    assert!(fifo < 0.75 && fair >= 0.97, "{fifo} {fair}");
    // Nor does it gain by deadlines that make the room forget.
    let hasty = served(Discipline::Fair, 0.01);
    assert!(hasty >= 0.97, "{hasty}");
}

#[test]
fn levels_with_weights_have_their_shares_in_overload() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        for is_told in [true, false] {
            let run = |load, high| {
                let all = Study {
                    config: WaitingRoomConfig::default()
                        .discipline(discipline)
                        .level_weight("high", 3),
                    load,
                    high,
                    is_told,
                    ..Study::default()
                };
                // Until then, slots were idle of late.
                let all = all.run().into_iter();
                all.filter(|r| r.call.at.as_secs() >= 60)
                    .collect::<Vec<_>>()
            };
            // Each level alone sends twice of what can be served.
            let all = run(4.0, 0.5);
            let high = share(&all, |r| r.life.in_time, |r| r.call.level == 0);
            assert!((high / 0.75 - 1.0).abs() <= 0.1, "{discipline:?}: {high}");
            for level in [0, 1] {
                let p99 = p99(&all, |r| r.call.level == level);
                assert!(p99 <= PATIENCE / 2, "{discipline:?}, {level}: {p99:?}");
            }
            for all in [all, run(2.0, 0.0), run(2.0, 1.0)] {
                let useful = useful(&all, 60);
                assert!(useful >= 0.98, "{discipline:?}: {useful}");
            }
        }
    }
}

#[test]
fn shares_are_those_of_the_partition_s_discipline() {
    let served = |room, partition| {
        let all = Study {
            config: WaitingRoomConfig::default().discipline(room),
            tenants: 10,
            ..Study::default()
        };
        let all = all.run_with(Partitioned(SlotPool::new(SLOTS), partition));
        share(&all, |r| r.call.tenant > 0, |r| r.life.in_time)
    };
    let fair = served(Discipline::Fifo, Discipline::Fair);
    let fifo = served(Discipline::Fair, Discipline::Fifo);
    assert!(fifo < 0.75 && fair >= 0.97, "{fifo} {fair}");
}

#[test]
fn only_a_request_that_finds_waiters_before_it_is_refused_as_overloaded() {
    let all = Study {
        config: WaitingRoomConfig::default().target_wait(Duration::ZERO),
        load: 1.5,
        ..Study::default()
    };
    let all = all.run();
    let mut refused = all.iter().filter(|r| r.life.rejected.is_some()).peekable();
    assert!(refused.peek().is_some());
    assert!(refused.all(|r| r.life.found > 0));
    // One always waits, so the slots are rarely idle.
    let useful = useful(&all, 0);
    assert!(useful > 0.9, "{useful}");
}

#[test]
fn both_rooms_predict_the_same() {
    let outcomes = |config: WaitingRoomConfig| {
        let all = Study {
            config,
            high: 0.2,
            ..Study::default()
        };
        let all = all.run().into_iter();
        all.map(|r| (r.life.wait, r.life.rejected))
            .collect::<Vec<_>>()
    };
    let config = WaitingRoomConfig::default;
    let reserve = ReservedSlots::Slots(2);
    for config in [config(), config().reserve("high", reserve)] {
        let plain = outcomes(config.clone());
        // Only the full room promotes.
        let full = outcomes(config.promote_after(Duration::from_secs(86_400)));
        assert!(plain == full);
    }
}

#[test]
fn no_wait_is_longer_than_twice_a_configured_target_from_the_first_request_on() {
    let target = Duration::from_millis(200);
    for load in [1.2, 2.0, 3.0] {
        let all = Study {
            config: WaitingRoomConfig::default().target_wait(target),
            load,
            is_told: false,
            ..Study::default()
        };
        let all = all.run();
        let waited = |r: &Request| r.life.found > 0;
        let longest = all
            .iter()
            .filter(|r| waited(r))
            .filter_map(|r| r.life.wait)
            .max();
        assert!(longest <= Some(2 * target), "at {load}: {longest:?}");
    }
}

#[test]
fn the_beginning_of_an_overload_is_not_spent_on_callers_that_have_left() {
    // The load in the minute before. 0: the room is new.
    for before in [0.0, 0.2, 0.75] {
        for load in [1.5, 3.0] {
            let mut random = fastrand::Rng::with_seed(1);
            let second = SLOTS as f64 / SERVICE.as_secs_f64();
            let mut times = poisson(before * second, 0.0, 60.0, &mut random);
            times.extend(poisson(load * second, 60.0, 90.0, &mut random));
            let calls: Vec<Call> = times
                .into_iter()
                .map(|at| Call {
                    at: Duration::from_secs_f64(at),
                    service: SERVICE,
                    patience: PATIENCE,
                    ..Call::default()
                })
                .collect();
            let backend = Backend {
                notices: true,
                ..Backend::default()
            };
            let config = WaitingRoomConfig::default();
            let end = Duration::from_secs(100);
            let lives = simulate(&config, SlotPool::new(SLOTS), backend, &calls, end);
            let lives = calls.iter().zip(lives);
            let is_late = |at: Duration| at >= Duration::from_secs(70);
            let served = lives.filter(|(call, life)| is_late(call.at) && life.in_time);
            let useful = served.count() as f64 / (20.0 * second);
            assert!(useful > 0.85, "{before}, {load}: {useful}");
        }
    }
}
