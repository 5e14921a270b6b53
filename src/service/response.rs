//! Responses of every layer that speaks HTTP: rejections, and the inner service's responses with their permits.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;

use super::{LayerState, ResponseOptions};
use crate::admit::{Capacity, RejectReason};
use crate::http::{PermitBody, Rejection, ToRejection, insert_server_timing};
use crate::queue::QueueTime;

/// Returns the response with the permit in its body, if the slot is held until the body ends.
#[inline(always)]
pub(crate) fn hold_in_body<R: Body<Data = Bytes>, G>(
    mut response: http::Response<R>,
    permit: Option<G>,
    waited: Duration,
    options: ResponseOptions,
) -> http::Response<PermitBody<R, G>> {
    insert_waited(&mut response, waited, options);
    let is_held = options.contains(ResponseOptions::HOLD_BODY) && !response.body().is_end_stream();
    let permit = permit.filter(|_| is_held); // before the move, because a destructor in between would cost a copy
    response.map(|body| PermitBody::holding(body, permit))
}

/// The shortest wait that a response reports. A shorter wait is over sooner than its report is written.
const SHORTEST_TOLD: Duration = Duration::from_millis(1);

/// Reports the time that the request waited, to outer layers by an extension and to the client in `server-timing`.
#[inline]
pub(crate) fn insert_waited<B>(
    response: &mut http::Response<B>,
    waited: Duration,
    options: ResponseOptions,
) {
    if waited < SHORTEST_TOLD {
        return;
    }
    response.extensions_mut().insert(QueueTime(waited));
    if options.contains(ResponseOptions::SERVER_TIMING) {
        insert_server_timing(response.headers_mut(), waited);
    }
}

impl<C: Capacity> LayerState<C> {
    /// Returns the rejection for this reason, with `Retry-After` if a retry may help. `estimated_wait` is called only
    /// if the reason has no time of its own.
    pub(crate) fn rejection<N: ToRejection>(
        &self,
        reason: &RejectReason<N>,
        estimated_wait: impl FnOnce() -> Option<Duration>,
    ) -> Rejection {
        let rejection = reason.to_rejection();
        if !rejection.is_retryable() {
            return rejection;
        }
        let wait = match reason {
            RejectReason::Overloaded { retry_after } => Some(*retry_after),
            _ => estimated_wait(),
        };
        let seconds = self.retry_after(wait);
        rejection.with_retry_after(Duration::from_secs(seconds))
    }

    /// Writes a rejection in its client's protocol.
    pub(crate) fn write_rejection(
        &self,
        rejection: Rejection,
        headers: &http::HeaderMap,
        waited: Duration,
    ) -> http::Response<Bytes> {
        let mut response = rejection.into_response_to(headers);
        insert_waited(&mut response, waited, self.options());
        response
    }
}
