//! One workload, served in one way.

use std::time::Duration;

use tokio::time::Instant;
use tower_triage::batch::{OnOversize, RequestQueue};
use tower_triage::{Priority, PriorityLevels, WaitingRoomConfig};

use crate::caller::{Answer, Job, Outcome, call};
use crate::engine::{CACHE, Log, MEMORY};
use crate::schedule::{continuous, one_batch_after_the_other};
use crate::workload::{LEVELS, Request, requests};

/// A way to serve them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Whether requests join a batch that is running.
    is_continuous: bool,
    /// Whether the queue is told of priorities.
    has_priorities: bool,
    misfit: OnOversize,
}

const PLANS: [Plan; 4] = [
    Plan {
        name: "static, first come",
        is_continuous: false,
        has_priorities: false,
        misfit: OnOversize::Stop,
    },
    Plan {
        name: "continuous, first come",
        is_continuous: true,
        has_priorities: false,
        misfit: OnOversize::Stop,
    },
    Plan {
        name: "continuous, priorities",
        is_continuous: true,
        has_priorities: true,
        misfit: OnOversize::Stop,
    },
    Plan {
        name: "continuous, priorities, skip",
        is_continuous: true,
        has_priorities: true,
        // Most wait less, and who is large waits longer, however urgent: memory that it waits for is given away.
        misfit: OnOversize::Backfill { max_overtakes: 8 },
    },
];

/// What came of it.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) start: Instant,
    pub(crate) outcomes: Vec<(Request, Outcome)>,
    pub(crate) log: Log,
    /// Until the last request had its outcome.
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
        false => tokio::spawn(one_batch_after_the_other(queue.clone())),
    };
    let start = Instant::now();
    let call = |&request| tokio::spawn(call(queue.clone(), request, plan.level(request), start));
    let callers: Vec<_> = requests.iter().map(call).collect();
    let mut outcomes = Vec::new();
    for (&request, caller) in requests.iter().zip(callers) {
        outcomes.push((request, caller.await.expect("a caller panicked")));
    }
    let took = start.elapsed();
    // The engine is told that nobody will come any more.
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
        let mut room = WaitingRoomConfig::default();
        // As many chairs as there are requests, so that every plan has the same to do. A server would have fewer,
        // and a `max_wait`: who comes to a full room should know at once.
        room.max_size = max_size;
        room.max_wait = None;
        room.levels = PriorityLevels::new(LEVELS, "normal").expect("good names");
        RequestQueue::<Job>::builder(room)
            .cost(MEMORY, CACHE)
            .on_oversize(self.misfit)
            // Who has waited too long is told why. If nobody listens any more, that is all the same.
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
    /// Every request had one outcome; callers, queue and engine agree on which.
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
            "who left the queue was not served"
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

    /// Tokens of answers per second.
    pub(crate) fn throughput(&self) -> f64 {
        let tokens: u32 = self.answers().map(|(_, answer)| answer.tokens).sum();
        f64::from(tokens) / self.took.as_secs_f64()
    }

    /// How long those of a level waited who were answered, the shortest wait first.
    pub(crate) fn waits(&self, level: Priority) -> Vec<Duration> {
        let answers = self.answers();
        let of_level = answers.filter(|(request, _)| request.priority == level);
        let wait =
            |request: &Request, answer: &Answer| answer.started - (self.start + request.comes);
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
