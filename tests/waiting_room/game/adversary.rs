//! Adversaries: the requests that they send, and what they do with them.

use std::time::Duration;

use proptest::prelude::*;

use super::super::simulation::Call;

/// What is attacked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) slots: usize,
    /// The mean service time of honest requests, in seconds.
    pub(crate) service: f64,
}

/// An adversary. Times are in multiples of the honest requests' service time.
#[derive(Debug, Clone)]
pub(crate) struct Adversary {
    /// The part of the slots that its requests would take if all were served.
    pub(crate) load: f64,
    pub(crate) service: f64,
    /// The age at which its callers hang up.
    pub(crate) hang_up: Option<f64>,
    /// The timeout that its requests name: the truth is `hang_up`.
    pub(crate) named: Option<f64>,
    /// How often a refused caller tries again at once.
    pub(crate) retries: u32,
    /// How often a caller that hung up comes again at once.
    pub(crate) reconnects: u32,
    /// Requests that come at once.
    pub(crate) batch: u32,
    /// The seconds after which all its open requests are dropped at once, again and again.
    pub(crate) dropped_every: Option<f64>,
}

/// The seconds of its part of the slots that an adversary takes at once, at most.
const MOST_AT_ONCE: f64 = 3.0;
/// The longest patience, in seconds.
const MOST_PATIENT: f64 = 20.0;

/// An adversary whose `load` is a weight.
pub(crate) fn adversary() -> impl Strategy<Value = Adversary> {
    use prop::option::weighted;
    let any_age = || prop_oneof![0.001..0.1, 0.1..1.5, 1.5..20.0];
    (
        0.1..1.0,
        prop_oneof![2 => Just(1.0), 1 => 0.05..1.0, 1 => 1.0..20.0],
        weighted(0.8, any_age()),
        weighted(0.4, prop_oneof![any_age(), 20.0..1_000.0]),
        prop_oneof![2 => Just(0u32), 1 => 1u32..20],
        prop_oneof![2 => Just(0u32), 1 => 1u32..10],
        prop_oneof![2 => Just(1u32), 1 => 2u32..60],
        weighted(0.3, 0.5..10.0),
    )
        .prop_map(
            |(load, service, hang_up, named, retries, reconnects, batch, dropped_every)| {
                Adversary {
                    load,
                    service,
                    hang_up,
                    named,
                    retries,
                    reconnects,
                    batch,
                    dropped_every,
                }
            },
        )
}

impl Default for Adversary {
    fn default() -> Self {
        Self {
            load: 0.5,
            service: 1.0,
            hang_up: None,
            named: None,
            retries: 0,
            reconnects: 0,
            batch: 1,
            dropped_every: None,
        }
    }
}

/// Times of arrival at random, so many per second.
pub(crate) fn poisson(rate: f64, from: f64, to: f64, random: &mut fastrand::Rng) -> Vec<f64> {
    let mut at = from;
    let next = || {
        at += -(1.0 - random.f64()).ln() / rate;
        (at < to).then_some(at)
    };
    std::iter::from_fn(next).collect()
}

impl Adversary {
    /// Returns what it sends in this time.
    pub(crate) fn calls(
        &self,
        size: Size,
        (from, to): (f64, f64),
        random: &mut fastrand::Rng,
    ) -> Vec<Call> {
        let seconds = |times: f64| times * size.service;
        let per_second = self.load * size.slots as f64 / seconds(self.service);
        // What comes at once is no more than its part of the slots for a while.
        let batch = self
            .batch
            .min((MOST_AT_ONCE * per_second).ceil() as u32)
            .max(1);
        let every = f64::from(batch) * f64::from(1 + self.reconnects) / per_second;
        let (mut calls, mut next) = (Vec::new(), from + random.f64() * every);
        while next < to {
            for _ in 0..batch {
                let mut at = next;
                for _ in 0..=self.reconnects {
                    if at >= to {
                        break;
                    }
                    let dropped = match self.dropped_every {
                        Some(every) => every - (at - from) % every,
                        None => MOST_PATIENT,
                    };
                    let patience = self
                        .hang_up
                        .map_or(MOST_PATIENT, seconds)
                        .min(dropped)
                        .min(MOST_PATIENT);
                    calls.push(Call {
                        at: Duration::from_secs_f64(at),
                        service: Duration::from_secs_f64(seconds(self.service)),
                        patience: Duration::from_secs_f64(patience),
                        named: self
                            .named
                            .map(|named| Duration::from_secs_f64(seconds(named))),
                        retries: self.retries,
                        ..Call::default()
                    });
                    at += patience;
                }
            }
            next += every * (0.5 + random.f64());
        }
        calls
    }
}
