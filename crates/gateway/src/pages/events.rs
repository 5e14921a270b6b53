//! The page `/admin/events`: what happens to models, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use http::Response;
use serde::Serialize;
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

#[derive(Serialize)]
struct Data<'a> {
    model: &'a str,
    /// From now on.
    state: &'static str,
    /// Why it could not be started, or has ended by itself.
    error: Option<&'a str>,
}

fn sent(event: &SwapEvent) -> Event {
    let data = Data {
        model: &event.model,
        state: event.state.as_str(),
        error: event.error.as_deref(),
    };
    Event::default()
        .json_data(data)
        .expect("strings and numbers serialize to JSON")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn comments_are_sent_while_nothing_happens() {
        let closing = CancellationToken::new();
        let mut page = page(None, closing.clone());
        for _ in 0..2 {
            let frame = page.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), ":\n\n");
        }
        closing.cancel();
        assert!(page.body_mut().frame().await.is_none());
    }
}
