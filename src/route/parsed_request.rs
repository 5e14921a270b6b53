//! A parsed request: its demand is known, and it can acquire a slot.

use std::sync::Arc;
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
use crate::admit::{RejectReason, Ticket};
use crate::endpoints::{Demand, Endpoints, Requirements, RouteError};
use crate::gate::Reservation;
use crate::http::wants_stream;
use crate::service::Admission;

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
    pub(super) fn admit<B, R>(self, parsed: ParsedRequest<B>) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
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
        let request = Request::from_parts(self.head, body);
        let mut attempt = Attempt {
            shared: self.shared,
            body: buffered,
            stream,
            since: self.since,
            first_arrival: self.first_arrival,
            waits: None,
        };
        let mut inner = self.inner;
        Admission::start(&mut attempt, &mut inner, request, demand, self.reservation)
    }
}

impl RouterShared {
    /// The ticket of an attempt that has to wait. Its own deadline counts from the request's first arrival.
    pub(super) fn ticket(&self, attempt: &Attempt, headers: &HeaderMap, now: Instant) -> Ticket {
        let Attempt {
            stream,
            since,
            first_arrival,
            ..
        } = *attempt;
        let settings = self.state.settings();
        // The client's timeout counts from the start of the body; the place in the queue from its end.
        let arrived = since.or(first_arrival).unwrap_or(now);
        let mut ticket = settings.classifier.ticket(headers, arrived);
        ticket.arrival = Some(now);
        // A retry keeps the place of its first arrival.
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
