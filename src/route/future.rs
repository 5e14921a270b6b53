//! The response of a request whose endpoint has yet to be found.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderName, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::arrival::{Arrival, Asked};
use super::desk::Desk;
use super::front::{Front, Tried};
use super::meter::Outcome;
use super::retry::{Failed, Kept, Unkept};
use super::router::Stamps;
use super::tally::Tally;
use super::verdict::{Retry, Verdict};
use super::{Decision, EndpointLease, Endpoints, Measured, ReadBody, RouteBody, RouteError};
use crate::admission::Admission;
use crate::gate::{self, Chair, Permit};
use crate::http::PermitBody;
use crate::queue::protocol::pass_on;

pub(super) type Admitted<S, B> = Admission<Endpoints, S, Request<RouteBody<B>>, Front, Infallible>;

/// A request in case that it fails, or why it is not kept.
type MaybeKept<S, R, E> = Result<Box<Kept<S, R, E>>, Unkept>;

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
        step: Step<S, B, Admitted<S, B>>,
        kept: MaybeKept<S, R, S::Error>,
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
    enum Step<S, B, A> {
        Reading { #[pin] body: ReadBody<B>, arrival: Option<Arrival<S>> },
        Streaming { body: Option<B>, arrival: Option<Arrival<S>> },
        Admitted { #[pin] admission: A },
    }
}

impl<S, B, R> RouteFuture<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
{
    pub(super) fn new(
        desk: Arc<Desk>,
        inner: S,
        chair: Option<Chair<Endpoints>>,
        request: Request<B>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let tally = Some(Tally::new(Arc::clone(&desk)));
        let (limit, reads_body) = (desk.body_limit, desk.source.is_body());
        let asks_first = head.headers.contains_key(EXPECT);
        let arrival = Some(Arrival {
            desk,
            inner,
            chair,
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
            let StepProj::Admitted { admission } = this.step.as_mut().project() else {
                unreachable!("whoever has arrived is admitted");
            };
            let tried = ready!(admission.poll(cx));
            let Some(tally) = this.tally.take() else {
                panic!("response future polled after it was answered");
            };
            match conclude(tried, tally, this.kept) {
                Conclusion::Answer(answer) => return Poll::Ready(answer),
                Conclusion::Again(admission, tally) => {
                    *this.tally = Some(tally);
                    this.step.set(Step::Admitted { admission });
                }
            }
        }
    }
}

type Arrived<S, B> = (Arrival<S>, Result<Asked<B>, RouteError>);

impl<S, B, A> Step<S, B, A>
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
            StepProj::Admitted { .. } => None,
        })
    }
}

/// Where a request was, or had been, when it was given up before it was answered.
fn given_up<S, B, R>(
    step: Pin<&mut Step<S, B, Admitted<S, B>>>,
    kept: &mut MaybeKept<S, R, S::Error>,
) -> Option<Decision>
where
    S: Service<Request<RouteBody<B>>>,
{
    let lease = match step.project() {
        StepProj::Admitted { admission } => admission.lease(),
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

fn reject(tally: Option<Tally>, code: &'static str) {
    if let Some(mut tally) = tally {
        tally.outcome = Outcome::Rejected(code);
    }
}

/// What follows from one try.
enum Conclusion<A, T> {
    Answer(A),
    Again(T, Tally),
}

fn conclude<S, B, R>(
    tried: Tried<R, S::Error>,
    tally: Tally,
    kept: &mut MaybeKept<S, R, S::Error>,
) -> Conclusion<Result<Routed<R>, S::Error>, Admitted<S, B>>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    match tried {
        Tried::Refused {
            headers,
            why,
            waited,
        } => {
            let failed = kept.as_mut().ok().and_then(|kept| kept.failed.take());
            if let Some(failed) = failed {
                // The slot that it had while it waited for the inner service may have been a trial's, and the
                // tally stays with the answer.
                tally.desk.pass_trial_on();
                return Conclusion::Answer(finish(failed, None, tally));
            }
            let (response, code) = tally.desk.refuse(&headers, &why, waited);
            reject(Some(tally), code);
            Conclusion::Answer(Ok(response))
        }
        Tried::Answered {
            result,
            permit: None,
            ..
        } => {
            let mut tally = tally;
            tally.outcome = Outcome::Failed;
            // Without a permit it was not even called: there is no answer, only an error.
            Conclusion::Answer(result.map(|response| response.map(|_| PermitBody::default())))
        }
        Tried::Answered {
            result,
            permit: Some(mut permit),
            waited,
            tail,
        } => {
            let verdict = Verdict::of(&result);
            tally.desk.learn(&mut permit, verdict);
            let lease = permit.lease();
            let called = lease.called;
            let came = called.and_then(|called| called.checked_sub(waited));
            let waited = match kept {
                Ok(kept) => kept.was_tried(came.unwrap_or_else(gate::now), waited),
                Err(_) => waited,
            };
            let failed = Failed {
                result,
                decision: lease.decision().clone(),
                waited,
                tail,
            };
            let retry = verdict.retry();
            let kept = match kept {
                _ if retry == Retry::No => None,
                Ok(kept) => kept.may_try_again().then_some(kept),
                Err(why) => {
                    why.tell(&failed.decision);
                    None
                }
            };
            let Some(kept) = kept else {
                return Conclusion::Answer(finish(failed, Some((permit, called)), tally));
            };
            let endpoint = failed.decision.endpoint.clone();
            // Its slot is free for others while it looks for another one.
            drop(permit);
            kept.failed = Some(failed);
            Conclusion::Again(kept.again(&endpoint, retry), tally)
        }
    }
}

/// Passes an answer on, with the permit if its slot is still held.
fn finish<R, E>(
    answer: Failed<R, E>,
    held: Option<(Permit<Endpoints>, Option<Instant>)>,
    mut tally: Tally,
) -> Result<Routed<R>, E>
where
    R: Body<Data = Bytes>,
{
    let Failed {
        result,
        decision,
        waited,
        tail,
    } = answer;
    let (permit, called) = match held {
        Some((permit, called)) => (Some(permit), called),
        None => (None, None),
    };
    let mut response = match result {
        Ok(response) => response,
        Err(error) => {
            tally.outcome = Outcome::Failed;
            tally.decision = Some(decision);
            return Err(error);
        }
    };
    stamp(&mut response, &decision, tally.desk.stamps);
    tally.outcome = Outcome::Answered(response.status());
    tally.decision = Some(decision);
    let response = response.map(|body| Measured::new(body, tally, called));
    Ok(pass_on(response, permit, waited, tail))
}

const X_TRIAGE_ENDPOINT: HeaderName = HeaderName::from_static("x-triage-endpoint");
const X_TRIAGE_MODEL: HeaderName = HeaderName::from_static("x-triage-model");

/// Says who answered, and why that one.
fn stamp<R>(response: &mut Response<R>, decision: &Decision, stamps: Stamps) {
    let headers = response.headers_mut();
    if stamps.endpoint {
        let endpoint = decision.endpoint.header_value().clone();
        headers.insert(X_TRIAGE_ENDPOINT, endpoint);
    }
    let model = decision.endpoint.model_header(decision.nth_model);
    if let Some(model) = model.filter(|_| stamps.model) {
        headers.insert(X_TRIAGE_MODEL, model.clone());
    }
    response.extensions_mut().insert(decision.clone());
}

impl<S, B, R> fmt::Debug for RouteFuture<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").finish_non_exhaustive()
    }
}
