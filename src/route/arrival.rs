//! A request at the desk: what it asks, and how it gets in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::desk::Desk;
use super::front::Front;
use super::future::{Admitted, Routed};
use super::request_body::Whole;
use super::source::Source;
use super::{Demand, Endpoints, Requirements, RouteBody, RouteError};
use crate::admit::{RejectReason, Ticket};
use crate::gate::Reservation;
use crate::http::wants_stream;
use crate::service::Admission;

/// Who arrives at the desk once it can be known what is asked.
pub(super) struct Arrival<S> {
    pub(super) desk: Arc<Desk>,
    pub(super) inner: S,
    pub(super) reservation: Option<Reservation<Endpoints>>,
    pub(super) head: Parts,
    /// Since when its body is on its way, if that was not there at once.
    pub(super) since: Option<Instant>,
    /// When it first came, if it comes back after a failure.
    pub(super) first_came: Option<Instant>,
}

/// What a request asks, and its body.
pub(super) struct Asked<B> {
    pub(super) demand: Demand,
    pub(super) stream: bool,
    pub(super) content: Content<B>,
}

pub(super) enum Content<B> {
    Whole(Whole),
    Streamed(B),
}

impl<S> Arrival<S> {
    /// What a request asks whose body was read.
    pub(super) fn read<B>(&self, body: Result<Bytes, RouteError>) -> Result<Asked<B>, RouteError> {
        let bytes = body?;
        if let Some(encoding) = encoding(&self.head.headers) {
            return Err(RouteError::EncodedBody { encoding });
        }
        let (asked, model_at) = Requirements::read(&bytes)?;
        let model_at = Some(model_at);
        Ok(Asked {
            demand: self.desk.endpoints().demand(&asked),
            stream: asked.stream,
            content: Content::Whole(Whole { bytes, model_at }),
        })
    }

    /// What a request asks that says so in its head.
    pub(super) fn read_head<B: Body>(&self, body: B) -> Result<Asked<B>, RouteError> {
        let Source::Head(read) = &self.desk.source else {
            unreachable!("only where the head says it, the body is not read");
        };
        let asked = read(&self.head)?;
        Ok(Asked {
            demand: self.desk.endpoints().demand(&asked),
            stream: asked.stream,
            content: match body.is_end_stream() {
                true => Content::Whole(Whole::default()),
                false => Content::Streamed(body),
            },
        })
    }

    pub(super) fn refuse<R>(self, why: RouteError) -> (Routed<R>, &'static str) {
        let headers = &self.head.headers;
        self.desk
            .refuse(headers, &RejectReason::Unservable(why), Duration::ZERO)
    }

    /// Takes a slot if there is one for the request, or goes and waits.
    pub(super) fn admit<B, R>(self, asked: Asked<B>) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let Asked {
            demand,
            stream,
            content,
        } = asked;
        let (whole, body) = match content {
            Content::Whole(whole) => (Some(whole.clone()), whole.unchanged()),
            Content::Streamed(body) => (None, RouteBody::streamed(body)),
        };
        let request = Request::from_parts(self.head, body);
        let mut front = Front {
            desk: self.desk,
            whole,
            stream,
            since: self.since,
            first_came: self.first_came,
            waits: None,
        };
        let mut inner = self.inner;
        Admission::start(&mut front, &mut inner, request, demand, self.reservation)
    }
}

impl Desk {
    /// The ticket of a request that has to wait. Its own deadline counts from when it first came.
    pub(super) fn ticket(
        &self,
        headers: &HeaderMap,
        stream: bool,
        now: Instant,
        since: Option<Instant>,
        first_came: Option<Instant>,
    ) -> Ticket {
        let settings = self.common.settings();
        let came = since.or(first_came).unwrap_or(now);
        let mut ticket = settings.classifier.ticket(headers, came);
        ticket.arrival = Some(now);
        if let Some(first_came) = first_came {
            ticket.arrival = Some(first_came);
            ticket = ticket.requeued();
        }
        if settings.rejects_streams() && (stream || wants_stream(headers)) {
            return ticket.no_wait();
        }
        ticket
    }
}

/// How the body is encoded, if it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let mut encodings = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = encodings.find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    encoding.map(|encoding| encoding.into_owned())
}
