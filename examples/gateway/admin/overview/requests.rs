//! The requests that are being served, and the last refusals.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::rows;
use crate::live::{LiveRequest, Refusal};

/// The number of requests that are shown, the oldest ones.
const SHOWN: usize = 100;
/// The number of refusals that are shown, the latest ones.
const SHOWN_REFUSALS: usize = 50;

pub(super) fn live(mut requests: Vec<LiveRequest>) -> Value {
    let count = requests.len();
    requests.sort_by_key(|request| std::cmp::Reverse(request.age_ms));
    requests.truncate(SHOWN);
    let shown = requests.into_iter().map(|request| {
        let row = json!({
            "age_ms": request.age_ms,
            "level": request.level,
            "tenant": request.tenant,
            "model": request.model,
            "endpoint": request.endpoint,
            "phase": request.phase,
            "wait_ms": request.wait_ms,
            "first_byte_ms": request.first_byte_ms,
            "bytes": request.bytes,
            "tokens": request.tokens,
            "tries": request.tries,
        });
        (request.id, row)
    });
    json!({ "count": count, "requests": rows(shown) })
}

pub(super) fn refusals(refusals: Vec<Refusal>) -> Value {
    let refusals = refusals.into_iter().take(SHOWN_REFUSALS).map(|refusal| {
        json!({
            "at_ms": milliseconds(refusal.at),
            "id": refusal.id,
            "status": refusal.status,
            "code": refusal.code,
            "level": refusal.level,
            "tenant": refusal.tenant,
            "model": refusal.model,
            "endpoint": refusal.endpoint,
        })
    });
    refusals.collect()
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_requests_are_shown_with_the_number_of_all() {
        let requests = (0..10_000).map(|age_ms| LiveRequest {
            id: format!("r{age_ms}"),
            age_ms,
            level: None,
            tenant: None,
            model: None,
            endpoint: None,
            phase: "waiting",
            wait_ms: None,
            first_byte_ms: None,
            bytes: 0,
            tokens: None,
            tries: 0,
        });
        let live = live(requests.collect());
        assert_eq!(live["count"], 10_000);
        let shown = live["requests"].as_object().unwrap();
        assert_eq!(shown.len(), SHOWN);
        assert_eq!(shown["r9999"]["nth"], 0);
        assert_eq!(shown["r9900"]["nth"], 99);
    }
}
