//! The requests that are being served, and the last refusals.

use serde_json::{Value, json};

use super::rows;
use crate::live::{LiveRequest, Refusal};

/// The number of requests that are shown, the oldest ones.
const SHOWN: usize = 100;
/// The number of refusals that are shown, the latest ones.
const SHOWN_REFUSALS: usize = 50;

/// Returns the first of these requests, which are in order, and their number.
pub(super) fn live(requests: Vec<LiveRequest>) -> Value {
    let count = requests.len();
    let shown = requests.into_iter().take(SHOWN).map(|request| {
        let row = json!({
            "id": request.id,
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
        (request.key, row)
    });
    json!({ "count": count, "requests": rows(shown) })
}

pub(super) fn refusals(refusals: Vec<Refusal>) -> Value {
    let refusals = refusals.into_iter().take(SHOWN_REFUSALS).map(|refusal| {
        json!({
            "at": refusal.at,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_requests_are_shown_with_the_number_of_all() {
        let requests = (0..10_000).rev().map(|age_ms| LiveRequest {
            key: format!("k{age_ms}"),
            id: "same".to_owned(),
            age_ms,
            level: None,
            tenant: None,
            model: None,
            endpoint: None,
            phase: "waiting",
            wait_ms: 0,
            first_byte_ms: None,
            bytes: 0,
            tokens: None,
            tries: 0,
        });
        let live = live(requests.collect());
        assert_eq!(live["count"], 10_000);
        let shown = live["requests"].as_object().unwrap();
        assert_eq!(shown.len(), SHOWN);
        assert_eq!(shown["k9999"]["nth"], 0);
        assert_eq!(shown["k9900"]["nth"], 99);
        let row = &shown["k9990"];
        assert_eq!(
            (&row["id"], &row["age_ms"]),
            (&json!("same"), &json!(9_990))
        );
    }
}
