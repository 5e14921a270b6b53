//! The callers: a request waits in the queue, and its caller for the answer.

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tower_triage::batch::{RequestQueue, Tokens, TooLarge};
use tower_triage::{Priority, RejectReason, Ticket};

use crate::workload::Request;

/// An item of the queue: the request, and the sender of its answer.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Result<Answer, RejectReason<TooLarge>>>,
}

/// So that its memory can be estimated before it is started.
impl Tokens for Job {
    fn prompt_tokens(&self) -> u32 {
        self.request.prompt_tokens
    }

    fn max_tokens(&self) -> u32 {
        self.request.max_tokens
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: u32,
    /// When the engine took the request.
    pub(crate) started: Instant,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    Answered(Answer),
    Rejected(RejectReason<TooLarge>),
    HungUp,
}

/// A caller: sends a request at its arrival, and gets an answer or a rejection, or hangs up.
pub(crate) async fn call(
    queue: RequestQueue<Job>,
    request: Request,
    priority: Priority,
    start: Instant,
) -> Outcome {
    let arrival = start + request.arrival;
    sleep_until(arrival).await;
    let mut ticket = Ticket::new(priority, arrival.into_std());
    if let Some(longest_wait) = request.timeout {
        ticket = ticket.timeout(longest_wait);
    }
    let answer = ask(&queue, request, ticket);
    match request.hangs_up_after {
        Some(limit) => timeout(limit, answer).await.unwrap_or(Outcome::HungUp),
        None => answer.await,
    }
}

/// A caller hangs up by dropping this future. The guard then removes the request from the queue at once. If it is being
/// served already, the engine finds the receiver of the answer closed.
async fn ask(queue: &RequestQueue<Job>, request: Request, ticket: Ticket) -> Outcome {
    let (answer, answered) = oneshot::channel();
    let id = match queue.enqueue(Job { request, answer }, ticket) {
        Ok(id) => id,
        // The job is returned, too, as `error.item`.
        Err(error) => return Outcome::Rejected(error.reason),
    };
    let _guard = queue.guard(id);
    let answer = answered
        .await
        .expect("the engine answers every job that it takes");
    answer.map_or_else(Outcome::Rejected, Outcome::Answered)
}
