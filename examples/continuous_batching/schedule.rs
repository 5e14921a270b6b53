//! Who joins the batch when: what this example is about.

use tower_triage::batch::RequestQueue;

use crate::caller::Job;
use crate::engine::{Engine, Log};

/// At every step, whoever fits joins. Ends when the queue is closed and everyone has been answered.
pub(crate) async fn continuous(queue: RequestQueue<Job>) -> Log {
    let mut engine = Engine::default();
    loop {
        // An idle engine sleeps until there is something to do.
        if engine.is_idle() && !queue.wait_nonempty().await {
            return engine.log;
        }
        // A busy one looks in passing. That never waits.
        engine.admit(queue.take_batch(engine.room(), engine.memory_left()));
        // The only one who waited may have hung up meanwhile.
        if !engine.is_idle() {
            engine.step().await;
        }
    }
}

/// A batch is filled once, and runs until its longest member ends. The others' places stay empty meanwhile.
pub(crate) async fn one_batch_after_the_other(queue: RequestQueue<Job>) -> Log {
    let mut engine = Engine::default();
    while queue.wait_nonempty().await {
        engine.admit(queue.take_batch(engine.room(), engine.memory_left()));
        while !engine.is_idle() {
            engine.step().await;
        }
    }
    engine.log
}
