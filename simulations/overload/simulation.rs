//! The simulation: arrivals, a policy, a backend, and callers that lose patience, in virtual time.
//!
//! Events happen in the order of their times. Of events at one instant, ends of service come first, then the policy's
//! timeouts, callers that leave, and arrivals: so a slot that becomes free at the last moment is still in time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};
use crate::workload::{Callers, Until, Workload};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its caller got an answer, perhaps a late one.
    Served,
    /// Its caller was told that there will be no answer.
    Refused,
    /// Its caller left before that.
    Left,
}

/// The life of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) outcome: Outcome,
    /// When the caller knew, or left.
    pub(crate) decided: Duration,
    /// When a slot began and ended to work for it, if one did; also for a caller that had left.
    pub(crate) slot: Option<(Duration, Duration)>,
}

/// A finished simulation.
#[derive(Debug, PartialEq)]
pub(crate) struct Run {
    /// In the order of the workload's requests.
    pub(crate) records: Vec<Record>,
    /// Slot-seconds in which a slot was idle while a request waited.
    pub(crate) idle_while_waiting: f64,
}

/// Runs a workload under a policy, until every request has an outcome.
pub(crate) fn simulate(workload: &Workload, policy: &mut dyn Policy) -> Run {
    let mut simulation = Simulation::new(workload);
    while let Some((now, event)) = simulation.next_event(policy) {
        simulation.account_idle(now);
        simulation.now = now;
        simulation.happen(event, policy);
        simulation.carry_out();
    }
    simulation.into_run()
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Finish,
    PolicyTimeout,
    LosePatience,
    Arrive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not arrived, or waiting in the policy.
    Outside,
    WaitsInBackend,
    Runs,
    Over,
}

struct Simulation<'w> {
    workload: &'w Workload,
    now: Duration,
    phases: Vec<Phase>,
    slots: Vec<Option<(Duration, Duration)>>,
    outcomes: Vec<Option<(Outcome, Duration)>>,
    /// The next request to arrive.
    next_arrival: RequestId,
    /// Requests that have arrived, by when their callers lose patience.
    patient: BinaryHeap<Reverse<(Duration, RequestId)>>,
    /// Requests that have arrived and are neither over nor with the backend.
    waiting_outside: usize,
    busy: usize,
    /// Admitted while every slot was busy: first come, first served.
    backend_queue: VecDeque<RequestId>,
    /// By end. An aborted request keeps its entry, which is skipped.
    running: BinaryHeap<Reverse<(Duration, RequestId)>>,
    /// Arrived requests that are not over.
    open: usize,
    decisions: Vec<Decision>,
    idle_while_waiting: f64,
}

impl<'w> Simulation<'w> {
    fn new(workload: &'w Workload) -> Self {
        let count = workload.requests.len();
        Self {
            workload,
            now: Duration::ZERO,
            phases: vec![Phase::Outside; count],
            slots: vec![None; count],
            outcomes: vec![None; count],
            next_arrival: 0,
            patient: BinaryHeap::new(),
            waiting_outside: 0,
            busy: 0,
            backend_queue: VecDeque::new(),
            running: BinaryHeap::new(),
            open: 0,
            decisions: Vec::new(),
            idle_while_waiting: 0.0,
        }
    }

    /// `None` once every request is over: a policy may have timeouts for ever.
    fn next_event(&mut self, policy: &dyn Policy) -> Option<(Duration, Event)> {
        let arrival = self.workload.requests.get(self.next_arrival);
        if arrival.is_none() && self.open == 0 {
            return None;
        }
        while let Some(&Reverse((_, id))) = self.running.peek()
            && self.phases[id] != Phase::Runs
        {
            self.running.pop();
        }
        let finish = self.running.peek().map(|Reverse((end, _))| *end);
        let events = [
            (finish, Event::Finish),
            (policy.next_timeout(), Event::PolicyTimeout),
            (self.next_lost_patience(), Event::LosePatience),
            (arrival.map(|request| request.arrival), Event::Arrive),
        ];
        let due = events
            .into_iter()
            .filter_map(|(at, event)| Some((at?, event)));
        // The first of equal times.
        let (at, event) = due.min_by_key(|(at, _)| *at)?;
        // A policy's timeout may have been due for a moment: rounding.
        Some((at.max(self.now), event))
    }

    fn next_lost_patience(&self) -> Option<Duration> {
        self.patient.peek().map(|Reverse((end, _))| *end)
    }

