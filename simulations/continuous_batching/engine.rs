//! A simulated language model: each step makes one token of every running sequence, and takes as much time and memory as
//! a real one would.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_triage::batch::{Cost, KvCache};

use crate::caller::{Answer, Job};

/// A model of 8 billion parameters at half precision: 128 KiB of keys and values for each token.
pub(crate) const CACHE: KvCache = KvCache::new(32, 8, 128, 2);
/// The memory that the weights leave, in bytes: enough for 32,768 tokens.
pub(crate) const MEMORY: u64 = 4 << 30;
/// The most sequences of one step.
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

/// The record of a run.
#[derive(Default)]
pub(crate) struct Log {
    /// The number of sequences that were started.
    pub(crate) started: usize,
    /// The number of sequences that were not finished, because their callers had hung up.
    pub(crate) abandoned: usize,
    /// The bytes in use, each from that instant on.
    pub(crate) memory: Vec<(Instant, u64)>,
}

impl Engine {
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// How many more sequences may join.
    pub(crate) fn free_sequences(&self) -> usize {
        MAX_SEQUENCES - self.running.len()
    }

    /// How much memory, in bytes, they may use.
    pub(crate) fn memory_left(&self) -> u64 {
        MEMORY - self.in_use
    }

    /// Adds jobs to the batch. Each gets the memory for the longest answer that it allows, so that none ever has to be
    /// evicted.
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

    /// Makes one more token of every sequence. Answers those that have ended, and frees their memory.
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
            let sent = job.answer.send(Ok(Answer { tokens, started }));
            self.log.abandoned += usize::from(sent.is_err()); // the caller hung up
        }
        self.log.memory.push((Instant::now(), self.in_use));
    }
}

impl Sequence {
    fn has_ended(&self) -> bool {
        self.tokens == self.job.request.answer_tokens || self.job.answer.is_closed()
    }
}

/// Reading the weights takes 20 ms, however many sequences share the step: that is why there are batches. The first step
/// of a sequence reads its prompt, at 20 tokens per ms.
fn step_time(running: &[Sequence]) -> Duration {
    let prompts = running.iter().filter(|sequence| sequence.tokens == 0);
    let prompt_tokens: u32 = prompts.map(|s| s.job.request.prompt_tokens).sum();
    let millis = 20 + running.len() as u64 / 4 + u64::from(prompt_tokens) / 20;
    Duration::from_millis(millis)
}
