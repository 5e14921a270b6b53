//! The requests and their arrivals, the same for every scheduler.

use std::time::Duration;

use fastrand::Rng;
use tower_triage::Priority;

/// The levels, highest first.
pub(crate) const LEVELS: [&str; 3] = ["high", "normal", "low"];

const REQUESTS: u32 = 1_200;
/// Requests per second, on average: about as many as the engine can serve at best.
const RATE: f64 = 4.15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// Since the start of the run.
    pub(crate) arrival: Duration,
    pub(crate) priority: Priority,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: u32,
    /// The tokens of the answer. The queue and the engine learn that when it ends.
    pub(crate) answer_tokens: u32,
    /// How long it may wait in the queue, if its caller sets a limit.
    pub(crate) timeout: Option<Duration>,
    /// When its caller hangs up, if it has no answer by then.
    pub(crate) hangs_up_after: Option<Duration>,
}

/// Mostly chat. Every seventh request has a document, and one has more than fits into the memory.
pub(crate) fn requests() -> Vec<Request> {
    let mut rng = Rng::with_seed(4);
    let mut arrival = Duration::ZERO;
    let mut requests = Vec::new();
    for n in 0..REQUESTS {
        arrival += gap(&mut rng);
        let prompt_tokens = match (n, n % 7) {
            (500, _) => 100_000,
            (_, 0) => rng.u32(2_000..8_000),
            _ => rng.u32(50..500),
        };
        let max_tokens = [128, 256, 512][rng.usize(..3)];
        requests.push(Request {
            arrival,
            priority: priority(&mut rng),
            prompt_tokens,
            max_tokens,
            answer_tokens: rng.u32(max_tokens / 4..=max_tokens),
            timeout: (n % 20 == 5).then_some(Duration::from_secs(3)),
            hangs_up_after: (n % 20 == 15).then(|| Duration::from_secs(rng.u64(1..20))),
        });
    }
    requests
}

/// Callers are independent of each other, so the gaps between arrivals are exponentially distributed. In whole
/// milliseconds, the resolution of Tokio's timers.
fn gap(rng: &mut Rng) -> Duration {
    let seconds = -(1.0 - rng.f64()).ln() / RATE;
    Duration::from_millis((seconds * 1_000.0) as u64)
}

fn priority(rng: &mut Rng) -> Priority {
    match rng.usize(..10) {
        0..2 => Priority(0),
        2..7 => Priority(1),
        _ => Priority(2),
    }
}