    fn happen(&mut self, event: Event, policy: &mut dyn Policy) {
        let now = self.now;
        match event {
            Event::Finish => {
                let Some(Reverse((_, id))) = self.running.pop() else {
                    return;
                };
                self.end(id, Outcome::Served);
                policy.release(id, Ended::Finished, now, &mut self.decisions);
            }
            Event::PolicyTimeout => policy.advance(now, &mut self.decisions),
            Event::LosePatience => {
                if let Some(Reverse((_, id))) = self.patient.pop() {
                    self.lose_patience(id, policy);
                }
            }
            Event::Arrive => {
                let id = self.next_arrival;
                self.next_arrival += 1;
                if self.workload.callers != Callers::Stay {
                    let end = self.workload.patience_ends(id);
                    self.patient.push(Reverse((end, id)));
                }
                self.open += 1;
                self.waiting_outside += 1;
                policy.arrive(self.seen(id), now, &mut self.decisions);
            }
        }
    }

    fn seen(&self, id: RequestId) -> Arrival {
        let request = &self.workload.requests[id];
        let says_so = self.workload.callers == Callers::LeaveAndSaySo;
        Arrival {
            id,
            level: request.level,
            tenant: request.tenant,
            input_tokens: request.input_tokens,
            deadline: says_so.then(|| self.workload.patience_ends(id)),
        }
    }

    fn lose_patience(&mut self, id: RequestId, policy: &mut dyn Policy) {
        match (self.phases[id], self.workload.until) {
            (Phase::Over, _) | (Phase::Runs, Until::Started) => {}
            (Phase::Outside, _) => {
                self.end(id, Outcome::Left);
                policy.leave(id, self.now, &mut self.decisions);
            }
            // Noticed, the work stops; else it goes on, though its caller has left.
            (Phase::WaitsInBackend | Phase::Runs, _) if self.workload.backend_notices => {
                self.end(id, Outcome::Left);
                policy.release(id, Ended::Cancelled, self.now, &mut self.decisions);
            }
            (Phase::WaitsInBackend | Phase::Runs, _) => self.decide(id, Outcome::Left),
        }
    }

    /// Does what the policy decided.
    fn carry_out(&mut self) {
        let mut decisions = std::mem::take(&mut self.decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Admit(id) => self.admit(id),
                Decision::Refuse(id) | Decision::Abort(id) => self.end(id, Outcome::Refused),
            }
        }
        // Kept for its memory.
        self.decisions = decisions;
    }

    fn admit(&mut self, id: RequestId) {
        assert_eq!(self.phases[id], Phase::Outside, "request {id}");
        self.waiting_outside -= 1;
        if self.busy < self.workload.slots {
            self.busy += 1;
            self.start(id);
        } else {
            self.phases[id] = Phase::WaitsInBackend;
            self.backend_queue.push_back(id);
        }
    }

    fn start(&mut self, id: RequestId) {
        let end = self.now + self.workload.requests[id].service;
        self.phases[id] = Phase::Runs;
        self.slots[id] = Some((self.now, end));
        self.running.push(Reverse((end, id)));
    }

    /// A request is over wherever it is, with this outcome unless its caller left before. Its slot goes to the next in the
    /// backend's queue.
    fn end(&mut self, id: RequestId, outcome: Outcome) {
        match self.phases[id] {
            Phase::Outside => self.waiting_outside -= 1,
            Phase::WaitsInBackend => self.backend_queue.retain(|&queued| queued != id),
            Phase::Runs => {
                let now = self.now;
                self.slots[id] = self.slots[id].map(|(start, _)| (start, now));
                match self.backend_queue.pop_front() {
                    Some(next) => self.start(next),
                    None => self.busy -= 1,
                }
            }
            Phase::Over => panic!("request {id} is over already"),
        }
        self.phases[id] = Phase::Over;
        self.open -= 1;
        self.decide(id, outcome);
    }

    fn decide(&mut self, id: RequestId, outcome: Outcome) {
        self.outcomes[id].get_or_insert((outcome, self.now));
    }

    /// Counts the idle time until `now`.
    fn account_idle(&mut self, now: Duration) {
        let idle = self.workload.slots - self.busy;
        let useful = idle.min(self.waiting_outside);
        self.idle_while_waiting += useful as f64 * (now - self.now).as_secs_f64();
    }

    fn into_run(self) -> Run {
        let record = |(outcome, slot): (Option<_>, _)| {
            let (outcome, decided) = outcome.expect("every request has an outcome");
            Record {
                outcome,
                decided,
                slot,
            }
        };
        let records = self.outcomes.into_iter().zip(self.slots).map(record);
        Run {
            records: records.collect(),
            idle_while_waiting: self.idle_while_waiting,
        }
    }
}
