//! The page of live requests and of the last refusals, and the action that cancels a request.

use axum::body::Body;
use http::Response;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;

use super::json;
use crate::live::{Live, LiveRequest, Refusal};

/// The most requests that the page lists.
const LISTED: usize = 1_000;

#[derive(Serialize)]
struct Page {
    /// The number of live requests.
    count: usize,
    /// The oldest of them, oldest first.
    requests: Vec<LiveRequest>,
    /// The last refusals, newest first.
    refusals: Vec<Refusal>,
}

pub(super) fn page(live: &Live) -> Response<Body> {
    let mut requests = live.snapshot();
    let count = requests.len();
    requests.truncate(LISTED);
    json(&Page {
        count,
        requests,
        refusals: live.refusals(),
    })
}

/// Cancels the live request that `path` names. `None` if there is none.
pub(super) fn cancel(live: &Live, path: &str) -> Option<Response<Body>> {
    let id = path
        .strip_prefix("/admin/requests/")?
        .strip_suffix("/cancel")?;
    let id = percent_decode_str(id).decode_utf8().ok()?;
    if !live.cancel(&id) {
        return None;
    }
    tracing::info!(request = %id, "an operator cancels the request");
    Some(json(&json!({ "id": id, "status": "canceled" })))
}
