//! The wait for the first piece of an answer's body, before the answer's head is passed on.
//!
//! A body that breaks before its first byte would make an empty answer of the head. As long as the head is still here, the
//! client can get an error with a status instead, and a router can try another endpoint.

use std::future::poll_fn;
use std::time::Duration;

use http::Response;
use http_body::Body;

use super::ForwardBody;
use super::failure::Failure;
use crate::route::HeadAt;

/// The longest time for which the head of a stream, or of an error, waits for the first piece. The client of a stream may
/// watch for the head, and a router for an error. People do not notice a delay of 100 ms, and an endpoint that refuses its
/// work after the head has mostly broken off by then.
const HEAD_DELAY: Duration = Duration::from_millis(100);

/// Waits until the first piece of the answer's body is there. Returns the failure of an endpoint that broke off before.
///
/// A successful answer of known length is whole at the endpoint, so its first piece follows at once and its head waits for
/// it. The head of any other answer waits for [`HEAD_DELAY`] at most.
pub(super) async fn first_piece(
    answer: &mut Response<ForwardBody>,
    endpoint: &str,
) -> Result<(), Failure> {
    let is_whole = answer.status().is_success() && answer.body().size_hint().exact().is_some();
    let limit = (!is_whole).then_some(HEAD_DELAY);
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
    Ok(())
}
