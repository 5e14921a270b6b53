//! Reads a response completely, and passes its events on as they come.

use std::error::Error;
use std::pin::pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::mpsc::UnboundedSender;

use super::events::EventCutter;

/// The reason of a failure without a whole response.
pub(super) const SERVICE_FAILED: &str = "service_failed";

/// Reads the body of a response of at most `limit` bytes. If the body is a stream of events, each event also goes to
/// `events` as soon as it is complete.
///
/// # Errors
///
/// Returns a reason in one word if the body is larger or breaks off.
pub(super) async fn read_response<B>(
    response: Response<B>,
    limit: usize,
    events: UnboundedSender<Bytes>,
) -> Result<Response<Bytes>, &'static str>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let (head, body) = response.into_parts();
    // Readers of a stream would take the events of an error for an answer.
    let is_stream = head.status.is_success() && is_event_stream(&head.headers);
    let mut cutter = is_stream.then(EventCutter::default);
    // For other responses the sender is dropped here, so that the receiver ends at once.
    let events = is_stream.then_some(events);
    let on_event = |event| {
        if let Some(events) = &events {
            let _ = events.send(event); // without a receiver, the attempt is about to end
        }
    };
    let mut body = pin!(body);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: Box<dyn Error + Send + Sync> = error.into();
            tracing::debug!(error, "the response of a stored request broke off");
            SERVICE_FAILED
        })?;
        let Ok(mut data) = frame.into_data() else {
            continue; // skips trailers
        };
        if data.remaining() > limit - whole.len() {
            return Err("response_too_large");
        }
        let at = whole.len();
        whole.put(&mut data);
        if let Some(cutter) = &mut cutter {
            cutter.push(&whole[at..], on_event);
        }
    }
    if let Some(cutter) = &mut cutter {
        cutter.end(on_event);
    }
    Ok(Response::from_parts(head, whole.freeze()))
}

/// Returns `true` if a response with these headers is a stream of events.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    let media = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    media
        .trim_ascii()
        .eq_ignore_ascii_case(b"text/event-stream")
}
