//! The scheduler, which decides when requests join the batch: what this simulation is about.

use tower_triage::batch::RequestQueue;

use crate::caller::Job;
use crate::engine::{Engine, Log};

/// Before every step, the requests that fit join. Ends when the queue is closed and all requests are answered.
pub(crate) async fn continuous(queue: RequestQueue<Job>) -> Log {
    let mut engine = Engine::default();
    loop {
        // An idle engine sleeps until a request waits.
        if engine.is_idle() && !queue.wait_nonempty().await {
            return engine.log;
        }
        // `take_batch` never waits, so that a busy engine loses no time.
        engine.admit(queue.take_batch(engine.free_sequences(), engine.memory_left()));
        // The caller of the only request may have hung up meanwhile.
        if !engine.is_idle() {
            engine.step().await;
        }
    }
}

/// A batch is filled once, and runs until its longest sequence ends. The places of the others stay empty meanwhile.
pub(crate) async fn static_batches(queue: RequestQueue<Job>) -> Log {
    let mut engine = Engine::default();
    while queue.wait_nonempty().await {
        engine.admit(queue.take_batch(engine.free_sequences(), engine.memory_left()));
        while !engine.is_idle() {
            engine.step().await;
        }
    }
    engine.log
}
