//! Who asks what, and when: the same for every scheduler.

use std::time::Duration;

use fastrand::Rng;
use tower_triage::Priority;

/// The levels, highest first.
pub(crate) const LEVELS: [&str; 3] = ["high", "normal", "low"];

const REQUESTS: u32 = 1_200;
/// How many come in a second, on average: about as many as the engine can serve at best.
const RATE: f64 = 4.15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// Counted from the beginning.
    pub(crate) comes: Duration,
    pub(crate) priority: Priority,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: u32,
    /// How long the answer turns out to be. The queue and the engine find out when it ends.
    pub(crate) answer_tokens: u32,
    /// How long it may wait, if its caller said so.
    pub(crate) timeout: Option<Duration>,
    /// After what time its caller hangs up, if it has no answer by then.
    pub(crate) patience: Option<Duration>,
}

/// Mostly chat; every seventh request brings a document. One brings a whole library.
pub(crate) fn requests() -> Vec<Request> {
    let mut rng = Rng::with_seed(4);
    let mut comes = Duration::ZERO;
    let mut requests = Vec::new();
    for n in 0..REQUESTS {
        comes += gap(&mut rng);
        let prompt_tokens = match (n, n % 7) {
            (500, _) => 100_000,
            (_, 0) => rng.u32(2_000..8_000),
            _ => rng.u32(50..500),
        };
        let max_tokens = [128, 256, 512][rng.usize(..3)];
        requests.push(Request {
            comes,
            priority: priority(&mut rng),
            prompt_tokens,
            max_tokens,
            answer_tokens: rng.u32(max_tokens / 4..=max_tokens),
            timeout: (n % 20 == 5).then_some(Duration::from_secs(3)),
            patience: (n % 20 == 15).then(|| Duration::from_secs(rng.u64(1..20))),
        });
    }
    requests
}

/// Callers do not know of each other, so the gaps between them are exponentially distributed. Whole milliseconds,
/// because that is what Tokio's timers know.
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
