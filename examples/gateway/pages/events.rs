//! The page `/admin/events`: what happens to models, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use http::Response;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower_triage::swap::{SwapEvent, SwapEvents};

/// How often a comment is sent while there is no event, so that a peer that is gone is noticed.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// A stream of `events` that ends at `closing`. Without events it has only comments.
pub(super) fn page(events: Option<SwapEvents>, closing: CancellationToken) -> Response<Body> {
    let stream = stream::unfold((events, closing), async |(mut events, closing)| {
        let next = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        let event = closing.run_until_cancelled(next).await??;
        Some((Ok::<_, Infallible>(sent(&event)), (events, closing)))
    });
    let keep_alive = KeepAlive::new().interval(COMMENT_INTERVAL);
    Sse::new(stream).keep_alive(keep_alive).into_response()
}

fn sent(event: &SwapEvent) -> Event {
    let data = json!({
        "model": &*event.model,
        "state": event.state.as_str(),
        "progress": event.progress,
        "error": event.error,
    });
    Event::default().data(data.to_string())
}
