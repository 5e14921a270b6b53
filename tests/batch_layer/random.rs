//! Random test: schedules, reproducible by their seeds, are compared with a small model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use fastrand::Rng;
use tokio::task::JoinHandle;

const MAX_COUNT: usize = 4;
const BUDGET: u64 = 10;
/// In ms. Even, like the instants of arrivals; deadlines are odd.
const DELAY: u64 = 6;

#[test]
fn random_schedules_agree_with_a_model() {
    for seed in 0..200 {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { Driver::new(seed).run().await });
    }
}

struct Driver {
    rng: Rng,
    engine: Engine,
    service: Service,
    is_ready: bool,
    millis: u64,
    arrived: u32,
    callers: BTreeMap<u32, Caller>,
    /// The waiting requests, by level, then by arrival.
    waiting: BTreeSet<(u8, u32)>,
    /// The calls of the engine that the model expects.
    calls: Vec<(u64, Vec<u32>)>,
    finished: usize,
}

struct Caller {
    sent: JoinHandle<Result<u32, Error>>,
    level: u8,
    cost: u64,
    arrival: u64,
    deadline: Option<u64>,
    expects: Option<Expects>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Expects {
    Answer,
    Failure,
    DeadlinePassed,
}

impl Driver {
    fn new(seed: u64) -> Self {
        let engine = Engine::manual();
        Self {
            rng: Rng::with_seed(seed),
            service: layer(MAX_COUNT, millis(DELAY))
                .cost(BUDGET, |job: &Job| job.cost)
                .room(config(1000))
                .layer(engine.service()),
            engine,
            is_ready: true,
            millis: 0,
            arrived: 0,
            callers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            calls: Vec::new(),
            finished: 0,
        }
    }

    async fn run(mut self) {
        for _ in 0..150 {
            match self.rng.u8(..16) {
                0..6 => self.arrive(),
                6 => self.cancel(),
                7 if self.is_ready => self.set(Readiness::Busy),
                7..9 => self.set(Readiness::Ready),
                9..11 => self.finish(),
                _ => self.pass(2).await,
            }
            self.check().await;
        }
        self.set(Readiness::Ready);
        self.pass(2 * DELAY).await;
        while self.finished < self.calls.len() {
            self.finish();
            self.check().await;
        }
        assert!(self.callers.is_empty(), "a caller still waits");
    }

    fn arrive(&mut self) {
        self.arrived += 1;
        let number = self.arrived;
        let (level, cost) = (self.rng.u8(..2), self.rng.u64(..=BUDGET));
        let timeout = self.rng.bool().then(|| 2 * self.rng.u64(..10) + 1);
        let mut job = job(number).costs(cost);
        job.ticket.priority = tower_triage::Priority(level);
        if let Some(timeout) = timeout {
            job = job.within(millis(timeout));
        }
        let caller = Caller {
            sent: tokio::spawn(self.service.clone().oneshot(job)),
            level,
            cost,
            arrival: self.millis,
            deadline: timeout.map(|timeout| self.millis + timeout),
            expects: None,
        };
        self.callers.insert(number, caller);
        self.waiting.insert((level, number));
    }

    fn cancel(&mut self) {
        let Some(number) = self.rng.choice(self.callers.keys().copied()) else {
            return;
        };
        let caller = self.callers.remove(&number).unwrap();
        caller.sent.abort();
        self.waiting.remove(&(caller.level, number));
    }

    fn set(&mut self, readiness: Readiness) {
        self.is_ready = readiness == Readiness::Ready;
        self.engine.set(readiness);
    }

    fn finish(&mut self) {
        if self.finished == self.calls.len() {
            return;
        }
        let fails = self.rng.u8(..8) == 0;
        self.engine.finish_with(|batch| match fails {
            true => Err("out of memory"),
            false => Ok(batch.iter().map(|n| 2 * n).collect()),
        });
        for number in &self.calls[self.finished].1 {
            if let Some(caller) = self.callers.get_mut(number) {
                let expects = if fails {
                    Expects::Failure
                } else {
                    Expects::Answer
                };
                assert_eq!(caller.expects.replace(expects), None);
            }
        }
        self.finished += 1;
    }

    async fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            advance(Duration::from_millis(1)).await;
            self.millis += 1;
            for caller in self.callers.iter_mut() {
                let (&number, caller) = caller;
                let is_late = caller.deadline.is_some_and(|end| end <= self.millis);
                if is_late && self.waiting.remove(&(caller.level, number)) {
                    caller.expects = Some(Expects::DeadlinePassed);
                }
            }
            self.check().await;
        }
    }

    fn is_due(&self) -> bool {
        let waiting = || self.waiting.iter().map(|(_, number)| &self.callers[number]);
        let cost: u64 = waiting().map(|caller| caller.cost).sum();
        let oldest = waiting().map(|caller| caller.arrival).min();
        let is_old = oldest.is_some_and(|oldest| oldest + DELAY <= self.millis);
        is_old || self.waiting.len() >= MAX_COUNT || cost >= BUDGET
    }

    fn batch(&mut self) -> Vec<u32> {
        let mut left = BUDGET;
        let mut batch = Vec::new();
        while batch.len() < MAX_COUNT
            && let Some(&(level, number)) = self.waiting.first()
            && let cost = self.callers[&number].cost
            && cost <= left
        {
            left -= cost;
            self.waiting.remove(&(level, number));
            batch.push(number);
        }
        batch
    }

    async fn check(&mut self) {
        settle().await;
        while self.is_ready && self.is_due() {
            let batch = self.batch();
            self.calls.push((self.millis, batch));
        }
        assert_eq!(self.engine.calls(), self.calls);
        let numbers: Vec<_> = self.callers.keys().copied().collect();
        for number in numbers {
            let caller = &self.callers[&number];
            let is_done = caller.sent.is_finished();
            assert_eq!(
                is_done,
                caller.expects.is_some(),
                "{number} at {}: {:?}",
                self.millis,
                caller.expects
            );
            let Some(expects) = caller.expects else {
                continue;
            };
            let caller = self.callers.remove(&number).unwrap();
            let got = match caller.sent.await.unwrap() {
                Ok(answer) if answer == 2 * number => Expects::Answer,
                Err(BatchError::Inner(_)) => Expects::Failure,
                Err(BatchError::Rejected(RejectReason::DeadlinePassed)) => Expects::DeadlinePassed,
                other => panic!("{other:?}"),
            };
            assert_eq!(got, expects);
        }
    }
}
