//! Responses of every layer that speaks HTTP: rejections, and the inner service's responses with their permits.

use std::time::Duration;

#[cfg(feature = "route")]
use bytes::Bytes;
#[cfg(feature = "route")]
use http_body::Body;

use super::{LayerState, ResponseOptions};
use crate::admit::{Capacity, RejectReason};
#[cfg(feature = "route")]
use crate::http::PermitBody;
use crate::http::{
    Rejection, ToRejection, insert_server_timing, is_event_stream, rejection, streaming_not_queued,
};
#[cfg(feature = "route")]
use crate::queue::QueueTime;

impl ResponseOptions {
    /// Returns `true` if the slot is held until the body of a response with these headers ends.
    #[inline(always)]
    pub(crate) fn hold_body(self, response: &http::HeaderMap) -> bool {
        self.contains(Self::HOLD_BODY)
            && !(self.contains(Self::EXCEPT_EVENTS) && is_event_stream(response))
    }
}

/// Puts the permit into the response's body, if the slot is held until the body ends.
#[cfg(feature = "route")]
#[inline(always)]
pub(crate) fn hold_in_body<R: Body<Data = Bytes>, G>(
    mut response: http::Response<R>,
    permit: Option<G>,
    waited: Duration,
    options: ResponseOptions,
) -> http::Response<PermitBody<R, G>> {
    insert_waited(&mut response, waited, options);
    let is_held = options.hold_body(response.headers()) && !response.body().is_end_stream();
    let permit = permit.filter(|_| is_held); // before the move, because a destructor in between would cost a copy
    response.map(|body| PermitBody::holding(body, permit))
}

/// The shortest wait that a response reports. A shorter wait is over sooner than its report is written.
const SHORTEST_TOLD: Duration = Duration::from_millis(1);

/// Tells how long the request waited: the layers around by an extension, and the client in `server-timing`.
#[cfg(feature = "route")]
#[inline]
pub(crate) fn insert_waited<B>(
    response: &mut http::Response<B>,
    waited: Duration,
    options: ResponseOptions,
) {
    if waited >= SHORTEST_TOLD {
        response.extensions_mut().insert(QueueTime(waited));
        insert_timing(response.headers_mut(), waited, options);
    }
}

/// Tells the client in `server-timing` how long its request waited.
#[inline]
pub(crate) fn insert_timing(
    headers: &mut http::HeaderMap,
    waited: Duration,
    options: ResponseOptions,
) {
    if waited >= SHORTEST_TOLD && options.contains(ResponseOptions::SERVER_TIMING) {
        insert_server_timing(headers, waited);
    }
}

impl<C: Capacity> LayerState<C> {
    /// Returns the rejection for this reason, with `Retry-After` if a retry may help. `wants_stream` is called only if
    /// the request must not wait, and `estimated_wait` only if the reason has no time of its own.
    pub(crate) fn rejection<N: ToRejection>(
        &self,
        reason: &RejectReason<N>,
        wants_stream: impl FnOnce() -> bool,
        estimated_wait: impl FnOnce() -> Option<Duration>,
    ) -> Rejection {
        let settings = self.settings();
        let status = settings.config.overload_status;
        let rejection = match reason {
            RejectReason::NotQueued if settings.rejects_streams() && wants_stream() => {
                streaming_not_queued(status)
            }
            _ => rejection(reason, status),
        };
        if !rejection.is_retryable() {
            return rejection;
        }
        let wait = match reason {
            RejectReason::Overloaded { retry_after } => Some(*retry_after),
            RejectReason::Shed => None, // no request waits, so a wait is never estimated
            RejectReason::Unservable(_) => rejection.retry_after().or_else(estimated_wait),
            _ => estimated_wait(),
        };
        let seconds = settings.retry_after(wait);
        rejection.with_retry_after(Duration::from_secs(seconds))
    }

    /// Writes a rejection in its client's protocol.
    #[cfg(feature = "route")]
    pub(crate) fn write_rejection(
        &self,
        rejection: Rejection,
        headers: &http::HeaderMap,
        waited: Duration,
    ) -> http::Response<Bytes> {
        let mut response = rejection.render_to(headers);
        insert_waited(&mut response, waited, self.options());
        response
    }
}
