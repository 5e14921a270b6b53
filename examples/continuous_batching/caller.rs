//! The callers' side: a request waits in the queue, its caller for the answer.

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tower_triage::batch::{RequestQueue, Tokens, TooLarge};
use tower_triage::{Priority, RejectReason, Ticket};

use crate::workload::Request;

/// What waits in the queue: what the engine needs, and where the answer goes.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Result<Answer, RejectReason<TooLarge>>>,
}

/// So that its memory can be told before it is started.
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

/// What comes of a request: exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    Answered(Answer),
    Rejected(RejectReason<TooLarge>),
    HungUp,
}

/// A caller comes, asks, and gets an answer or a reason, or loses patience.
pub(crate) async fn call(
    queue: RequestQueue<Job>,
    request: Request,
    priority: Priority,
    start: Instant,
) -> Outcome {
    let arrival = start + request.comes;
    sleep_until(arrival).await;
    let mut ticket = Ticket::new(priority, arrival.into_std());
    if let Some(longest_wait) = request.timeout {
        ticket = ticket.timeout(longest_wait);
    }
    let answer = ask(&queue, request, ticket);
    match request.patience {
        Some(patience) => timeout(patience, answer).await.unwrap_or(Outcome::HungUp),
        None => answer.await,
    }
}

/// To hang up is to drop this. The guard then takes the request out of the queue at that instant; if it is being
/// served, the engine sees that nobody listens.
async fn ask(queue: &RequestQueue<Job>, request: Request, ticket: Ticket) -> Outcome {
    let (answer, answered) = oneshot::channel();
    let id = match queue.enqueue(Job { request, answer }, ticket) {
        Ok(id) => id,
        // Nothing is lost: `refused.item` is the job.
        Err(refused) => return Outcome::Rejected(refused.why),
    };
    let _guard = queue.guard(id);
    let answer = answered.await.expect("whoever takes a job answers it");
    answer.map_or_else(Outcome::Rejected, Outcome::Answered)
}
