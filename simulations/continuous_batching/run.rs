//! The runs: one workload, served in four ways.

use std::time::Duration;

use tokio::time::Instant;
use tower_triage::batch::{OnOversize, RequestQueue};
use tower_triage::{Priority, PriorityLevels, WaitingRoomConfig};

use crate::caller::{Answer, Job, Outcome, call};
use crate::engine::{CACHE, Log, MEMORY};
use crate::schedule::{continuous, static_batches};
use crate::workload::{LEVELS, Request, requests};

/// A way to serve the requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Whether requests join a running batch.
    is_continuous: bool,
    /// Whether tickets have the requests' priorities.
    has_priorities: bool,
    on_oversize: OnOversize,
}

const PLANS: [Plan; 4] = [
    Plan {
        name: "static, first come",
        is_continuous: false,
        has_priorities: false,
        on_oversize: OnOversize::Stop,
    },
    Plan {
        name: "continuous, first come",
        is_continuous: true,
        has_priorities: false,
        on_oversize: OnOversize::Stop,
    },
    Plan {
        name: "continuous, priorities",
        is_continuous: true,
        has_priorities: true,
        on_oversize: OnOversize::Stop,
    },
    Plan {
        name: "continuous, backfill",
        is_continuous: true,
        has_priorities: true,
        // Most requests wait less, but large ones wait longer, because others use the memory that they wait for.
        on_oversize: OnOversize::Backfill { max_overtakes: 8 },
    },
];

/// A finished run.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) start: Instant,
    pub(crate) outcomes: Vec<(Request, Outcome)>,
    pub(crate) log: Log,
    /// Until the last request ended.
    pub(crate) took: Duration,
}

pub(crate) async fn all() -> Vec<Run> {
    let requests = requests();
    let mut runs = Vec::new();
    for plan in PLANS {
        runs.push(run(plan, &requests).await);
    }
    runs
}

async fn run(plan: Plan, requests: &[Request]) -> Run {
    let queue = plan.queue(requests.len());
    let engine = match plan.is_continuous {
        true => tokio::spawn(continuous(queue.clone())),
        false => tokio::spawn(static_batches(queue.clone())),
    };
    let start = Instant::now();
    let call = |&request| tokio::spawn(call(queue.clone(), request, plan.level(request), start));
    let callers: Vec<_> = requests.iter().map(call).collect();
    let mut outcomes = Vec::new();
    for (&request, caller) in requests.iter().zip(callers) {
        outcomes.push((request, caller.await.expect("a caller panicked")));
    }
    let took = start.elapsed();
    // Ends the engine's task once the queue is empty.
    queue.drain();
    let log = engine.await.expect("the engine panicked");
    let run = Run {
        plan,
        start,
        outcomes,
        log,
        took,
    };
    run.check(&queue);
    run
}

impl Plan {
    fn queue(&self, max_size: usize) -> RequestQueue<Job> {
        let mut config = WaitingRoomConfig::default();
        // Large enough for all requests, so that every plan has the same to do. A server would have a smaller one and a
        // `max_wait`, so that requests are rejected early under overload.
        config.max_size = max_size;
        config.max_wait = None;
        config.levels = PriorityLevels::new(LEVELS, "normal").expect("valid names");
        RequestQueue::<Job>::builder(config)
            .cost(MEMORY, CACHE)
            .on_oversize(self.on_oversize)
            // Sends the reason to the caller, which may have hung up.
            .on_rejected(|job, why| _ = job.answer.send(Err(why)))
            .build()
    }

    fn level(&self, request: Request) -> Priority {
        match self.has_priorities {
            true => request.priority,
            false => Priority::HIGHEST,
        }
    }
}

impl Run {
    /// Every request has one outcome, on which callers, queue and engine agree.
    fn check(&self, queue: &RequestQueue<Job>) {
        let counts = queue.stats();
        let answered = self.answers().count();
        let hung_up = self.count(|outcome| matches!(outcome, Outcome::HungUp));
        let rejected = self.count(|outcome| matches!(outcome, Outcome::Rejected(_)));
        let Log {
            started, abandoned, ..
        } = self.log;
        assert_eq!(answered + hung_up + rejected, self.outcomes.len());
        assert_eq!(
            started,
            answered + abandoned,
            "requests that left the queue were not served"
        );
        assert_eq!(counts.cancelled, (hung_up - abandoned) as u64);
        assert_eq!(counts.rejected(), rejected as u64);
        assert!(queue.is_empty());
    }

    pub(crate) fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        let outcomes = self.outcomes.iter();
        outcomes.filter(|(_, outcome)| is(outcome)).count()
    }

    pub(crate) fn answers(&self) -> impl Iterator<Item = (&Request, &Answer)> {
        let outcomes = self.outcomes.iter();
        outcomes.filter_map(|(request, outcome)| match outcome {
            Outcome::Answered(answer) => Some((request, answer)),
            _ => None,
        })
    }

    /// Answered tokens per second.
    pub(crate) fn throughput(&self) -> f64 {
        let tokens: u32 = self.answers().map(|(_, answer)| answer.tokens).sum();
        f64::from(tokens) / self.took.as_secs_f64()
    }

    /// The waits of answered requests of a level, the shortest first.
    pub(crate) fn waits(&self, level: Priority) -> Vec<Duration> {
        let answers = self.answers();
        let of_level = answers.filter(|(request, _)| request.priority == level);
        let wait =
            |request: &Request, answer: &Answer| answer.started - (self.start + request.arrival);
        let mut waits: Vec<Duration> = of_level.map(|(r, a)| wait(r, a)).collect();
        waits.sort();
        waits
    }

    /// The share of the memory that was in use, on average over each interval.
    pub(crate) fn memory(&self, interval: Duration) -> Vec<f64> {
        let intervals = self.took.div_duration_f64(interval).ceil();
        let mut shares = vec![0.0; intervals as usize];
        for (&(from, bytes), &(to, _)) in self.log.memory.iter().zip(self.log.memory.iter().skip(1))
        {
            let share = bytes as f64 / MEMORY as f64;
            let (mut from, to) = (from - self.start, to - self.start);
            while from < to {
                let nth = (from.as_nanos() / interval.as_nanos()) as u32;
                let end = to.min(interval * (nth + 1));
                shares[nth as usize] += share * (end - from).div_duration_f64(interval);
                from = end;
            }
        }
        shares
    }
}
