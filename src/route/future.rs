//! The response of a request whose endpoint has yet to be found.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::service::{Desk, Front, seat};
use super::{Demand, Endpoints, ReadBody, Requirements, RouteError, WholeBody};
use crate::admission::{Admission, Visit};
use crate::admit::{Rejected, Ticket};
use crate::gate::{self, Chair, Permit};
use crate::http::{PermitBody, wants_stream};

type Admitted<S> = Admission<Endpoints, S, Request<WholeBody>, Front, Infallible>;

pin_project! {
    /// The response of a [`Route`](super::Route).
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives up the chair, or the slot, at once, and cancels what the inner service does for it.
    pub struct RouteFuture<S, B>
    where
        S: Service<Request<WholeBody>>,
    {
        #[pin]
        step: Step<S, B, Admitted<S>>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S, B, A> {
        Reading { #[pin] body: ReadBody<B>, arrival: Option<Arrival<S>> },
        Admitted { #[pin] admission: A },
    }
}

/// Who arrives at the desk once the body has been read.
struct Arrival<S> {
    desk: Arc<Desk>,
    inner: S,
    chair: Option<Chair<Endpoints>>,
    head: Parts,
    /// Since when its body is on its way, if that was not there at once.
    since: Option<Instant>,
}

impl<S, B> RouteFuture<S, B>
where
    S: Service<Request<WholeBody>>,
{
    pub(super) fn new(
        desk: Arc<Desk>,
        inner: S,
        chair: Option<Chair<Endpoints>>,
        request: Request<B>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let mut body = ReadBody::new(body, desk.body_limit);
        if head.headers.contains_key(EXPECT) {
            body = body.announced();
        }
        let arrival = Some(Arrival {
            desk,
            inner,
            chair,
            head,
            since: None,
        });
        Self {
            step: Step::Reading { body, arrival },
        }
    }
}

impl<S, B, R> Future for RouteFuture<S, B>
where
    S: Service<Request<WholeBody>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<PermitBody<R, Permit<Endpoints>>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        if let StepProj::Reading { body, arrival } = step.as_mut().project() {
            let Poll::Ready(body) = body.poll(cx) else {
                if let Some(arrival) = arrival {
                    arrival.since.get_or_insert_with(gate::now);
                }
                return Poll::Pending;
            };
            let Some(arrival) = arrival.take() else {
                panic!("response future polled after it was answered");
            };
            match arrival.ask(body) {
                Ok(asked) => step.set(Step::Admitted {
                    admission: arrival.admit(asked),
                }),
                Err(why) => return Poll::Ready(Ok(arrival.refuse(why))),
            }
        }
        match step.project() {
            StepProj::Admitted { admission } => admission.poll(cx),
            StepProj::Reading { .. } => unreachable!("the body has been read"),
        }
    }
}

/// What a request asks, and its body.
struct Asked {
    demand: Demand,
    stream: bool,
    body: Bytes,
}

impl<S> Arrival<S> {
    fn ask(&self, body: Result<Bytes, RouteError>) -> Result<Asked, RouteError> {
        let body = body?;
        let asked = Requirements::from_json(&body)?;
        Ok(Asked {
            demand: self.desk.common.gate.capacity().demand(&asked),
            stream: asked.stream,
            body,
        })
    }

    fn refuse<R>(self, why: RouteError) -> Response<PermitBody<R, Permit<Endpoints>>> {
        let headers = &self.head.headers;
        self.desk
            .refuse(headers, &Rejected::Never(why), Duration::ZERO)
    }

    /// Takes a slot if there is one for the request, or goes and waits.
    fn admit<R>(self, asked: Asked) -> Admitted<S>
    where
        S: Service<Request<WholeBody>, Response = Response<R>>,
        R: Body<Data = Bytes>,
    {
        let Self {
            desk,
            mut inner,
            chair,
            head,
            since,
        } = self;
        let Asked {
            demand,
            stream,
            body,
        } = asked;
        let mut request = Request::from_parts(head, WholeBody::from(body));
        let tail = desk.common.tail();
        let Some(permit) = desk.common.gate.try_acquire(&demand) else {
            let ticket = desk.ticket(request.headers(), stream, since);
            let now = ticket.arrival;
            let visit = Visit {
                desk: Front(desk),
                inner,
                request,
            };
            return Admission::waiting(visit, ticket, now, demand, chair, tail);
        };
        let mut noop = Context::from_waker(Waker::noop());
        match inner.poll_ready(&mut noop) {
            Poll::Ready(Ok(())) => {
                seat(&mut request, permit.lease());
                return Admission::calling(inner.call(request), permit, tail);
            }
            Poll::Ready(Err(error)) => return Admission::failed(error, tail),
            Poll::Pending => {}
        }
        let ticket = desk.ticket(request.headers(), stream, since);
        let visit = Visit {
            desk: Front(desk),
            inner,
            request,
        };
        Admission::readying(visit, &ticket, permit, tail)
    }
}

impl Desk {
    /// The ticket of a request that lines up now. Its own deadline counts from when it came.
    fn ticket(&self, headers: &HeaderMap, stream: bool, since: Option<Instant>) -> Ticket {
        let settings = self.common.settings();
        let now = gate::now();
        let mut ticket = settings.classifier.ticket(headers, since.unwrap_or(now));
        ticket.arrival = now;
        if settings.rejects_streams() && (stream || wants_stream(headers)) {
            return ticket.must_not_wait();
        }
        ticket
    }
}

impl<S: Service<Request<WholeBody>>, B> fmt::Debug for RouteFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").finish_non_exhaustive()
    }
}
