//! The stored requests of `[durable]`: depths, pauses, and the last failures.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::rows;
use crate::durable::Durable;

/// The longest time that the page waits for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of queues that are shown.
const SHOWN: usize = 50;

/// Returns the stored requests, or the reason why the store does not tell.
pub(super) async fn requests(durable: &Durable) -> Value {
    let read = async {
        tokio::try_join!(
            get(durable, "/admin/durable"),
            get(durable, "/admin/requests?status=failed&limit=10")
        )
    };
    match timeout(STORE_TIMEOUT, read).await {
        Ok(Ok((mut depths, failed))) => json!({
            "queues": queues(&depths),
            "pauses": depths["pauses"].take(),
            "failed": failures(&failed),
        }),
        Ok(Err(error)) => json!({ "error": error }),
        Err(_) => json!({ "error": "no answer within 2 s" }),
    }
}

/// Returns what an operator would get at `path`.
async fn get(durable: &Durable, path: &str) -> Result<Value, String> {
    let request = Request::get(path)
        .body(())
        .map_err(|error| error.to_string())?;
    let (head, ()) = request.into_parts();
    let response = durable.operator(&head, Body::empty()).await;
    let response = response.ok_or("there is no such page")?;
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let read: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    match (status.is_success(), read["error"]["message"].as_str()) {
        (true, _) => Ok(read),
        (false, Some(message)) => Err(message.to_owned()),
        (false, None) => Err(status.to_string()),
    }
}

fn queues(depths: &Value) -> Value {
    let queues = depths["queues"].as_array().into_iter().flatten();
    rows(queues.take(SHOWN).map(|depth| {
        let level = match &depth["priority"] {
            Value::String(name) => name.clone(),
            _ => depth["level"].to_string(),
        };
        let queue = depth["queue"].as_str().unwrap_or_default();
        let row = json!({
            "queue": queue,
            "level": level,
            "queued": depth["queued"],
            "running": depth["running"],
            "oldest_seconds": depth["oldest_seconds"],
        });
        (format!("{queue} {level}"), row)
    }))
}

fn failures(failed: &Value) -> Value {
    let failed = failed["data"].as_array().into_iter().flatten();
    rows(failed.map(|request| {
        let row = json!({
            "ended": request["ended_at"],
            "queue": request["queue"],
            "tenant": request["tenant"],
            "reason": request["reason"],
        });
        (request["id"].as_str().unwrap_or_default().to_owned(), row)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shown_by_name_and_level() {
        let depths = json!({ "queues": [
            { "queue": "m", "level": 2, "priority": "batch", "queued": 3, "running": 1, "oldest_seconds": 4.5 },
            { "queue": "m", "level": 7, "queued": 1, "running": 0, "oldest_seconds": null },
        ] });
        let queues = queues(&depths);
        assert_eq!(queues["m batch"]["queued"], 3);
        assert_eq!(queues["m 7"]["nth"], 1);
    }
}
