//! The page of live requests and of the last refusals, and the action that cancels a request.

use axum::body::Body;
use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;

use super::{error, json};
use crate::live::{Live, LiveRequest, Named, Refusal};

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

/// Cancels the live request that `path` names by its key, or by its id if no other one has that. `None` if there is none.
pub(super) fn cancel(live: &Live, path: &str) -> Option<Response<Body>> {
    let path = path.strip_prefix("/admin/")?.strip_suffix("/cancel")?;
    let decoded = |name| percent_decode_str(name).decode_utf8().ok();
    let named = match path.split_once('/')? {
        ("live", key) => live.cancel_by_key(&decoded(key)?),
        ("requests", id) => live.cancel_by_id(&decoded(id)?),
        _ => return None,
    };
    Some(match named {
        Named::Cancelled { id } => {
            tracing::info!(request = id, "an operator cancels the request");
            json(&json!({ "id": id, "status": "canceled" }))
        }
        Named::Several { keys } => {
            let message = format!(
                "{} requests have this id: POST to /admin/live/KEY/cancel with the key of one of them, out of {}",
                keys.len(),
                keys.join(", ")
            );
            error(StatusCode::CONFLICT, "ambiguous_request", message)
        }
        Named::Nobody => return None,
    })
}
