//! The response of a request whose endpoint has yet to be found.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::arrival::{Arrival, Asked};
use super::conclusion::{Conclusion, conclude, reject};
use super::desk::Desk;
use super::front::{Front, Tried};
use super::retry::{Kept, Unkept};
use super::tally::Tally;
use super::unread::Unread;
use super::{Decision, EndpointLease, Endpoints, Measured, ReadBody, RouteBody, RouteError};
use crate::gate::{self, Permit, Reservation};
use crate::http::PermitBody;
use crate::service::Admission;

pub(super) type Admitted<S, B, R> = Admission<
    Endpoints,
    S,
    Request<RouteBody<B>>,
    Front,
    Tried<R, <S as Service<Request<RouteBody<B>>>>::Error>,
>;

/// A request in case that it fails, or why it is not kept.
pub(super) type MaybeKept<S, E> = Result<Box<Kept<S, E>>, Unkept>;

pub(super) type Routed<R> = Response<PermitBody<Measured<R>, Permit<Endpoints>>>;

pin_project! {
    /// The response of a [`Route`](super::Route).
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives up the chair, or the slot, at once, and cancels what the inner service does for it.
    pub struct RouteFuture<S, B, R>
    where
        S: Service<Request<RouteBody<B>>>,
    {
        #[pin]
        step: StepOf<S, B, R>,
        kept: MaybeKept<S, S::Error>,
        // Dropped last: it looks at what the others leave behind.
        tally: Option<Tally>,
    }

    impl<S, B, R> PinnedDrop for RouteFuture<S, B, R>
    where
        S: Service<Request<RouteBody<B>>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(tally) = this.tally {
                tally.decision = given_up(this.step, this.kept);
            }
        }
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<S, B, A, R, E> {
        Reading { #[pin] body: ReadBody<B>, arrival: Option<Arrival<S>> },
        Streaming { body: Option<B>, arrival: Option<Arrival<S>> },
        Admitted { #[pin] admission: A },
        Failed { unread: Pin<Box<Unread<R, E>>> },
    }
}

impl<S, B, R> RouteFuture<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
{
    pub(super) fn new(
        desk: Arc<Desk>,
        inner: S,
        reservation: Option<Reservation<Endpoints>>,
        request: Request<B>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let tally = Some(Tally::new(Arc::clone(&desk)));
        let (limit, reads_body) = (desk.body_limit, desk.source.is_body());
        let asks_first = head.headers.contains_key(EXPECT);
        let arrival = Some(Arrival {
            desk,
            inner,
            reservation,
            head,
            since: None,
            first_came: None,
        });
        let step = if reads_body {
            let body = ReadBody::new(body, limit);
            let body = if asks_first { body.announced() } else { body };
            Step::Reading { body, arrival }
        } else {
            let body = Some(body);
            Step::Streaming { body, arrival }
        };
        Self {
            step,
            kept: Err(Unkept::NoRetries),
            tally,
        }
    }
}

impl<S, B, R> Future for RouteFuture<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Routed<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(arrived) = ready!(this.step.as_mut().poll_arrival(cx)) {
            let (arrival, asked) = arrived;
            match asked {
                Ok(asked) => {
                    if let Some(tally) = this.tally {
                        tally.asked = Some(asked.demand.name());
                    }
                    *this.kept = arrival.keep(&asked);
                    let admission = arrival.admit(asked);
                    this.step.set(Step::Admitted { admission });
                }
                Err(why) => {
                    let (response, code) = arrival.refuse(why);
                    reject(this.tally.take(), code);
                    return Poll::Ready(Ok(response));
                }
            }
        }
        loop {
            let tried = match this.step.as_mut().project() {
                StepProj::Admitted { admission } => ready!(admission.poll(cx)),
                StepProj::Failed { unread } => {
                    let failed = ready!(unread.as_mut().poll(cx));
                    let (Ok(kept), Some(tally)) = (&mut *this.kept, &*this.tally) else {
                        unreachable!("only a request that is kept is tried again");
                    };
                    // This try may have been a trial.
                    tally.desk.pass_trial_on();
                    kept.failed_with(failed);
                    let admission = kept.again();
                    this.step.set(Step::Admitted { admission });
                    continue;
                }
                StepProj::Reading { .. } | StepProj::Streaming { .. } => {
                    unreachable!("a request is admitted once it has been read")
                }
            };
            let Some(tally) = this.tally.take() else {
                panic!("response future polled after it was answered");
            };
            match conclude(tried, tally, this.kept) {
                Conclusion::Answer(answer) => return Poll::Ready(answer),
                Conclusion::Again(unread, tally) => {
                    *this.tally = Some(tally);
                    let unread = Box::pin(unread);
                    this.step.set(Step::Failed { unread });
                }
            }
        }
    }
}

type StepOf<S, B, R> =
    Step<S, B, Admitted<S, B, R>, R, <S as Service<Request<RouteBody<B>>>>::Error>;

type Arrived<S, B> = (Arrival<S>, Result<Asked<B>, RouteError>);

impl<S, B, A, R, E> Step<S, B, A, R, E>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Who has arrived; nobody, if that was before.
    fn poll_arrival(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arrived<S, B>>> {
        Poll::Ready(match self.project() {
            StepProj::Reading { body, arrival } => {
                let Poll::Ready(body) = body.poll(cx) else {
                    if let Some(arrival) = arrival {
                        arrival.since.get_or_insert_with(gate::now);
                    }
                    return Poll::Pending;
                };
                let arrival = once(arrival.take());
                let asked = arrival.read(body);
                Some((arrival, asked))
            }
            StepProj::Streaming { body, arrival } => {
                let arrival = once(arrival.take());
                let asked = arrival.read_head(once(body.take()));
                Some((arrival, asked))
            }
            StepProj::Admitted { .. } | StepProj::Failed { .. } => None,
        })
    }
}

/// Where a request was, or had been, when it was given up before it was answered.
fn given_up<S, B, R>(
    step: Pin<&mut StepOf<S, B, R>>,
    kept: &mut MaybeKept<S, S::Error>,
) -> Option<Decision>
where
    S: Service<Request<RouteBody<B>>>,
{
    let lease = match step.project() {
        StepProj::Admitted { admission } => admission.lease(),
        StepProj::Failed { unread } => return unread.decision().cloned(),
        StepProj::Reading { .. } | StepProj::Streaming { .. } => None,
    };
    let failed = || Some(&kept.as_ref().ok()?.failed.as_ref()?.decision);
    lease.map(EndpointLease::decision).or_else(failed).cloned()
}

fn once<T>(what: Option<T>) -> T {
    match what {
        Some(what) => what,
        None => panic!("response future polled after it was answered"),
    }
}

impl<S, B, R> fmt::Debug for RouteFuture<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").finish_non_exhaustive()
    }
}
