//! A saturated gateway in front of a backend with a hidden limit, as a discrete simulation.
//!
//! The backend serves so many calls at a time and queues the others inside, first come first served. So latency is flat up
//! to the limit, then rises in proportion, and throughput is capped. Arrivals are Poisson, service times log-normal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use tower_triage::admit::{LimitOutcome, LimitSample};

/// What a backend is like for a while.
#[derive(Clone, Copy)]
pub(crate) struct Phase {
    pub(crate) slots: usize,
    /// Of the service, in seconds.
    pub(crate) mean: f64,
    pub(crate) seconds: f64,
}

/// How a run is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) phases: Vec<Phase>,
    /// Arrivals per second.
    pub(crate) rate: f64,
    /// Deviation of the logarithm of the service time.
    pub(crate) sigma: f64,
    /// Refuses what it has no slot for, in 2 ms, in place of queueing it.
    pub(crate) refuses: bool,
}

impl Setup {
    /// 100 ms a call, so many slots for 60 s each, and more arrivals than any of them can serve.
    pub(crate) fn saturated(slots: &[usize]) -> Self {
        let phase = |slots: &usize| Phase {
            slots: *slots,
            mean: 0.1,
            seconds: 60.0,
        };
        Self {
            phases: slots.iter().map(phase).collect(),
            rate: 600.0,
            sigma: 0.4,
            refuses: false,
        }
    }
}

/// What a phase was like.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Measured {
    /// Answered within a second.
    pub(crate) useful: usize,
    /// The mean over the last 10 s.
    pub(crate) limit: f64,
}

/// Ratio of what two runs did, over all phases.
pub(crate) fn ratio(of: &[Measured], to: &[Measured]) -> f64 {
    let useful = |run: &[Measured]| run.iter().map(|phase| phase.useful).sum::<usize>() as f64;
    useful(of) / useful(to)
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    End { call: usize, refused: bool },
}

struct Call {
    began: Duration,
    in_flight: usize,
}

const ROOM: usize = 100;
const USEFUL: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(10);

/// Runs all phases. `limit` is told of each call that ended, and in which phase; it returns the limit from then on.
pub(crate) fn run(
    setup: &Setup,
    seed: u64,
    initial: usize,
    mut limit: impl FnMut(LimitSample, Instant, usize) -> usize,
) -> Vec<Measured> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let start = Instant::now();
    let mut events = BinaryHeap::from([Reverse((Duration::ZERO, Event::Arrival))]);
    let (mut waiting, mut in_flight, mut running, mut now_limit) = (0, 0, 0, initial);
    let mut inside = VecDeque::new();
    let mut calls: Vec<Call> = Vec::new();
    let mut measured = vec![Measured::default()];
    let mut phase_end = Duration::from_secs_f64(setup.phases[0].seconds);
    let mut before = Duration::ZERO;
    while let Some(Reverse((now, event))) = events.pop() {
        if now >= phase_end {
            let Some(next) = setup.phases.get(measured.len()) else {
                break;
            };
            phase_end += Duration::from_secs_f64(next.seconds);
            measured.push(Measured::default());
        }
        let index = measured.len() - 1;
        let (phase, result) = (setup.phases[index], &mut measured[index]);
        let in_last = now.saturating_sub(before.max(phase_end - LAST));
        result.limit += now_limit as f64 * in_last.as_secs_f64() / LAST.as_secs_f64();
        before = now;
        match event {
            Event::Arrival => {
                waiting = (waiting + 1).min(ROOM);
                let pause = -(1.0 - rng.f64()).ln() / setup.rate;
                let at = now + Duration::from_secs_f64(pause);
                events.push(Reverse((at, Event::Arrival)));
            }
            Event::End { call, refused } => {
                in_flight -= 1;
                running -= usize::from(!refused);
                let Call { began, in_flight } = calls[call];
                let latency = now - began;
                result.useful += usize::from(!refused && latency <= USEFUL);
                let outcome = match refused {
                    true => LimitOutcome::Overloaded,
                    false => LimitOutcome::Ok,
                };
                let sample = LimitSample::new(latency, in_flight, outcome).waiting(waiting > 0);
                now_limit = limit(sample, start + now, index);
            }
        }
        while waiting > 0 && in_flight < now_limit {
            waiting -= 1;
            in_flight += 1;
            let call = calls.len();
            calls.push(Call {
                began: now,
                in_flight,
            });
            if setup.refuses && running + inside.len() >= phase.slots {
                let end = Event::End {
                    call,
                    refused: true,
                };
                events.push(Reverse((now + Duration::from_millis(2), end)));
            } else {
                inside.push_back(call);
            }
        }
        while running < phase.slots
            && let Some(call) = inside.pop_front()
        {
            running += 1;
            let end = Event::End {
                call,
                refused: false,
            };
            let service = log_normal(&mut rng, phase.mean, setup.sigma);
            events.push(Reverse((now + Duration::from_secs_f64(service), end)));
        }
    }
    measured
}

fn log_normal(rng: &mut fastrand::Rng, mean: f64, sigma: f64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
    mean * (sigma * normal - sigma * sigma / 2.0).exp()
}
