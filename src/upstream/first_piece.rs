//! The wait for the first piece of an answer's body, before the answer's head is passed on.
//!
//! A body that breaks before its first byte would make an empty answer of the head. As long as the head is still here, the
//! client can get an error with a status instead, and a router can try another endpoint. The same holds for a stream whose
//! first event is an error.

use std::future::poll_fn;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::ForwardBody;
use super::failure::Failure;
use crate::http::is_event_stream;
use crate::openai::{ErrorForm, FirstEvent, refusal_in};
use crate::route::HeadAt;

/// The longest time for which the head of a stream, or of an error, waits for the first piece. The client of a stream may
/// watch for the head, and a router for an error. A client that is still sending may need the head before it goes on.
/// People do not notice a delay of 100 ms, and an endpoint that refuses its work after the head has mostly broken off by
/// then.
const HEAD_DELAY: Duration = Duration::from_millis(100);

/// Waits until the first piece of the answer's body is there. Returns the failure of an endpoint that broke off before.
///
/// The head of a successful answer is worth nothing without its body, so it waits for the first piece. That of an error, or
/// of a stream, waits for [`HEAD_DELAY`] at most. An answer of unknown length may be a stream of any type if its request has
/// yet to be sent, so `is_sent` is `false`.
pub(super) async fn first_piece(
    answer: &mut Response<ForwardBody>,
    endpoint: &str,
    is_sent: bool,
    is_post: bool,
) -> Result<(), Failure> {
    let has_length = answer.body().size_hint().exact().is_some();
    let waits =
        answer.status().is_success() && (has_length || (is_sent && !is_stream(answer.headers())));
    let limit = (!waits).then_some(HEAD_DELAY);
    let mut head_at = None;
    let first = poll_fn(|cx| {
        let first = answer.body_mut().poll_first(limit, cx);
        // Nearly always, the first piece has come together with the head, and the clock is not read.
        if first.is_pending() {
            head_at = answer.body().awaited_since();
        }
        first
    });
    if let Err(error) = first.await {
        tracing::warn!(endpoint, %error, "the endpoint broke off after the head of its answer");
        let name = endpoint.to_owned();
        return Err(match error.silence() {
            Some(limit) => Failure::Timeout(name, limit),
            None => Failure::Reset(name),
        });
    }
    if let Some(at) = head_at {
        answer.extensions_mut().insert(HeadAt(at));
    }
    first_event(answer, endpoint, is_post).await
}

/// Looks for an error in the beginning of the answer, and waits for the first event of a stream for [`HEAD_DELAY`] at most.
/// Returns the failure of an endpoint that answers a `POST` by a stream without any event.
async fn first_event(
    answer: &mut Response<ForwardBody>,
    endpoint: &str,
    is_post: bool,
) -> Result<(), Failure> {
    let status = answer.status();
    let Some(form) = ErrorForm::of(answer.headers()) else {
        return Ok(());
    };
    let mut end = None;
    let error = loop {
        let Some((beginning, is_over)) = answer.body().beginning() else {
            return Ok(());
        };
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            break refusal_in(&beginning);
        }
        if status != StatusCode::OK || beginning.is_empty() && !is_over {
            return Ok(()); // the wait for the first piece is over
        }
        match form.first_event(&beginning, is_over) {
            FirstEvent::Answer => return Ok(()),
            FirstEvent::Error(error) => break Some(error),
            FirstEvent::Missing if is_post => {
                tracing::warn!(endpoint, "the endpoint answered by an empty stream");
                return Err(Failure::Reset(endpoint.to_owned()));
            }
            FirstEvent::Missing => return Ok(()),
            FirstEvent::Awaited => {
                let end = *end.get_or_insert_with(|| Instant::now() + HEAD_DELAY);
                let further = poll_fn(|cx| answer.body_mut().poll_further(cx));
                match timeout_at(end, further).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(endpoint, %error, "the endpoint broke off before its first event");
                        return Err(Failure::Reset(endpoint.to_owned()));
                    }
                    Err(_) => return Ok(()),
                }
            }
        }
    };
    if let Some(error) = error {
        answer.extensions_mut().insert(error);
    }
    Ok(())
}

/// Returns `true` if an answer with these headers is a stream whose first message may come much later than its head.
fn is_stream(answer: &HeaderMap) -> bool {
    let kind = answer.get(CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    is_grpc || is_event_stream(answer)
}
