//! A language model that makes one token of every running sequence in each step. Its arithmetic is simulated; its
//! memory and its time are kept as a real one's would be.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_triage::batch::{Cost, KvCache};

use crate::caller::{Answer, Job};

/// A model of 8 billion parameters at half precision: 128 KiB of keys and values for each token.
pub(crate) const CACHE: KvCache = KvCache::new(32, 8, 128, 2);
/// What is left of the memory when the weights are loaded: room for 32,768 tokens.
pub(crate) const MEMORY: u64 = 4 << 30;
/// How many sequences one step can have.
pub(crate) const MAX_SEQUENCES: usize = 32;

#[derive(Default)]
pub(crate) struct Engine {
    running: Vec<Sequence>,
    in_use: u64,
    pub(crate) log: Log,
}

struct Sequence {
    job: Job,
    bytes: u64,
    started: Instant,
    tokens: u32,
}

/// What the engine did.
#[derive(Default)]
pub(crate) struct Log {
    /// How many sequences were started.
    pub(crate) started: usize,
    /// How many were left unfinished, because nobody listened any more.
    pub(crate) abandoned: usize,
    /// How much memory was in use from when on.
    pub(crate) memory: Vec<(Instant, u64)>,
}

impl Engine {
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// How many sequences may join.
    pub(crate) fn room(&self) -> usize {
        MAX_SEQUENCES - self.running.len()
    }

    /// How much memory those may take who join.
    pub(crate) fn memory_left(&self) -> u64 {
        MEMORY - self.in_use
    }

    /// They join the batch. Each is given the memory for the longest answer that it may have, so that none ever
    /// has to be thrown out.
    pub(crate) fn admit(&mut self, jobs: Vec<Job>) {
        let started = Instant::now();
        self.log.started += jobs.len();
        self.running.extend(jobs.into_iter().map(|job| Sequence {
            bytes: CACHE.cost(&job),
            job,
            started,
            tokens: 0,
        }));
        self.in_use = self.running.iter().map(|sequence| sequence.bytes).sum();
        assert!(self.in_use <= MEMORY && self.running.len() <= MAX_SEQUENCES);
    }

    /// One token more for everyone. Who has ended is answered, and its memory is free.
    pub(crate) async fn step(&mut self) {
        self.log.memory.push((Instant::now(), self.in_use));
        sleep(step_time(&self.running)).await;
        for sequence in &mut self.running {
            sequence.tokens += 1;
        }
        for ended in self.running.extract_if(.., |sequence| sequence.has_ended()) {
            self.in_use -= ended.bytes;
            let Sequence {
                job,
                started,
                tokens,
                ..
            } = ended;
            let is_told = job.answer.send(Ok(Answer { tokens, started }));
            self.log.abandoned += usize::from(is_told.is_err());
        }
        self.log.memory.push((Instant::now(), self.in_use));
    }
}

impl Sequence {
    fn has_ended(&self) -> bool {
        self.tokens == self.job.request.answer_tokens || self.job.answer.is_closed()
    }
}

/// To read the weights takes most of a step, however many share it: that is why there are batches. A sequence's
/// first step reads its prompt.
fn step_time(running: &[Sequence]) -> Duration {
    let prompts = running.iter().filter(|sequence| sequence.tokens == 0);
    let prompt_tokens: u32 = prompts.map(|s| s.job.request.prompt_tokens).sum();
    let millis = 20 + running.len() as u64 / 4 + u64::from(prompt_tokens) / 20;
    Duration::from_millis(millis)
}
