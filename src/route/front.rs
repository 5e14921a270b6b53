//! The front desk of one request: how it is seated, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::desk::Desk;
use super::request_body::Whole;
use super::{EndpointLease, Endpoints, RouteBody, RouteError, Via};
use crate::admit::{Priority, RejectReason, Ticket};
use crate::gate::{self, Gate, Permit};
use crate::service::{AdmissionHandler, ResponseOptions};

/// The front desk of one request, or of one more try of it.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) desk: Arc<Desk>,
    /// The body that goes with it, if it was read.
    pub(super) whole: Option<Whole>,
    /// Whether the body asks for a stream.
    pub(super) stream: bool,
    /// When its body began to arrive, if that was not there at once.
    pub(super) since: Option<Instant>,
    /// When it first came, if it comes back after a failure.
    pub(super) first_came: Option<Instant>,
    /// At which level it waits, and since when, if it has to.
    pub(super) waits: Option<(Priority, Instant)>,
}

/// What came of one try.
pub(super) enum Tried<R, E> {
    /// It was passed on.
    Answered {
        result: Result<Response<R>, E>,
        permit: Option<Permit<Endpoints>>,
        waited: Duration,
        options: ResponseOptions,
    },
    /// It got no slot.
    Refused {
        headers: HeaderMap,
        why: RejectReason<RouteError>,
        waited: Duration,
    },
}

impl Front {
    /// Makes the request one to the endpoint that was decided on.
    pub(super) fn prepare<B>(&self, request: &mut Request<RouteBody<B>>, lease: &mut EndpointLease)
    where
        B: Body<Data = Bytes>,
    {
        let decision = lease.decision();
        if let Some(whole) = &self.whole
            && decision.via != Via::Direct
        {
            *request.body_mut() = whole.clone().naming(&decision.model);
            let length = request.body().size_hint().exact();
            if let (Some(length), Some(old)) =
                (length, request.headers_mut().get_mut(CONTENT_LENGTH))
            {
                *old = length.into();
            }
        }
        if decision.via == Via::Fallback {
            self.desk.meter.fell_back(decision);
        }
        request.extensions_mut().insert(decision.clone());
        let now = gate::now();
        lease.called = Some(now);
        if lease.trial {
            // No other request is given the endpoint for now: those that wait may have a fallback.
            self.desk.common.gate.capacity_changed();
        }
        if let Some((priority, since)) = self.waits {
            self.desk.meter.waited(|| {
                let settings = self.desk.common.settings();
                let level = settings.classifier.levels().name(priority).to_owned();
                (level, now.saturating_duration_since(since))
            });
        }
    }
}

impl<S, B, R> AdmissionHandler<Endpoints, Request<RouteBody<B>>, S> for Front
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    type Answer = Tried<R, S::Error>;

    fn gate(&self) -> &Gate<Endpoints> {
        &self.desk.common.gate
    }

    #[inline]
    fn options(&self) -> ResponseOptions {
        self.desk.common.options()
    }

    fn ticket(&mut self, request: &Request<RouteBody<B>>, now: Instant) -> Ticket {
        let headers = request.headers();
        let ticket = self
            .desk
            .ticket(headers, self.stream, now, self.since, self.first_came);
        self.waits = Some((ticket.priority, now));
        ticket
    }

    fn on_admitted(
        &self,
        request: &mut Request<RouteBody<B>>,
        lease: &mut EndpointLease,
        _: Duration,
    ) {
        self.prepare(request, lease);
    }

    fn reject(
        &self,
        request: Request<RouteBody<B>>,
        why: RejectReason<RouteError>,
        waited: Duration,
    ) -> Self::Answer {
        let headers = request.into_parts().0.headers;
        Tried::Refused {
            headers,
            why,
            waited,
        }
    }

    fn respond(
        options: ResponseOptions,
        result: Result<Response<R>, S::Error>,
        permit: Option<Permit<Endpoints>>,
        waited: Duration,
    ) -> Self::Answer {
        Tried::Answered {
            result,
            permit,
            waited,
            options,
        }
    }
}
