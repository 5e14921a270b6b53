//! A parsed request: its demand is known, and it can acquire a slot.

use std::sync::Arc;
use std::time::Instant;

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
use super::shared::RouterShared;
use crate::endpoints::{Demand, Endpoints, Requirements, RouteError};
use crate::gate::Reservation;
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

impl<S: Clone> Clone for RequestHead<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            inner: self.inner.clone(),
            // A reservation is for one attempt.
            reservation: None,
            head: self.head.clone(),
            since: self.since,
            first_arrival: self.first_arrival,
        }
    }
}

/// What a request asks.
#[derive(Clone)]
pub(super) struct ParsedRequest {
    pub(super) demand: Demand,
    pub(super) stream: bool,
    /// Its body, which can be sent again. `None` if it is streamed.
    pub(super) body: Option<BufferedBody>,
}

/// What a request asks, and its body for the first attempt.
pub(super) type Parsed<B> = Result<(ParsedRequest, RouteBody<B>), RouteError>;

impl<S> RequestHead<S> {
    /// Parses a request by its body, which was read.
    pub(super) fn parse_body<B>(&self, body: Result<Bytes, RouteError>) -> Parsed<B> {
        let bytes = body?;
        if let Some(encoding) = encoding(&self.head.headers) {
            return Err(RouteError::EncodedBody { encoding });
        }
        let (asked, model_at) = Requirements::read(&bytes)?;
        let (demand, stream) = (self.shared.endpoints().demand(&asked), asked.stream);
        let model_at = Some(model_at);
        let body = BufferedBody { bytes, model_at };
        let unchanged = body.clone().unchanged();
        let body = Some(body);
        let parsed = ParsedRequest {
            demand,
            stream,
            body,
        };
        Ok((parsed, unchanged))
    }

    /// Parses a request by its head. The body is streamed, if there is one.
    pub(super) fn parse_head<B: Body>(&self, body: B) -> Parsed<B> {
        let DemandSource::Head(extract) = &self.shared.demand_from else {
            unreachable!("the body is read unless the head has the demand");
        };
        let asked = extract(&self.head)?;
        let empty = body.is_end_stream().then(BufferedBody::default);
        let parsed = ParsedRequest {
            demand: self.shared.endpoints().demand(&asked),
            stream: asked.stream,
            body: empty.clone(),
        };
        let streamed = || RouteBody::streamed(body);
        Ok((parsed, empty.map_or_else(streamed, BufferedBody::unchanged)))
    }

    /// Takes a slot if there is one for the request, or queues it.
    pub(super) fn admit<B, R>(self, parsed: ParsedRequest, body: RouteBody<B>) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let request = Request::from_parts(self.head, body);
        let mut attempt = Attempt {
            shared: self.shared,
            body: parsed.body,
            stream: parsed.stream,
            since: self.since,
            first_arrival: self.first_arrival,
            waits: None,
        };
        let mut inner = self.inner;
        let (demand, reservation) = (parsed.demand, self.reservation);
        Admission::start(&mut attempt, &mut inner, request, demand, reservation)
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
