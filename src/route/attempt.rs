//! The front desk of one request: how it is seated, and what came of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::RouteBody;
use super::request_body::Whole;
use super::shared::Desk;
use super::shell::{AdmissionHandler, Tail};
use crate::admit::{Priority, RejectReason};
use crate::endpoints::{EndpointLease, Endpoints, RouteError, Via};
use crate::gate::{self, Gate, Permit};

/// The front desk of one request, or of one more try of it.
pub(super) struct Front {
    pub(super) desk: Arc<Desk>,
    /// The body that goes with it, if it was read.
    pub(super) whole: Option<Whole>,
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
        tail: Tail,
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
        if lease.is_probe {
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
    /// Though every chair is taken, an endpoint may be free for one who comes: nobody is turned away unseen.
    type Notice = Infallible;

    fn gate(&self) -> &Gate<Endpoints> {
        &self.desk.common.gate
    }

    fn seat(&self, request: &mut Request<RouteBody<B>>, lease: &mut EndpointLease, _: Duration) {
        self.prepare(request, lease);
    }

    fn refuse(
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

    fn turned_away(notice: Infallible) -> Self::Answer {
        match notice {}
    }

    fn answer(
        tail: Tail,
        result: Result<Response<R>, S::Error>,
        permit: Option<Permit<Endpoints>>,
        waited: Duration,
    ) -> Self::Answer {
        Tried::Answered {
            result,
            permit,
            waited,
            tail,
        }
    }
}
