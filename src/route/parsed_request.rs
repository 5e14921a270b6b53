//! A parsed request with a known demand, which can acquire a slot.

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
use crate::endpoints::{Demand, Endpoints, Requirements, RouteError};
use crate::gate::Shared;
use crate::service::{Admission, Prepared};

/// The head of a request, with everything that its admission needs.
pub(super) struct RequestHead<S> {
    pub(super) attempt: Attempt,
    pub(super) inner: S,
    /// The result of `poll_ready`, such as a reserved place in the waiting room.
    pub(super) prepared: Option<Prepared<Shared<Endpoints>>>,
    pub(super) head: Parts,
}

impl<S: Clone> Clone for RequestHead<S> {
    fn clone(&self) -> Self {
        Self {
            attempt: self.attempt.clone(),
            inner: self.inner.clone(),
            prepared: None, // a reservation is for one attempt
            head: self.head.clone(),
        }
    }
}

/// The demand of a request, and its body as the inner service gets it.
pub(super) type Parsed<B> = Result<(Demand, RouteBody<B>), RouteError>;

impl<S> RequestHead<S> {
    /// Parses a request from its body, which has been read.
    pub(super) fn parse_body<B>(&mut self, body: Result<Bytes, RouteError>) -> Parsed<B> {
        let bytes = body?;
        if let Some(encoding) = encoding(&self.head.headers) {
            return Err(RouteError::EncodedBody { encoding });
        }
        let (asked, model_at) = Requirements::read(&bytes)?;
        let demand = self.attempt.shared.endpoints().demand(&asked);
        self.attempt.ask(&asked);
        let model_at = Some(model_at);
        let body = self.attempt.body.insert(BufferedBody { bytes, model_at });
        Ok((demand, body.clone().unchanged()))
    }

    /// Parses a request from its head. The body is streamed unless it is empty.
    pub(super) fn parse_head<B: Body>(&mut self, body: B) -> Parsed<B> {
        let DemandSource::Head(extract) = &self.attempt.shared.demand_from else {
            unreachable!("the body is read unless the head has the demand");
        };
        let asked = extract(&self.head)?;
        let demand = self.attempt.shared.endpoints().demand(&asked);
        self.attempt.ask(&asked);
        if body.is_end_stream() {
            let empty = self.attempt.body.insert(BufferedBody::default()); // an empty body can be sent again
            return Ok((demand, empty.clone().unchanged()));
        }
        Ok((demand, RouteBody::streamed(body)))
    }

    /// Takes a slot if one is free for the request, or else queues the request.
    pub(super) fn admit<B, R>(mut self, demand: Demand, body: RouteBody<B>) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let request = Request::from_parts(self.head, body);
        let (attempt, inner) = (&mut self.attempt, &mut self.inner);
        Admission::start(attempt, inner, request, demand, self.prepared)
    }
}

/// Returns the `Content-Encoding` of the body, if the body is encoded.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let mut encodings = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = encodings.find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    encoding.map(|encoding| encoding.into_owned())
}
