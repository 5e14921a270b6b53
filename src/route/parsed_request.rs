//! A request whose demand is known, and its way to a slot.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::RouteBody;
use super::attempt::{Admitted, Attempt};
use super::extract::DemandSource;
use super::request_body::BufferedBody;
use super::response_body::Routed;
use super::shared::RouterShared;
use super::shell::{Admission, pending_call};
use crate::admit::{RejectReason, Ticket};
use crate::endpoints::{Demand, Endpoints, Requirements, RouteError};
use crate::gate::{self, Reservation};
use crate::http::wants_stream;

/// A request without its body, and what it needs to be admitted.
pub(super) struct RequestHead<S> {
    pub(super) shared: Arc<RouterShared>,
    pub(super) inner: S,
    /// What `poll_ready` reserved.
    pub(super) reservation: Option<Reservation<Endpoints>>,
    pub(super) head: Parts,
    /// Since when its body has been read, if that was not there at once.
    pub(super) since: Option<Instant>,
    /// When it first arrived, if it is a retry.
    pub(super) first_arrival: Option<Instant>,
}

/// What a request asks, and its body.
pub(super) struct ParsedRequest<B> {
    pub(super) demand: Demand,
    pub(super) stream: bool,
    pub(super) body: ParsedBody<B>,
}

pub(super) enum ParsedBody<B> {
    Buffered(BufferedBody),
    Streamed(B),
}

impl<S> RequestHead<S> {
    /// Parses a request by its body, which was read.
    pub(super) fn parse_body<B>(
        &self,
        body: Result<Bytes, RouteError>,
    ) -> Result<ParsedRequest<B>, RouteError> {
        let bytes = body?;
        if let Some(encoding) = encoding(&self.head.headers) {
            return Err(RouteError::EncodedBody { encoding });
        }
        let (asked, model_at) = Requirements::read(&bytes)?;
        let model_at = Some(model_at);
        Ok(ParsedRequest {
            demand: self.shared.endpoints().demand(&asked),
            stream: asked.stream,
            body: ParsedBody::Buffered(BufferedBody { bytes, model_at }),
        })
    }

    /// Parses a request by its head. The body is streamed.
    pub(super) fn parse_head<B: Body>(&self, body: B) -> Result<ParsedRequest<B>, RouteError> {
        let DemandSource::Head(extract) = &self.shared.demand_from else {
            unreachable!("the body is read unless the head has the demand");
        };
        let asked = extract(&self.head)?;
        Ok(ParsedRequest {
            demand: self.shared.endpoints().demand(&asked),
            stream: asked.stream,
            body: match body.is_end_stream() {
                true => ParsedBody::Buffered(BufferedBody::default()), // can be sent again
                false => ParsedBody::Streamed(body),
            },
        })
    }

    pub(super) fn refuse<R>(self, why: RouteError) -> (Routed<R>, &'static str) {
        let headers = &self.head.headers;
        self.shared
            .refuse(headers, &RejectReason::Unservable(why), Duration::ZERO)
    }

    /// Takes a slot if there is one for the request, or queues it.
    pub(super) fn admit<B, R>(self, parsed: ParsedRequest<B>) -> Admitted<S, B>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let ParsedRequest {
            demand,
            stream,
            body,
        } = parsed;
        let (buffered, body) = match body {
            ParsedBody::Buffered(body) => (Some(body.clone()), body.unchanged()),
            ParsedBody::Streamed(body) => (None, RouteBody::streamed(body)),
        };
        let mut request = Request::from_parts(self.head, body);
        let tail = self.shared.state.tail();
        let mut inner = self.inner;
        let mut attempt = Attempt {
            shared: self.shared,
            body: buffered,
            waits: None,
        };
        let ticket = |attempt: &mut Attempt, headers: &HeaderMap| {
            let ticket = attempt
                .shared
                .ticket(headers, stream, self.since, self.first_arrival);
            attempt.waits = Some((ticket.priority, gate::now()));
            ticket
        };
        let Some(mut permit) = attempt.shared.state.gate.try_acquire(&demand) else {
            let ticket = ticket(&mut attempt, request.headers());
            let call = pending_call(attempt, inner, request);
            return Admission::waiting(call, ticket, gate::now(), demand, self.reservation, tail);
        };
        // Most inner services are ready at once: no waker and no ticket for them.
        let mut noop = Context::from_waker(Waker::noop());
        match inner.poll_ready(&mut noop) {
            Poll::Ready(Ok(())) => {
                attempt.prepare(&mut request, permit.lease_mut());
                return Admission::calling(inner.call(request), permit, tail);
            }
            Poll::Ready(Err(error)) => return Admission::failed(error, tail),
            Poll::Pending => {}
        }
        let ticket = ticket(&mut attempt, request.headers());
        let call = pending_call(attempt, inner, request);
        Admission::readying(call, &ticket, permit, tail)
    }
}

impl RouterShared {
    /// The ticket of a request that is queued now. Its own deadline counts from its first arrival.
    fn ticket(
        &self,
        headers: &HeaderMap,
        stream: bool,
        since: Option<Instant>,
        first_arrival: Option<Instant>,
    ) -> Ticket {
        let settings = self.state.settings();
        let now = gate::now();
        let arrived = since.or(first_arrival).unwrap_or(now);
        let mut ticket = settings.classifier.ticket(headers, arrived);
        ticket.arrival = Some(now);
        if let Some(first_arrival) = first_arrival {
            ticket.arrival = Some(first_arrival);
            ticket = ticket.requeued();
        }
        if settings.rejects_streams() && (stream || wants_stream(headers)) {
            return ticket.no_wait();
        }
        ticket
    }
}

/// The `Content-Encoding` of a body that is encoded.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let mut encodings = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = encodings.find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    encoding.map(|encoding| encoding.into_owned())
}
