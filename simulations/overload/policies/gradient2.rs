//! Netflix's concurrency-limits with `Gradient2Limit` and its defaults.
//!
//! The limit is 20 at first and at least, 200 at most. Each response moves it towards `gradient · limit + 4`, by a fifth;
//! `gradient` is 1.5 times the long-term average of the response times over this one, between 0.5 and 1. So moderate
//! overload raises it (concurrency-limits #134), and it can't fall below 20, whatever the backend. It does not know how
//! many slots there are: what it admits beyond them waits in the backend.
//!
//! A request beyond the limit is refused (`SimpleLimiter`), or waits in a backlog of 100 for 1 s, the latest first
//! (`LifoBlockingLimiter`).

use std::collections::HashMap;
use std::time::Duration;

use super::rolling::WarmAverage;
use super::waiters::Waiters;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct Gradient2 {
    limit: Limit,
    in_flight: HashMap<RequestId, Start>,
    /// How many requests may wait.
    backlog: usize,
    waiters: Waiters<()>,
}

/// When a request was admitted, and how many were in flight then, itself included.
struct Start {
    at: Duration,
    in_flight: usize,
}

const BACKLOG_TIMEOUT: Duration = Duration::from_secs(1);

impl Gradient2 {
    pub(crate) fn without_queue() -> Self {
        Self::new(0)
    }

    pub(crate) fn with_backlog() -> Self {
        Self::new(100)
    }

    fn new(backlog: usize) -> Self {
        Self {
            limit: Limit::new(),
            in_flight: HashMap::new(),
            backlog,
            waiters: Waiters::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < self.limit.value as usize
    }

    fn admit(&mut self, id: RequestId, now: Duration, decisions: &mut Vec<Decision>) {
        let in_flight = self.in_flight.len() + 1;
        self.in_flight.insert(id, Start { at: now, in_flight });
        decisions.push(Decision::Admit(id));
    }
}

impl Policy for Gradient2 {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        if self.has_room() {
            self.admit(arrival.id, now, decisions);
        } else if self.waiters.len() < self.backlog {
            self.waiters
                .push(arrival.id, (), Some(now + BACKLOG_TIMEOUT));
        } else {
            decisions.push(Decision::Refuse(arrival.id));
        }
    }

    fn release(
        &mut self,
        id: RequestId,
        ended: Ended,
        now: Duration,
        decisions: &mut Vec<Decision>,
    ) {
        // A cancelled request says nothing of the backend: it is ignored.
        if let Some(start) = self.in_flight.remove(&id)
            && ended == Ended::Finished
        {
            self.limit
                .sample((now - start.at).as_secs_f64(), start.in_flight);
        }
        while self.has_room()
            && let Some(next) = self.waiters.pop_last()
        {
            self.admit(next, now, decisions);
        }
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.waiters.remove(id);
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.waiters.next_end()
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        while let Some(id) = self.waiters.pop_ended(now) {
            decisions.push(Decision::Refuse(id));
        }
    }
}

struct Limit {
    value: f64,
    long: WarmAverage,
}

impl Limit {
    const LEAST: f64 = 20.0;
    const MOST: f64 = 200.0;
    const SMOOTHING: f64 = 0.2;
    /// How many requests may wait in the backend.
    const QUEUE: f64 = 4.0;
    const TOLERANCE: f64 = 1.5;

    fn new() -> Self {
        Self {
            value: Self::LEAST,
            long: WarmAverage::new(600.0, 10),
        }
    }

    /// A response took `seconds`.
    fn sample(&mut self, seconds: f64, in_flight: usize) {
        let long = self.long.add(seconds);
        if long / seconds > 2.0 {
            // The backend has become faster: the average follows sooner.
            self.long.value *= 0.95;
        }
        if (in_flight as f64) < self.value / 2.0 {
            return;
        }
        let gradient = (Self::TOLERANCE * long / seconds).clamp(0.5, 1.0);
        let aim = gradient * self.value + Self::QUEUE;
        let smoothed = (1.0 - Self::SMOOTHING) * self.value + Self::SMOOTHING * aim;
        self.value = smoothed.clamp(Self::LEAST, Self::MOST);
    }
}
