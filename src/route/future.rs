//! The response future of a routed request, which reads the body, attempts the request, retries it and responds.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::RouteBody;
use super::attempt::{Admitted, Attempt};
use super::extract::DemandSource;
use super::failed_response::ReadFailed;
use super::inner_service::RouteInner;
use super::parsed_request::RequestHead;
use super::request_metrics::RequestMetrics;
use super::response::{NextStep, next_step};
use super::response_body::Routed;
use super::retry::{NotRetryable, RetryState, Retryable};
use super::shared::RouterShared;
use crate::admit::RejectReason;
use crate::endpoints::{EndpointLease, Endpoints};
use crate::gate::{self, Shared};
use crate::openai::ReadBody;
use crate::service::Prepared;

mod status;

pin_project! {
    /// The future of a [`Route`](super::Route)'s response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the waiting room or the slot at once, and it cancels the inner
    /// service's work.
    pub struct RouteFuture<S, B>
    where
        S: RouteInner<B>,
    {
        #[pin]
        pub(super) attempts: <S as RouteInner<B>>::Attempts,
    }
}

impl<S, B> Future for RouteFuture<S, B>
where
    S: RouteInner<B>,
{
    type Output = Result<Routed<<S as RouteInner<B>>::Body>, <S as RouteInner<B>>::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().attempts.poll(cx)
    }
}

impl<S, B> fmt::Debug for RouteFuture<S, B>
where
    S: RouteInner<B>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// A request from its arrival to its response. Its body is read first, and attempts follow until one of them is
    /// answered.
    pub struct Attempts<S, B, R>
    where
        S: Service<Request<RouteBody<B>>>,
    {
        #[pin]
        state: State<S, B, Admitted<S, B, R>, R>,
        retry: Retryable<S, S::Error>,
        // This field is dropped last, because it counts a probe that the other fields may have abandoned.
        metrics: Option<RequestMetrics>,
    }

    impl<S, B, R> PinnedDrop for Attempts<S, B, R>
    where
        S: Service<Request<RouteBody<B>>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(metrics) = this.metrics {
                let lease = match this.state.project() {
                    StateProj::Admitted { admission } => admission.lease(),
                    _ => None,
                };
                let failed = || Some(&this.retry.as_ref().ok()?.failed.as_ref()?.decision);
                metrics.decision = lease.map(EndpointLease::decision).or_else(failed).cloned();
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, A, R> {
        /// The body is read, because it says which model the request asks for.
        Reading { #[pin] body: ReadBody<B>, head: Option<RequestHead<S>> },
        /// The demand is read from the head of the request, while the body is streamed.
        Streaming { body: Option<B>, head: Option<RequestHead<S>> },
        /// An attempt waits for a slot or for the inner service's response.
        Admitted { #[pin] admission: A },
        /// The attempt failed, and its response is read before the next attempt.
        Failed { response: Pin<Box<ReadFailed<R>>> },
    }
}

impl<S, B, R> Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
{
    pub(super) fn new(
        shared: Arc<RouterShared>,
        inner: S,
        prepared: Option<Prepared<Shared<Endpoints>>>,
        request: Request<B>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let metrics = Some(RequestMetrics::new(Arc::clone(&shared)));
        let limit = shared.body_limit;
        let reads_body = matches!(shared.demand_from, DemandSource::Body);
        let expects_continue = head.headers.contains_key(EXPECT);
        let head = Some(RequestHead {
            attempt: Attempt::new(shared),
            inner,
            prepared,
            head,
        });
        let state = if reads_body {
            let body = ReadBody::new(body, limit);
            let body = match expects_continue {
                true => body.announced(),
                false => body,
            };
            State::Reading { body, head }
        } else {
            let body = Some(body);
            State::Streaming { body, head }
        };
        Self {
            state,
            retry: Err(NotRetryable::NoRetries),
            metrics,
        }
    }
}

impl<S, B, R> Future for Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Output = Result<Routed<R>, S::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.as_mut().poll_response(cx));
        Poll::Ready(response.unwrap_or_else(|| self.status_response()))
    }
}

impl<S, B, R> Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    /// Resolves with the response. Resolves with `None` once before that, if the request waits and its client asked for
    /// its status.
    #[inline]
    fn poll_response(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Routed<R>, S::Error>>> {
        let mut this = self.project();
        // Each round ends one state: the request is parsed, then attempted, and perhaps attempted again.
        loop {
            let (head, parsed) = match this.state.as_mut().project() {
                StateProj::Reading { body, head } => {
                    let Poll::Ready(body) = body.poll(cx) else {
                        // The body is not there at once, so the time to read it counts as time since the arrival.
                        if let Some(head) = head {
                            head.attempt.since.get_or_insert_with(gate::now);
                        }
                        return Poll::Pending;
                    };
                    let parsed = some(head).parse_body(body);
                    (head, parsed)
                }
                StateProj::Streaming { body, head } => {
                    let parsed = some(head).parse_head(take_once(body));
                    (head, parsed)
                }
                StateProj::Admitted { admission } => {
                    let Some(outcome) = ready!(admission.poll(cx)) else {
                        return Poll::Ready(None);
                    };
                    match next_step(outcome, take_once(this.metrics), this.retry) {
                        NextStep::Respond(response) => return Poll::Ready(Some(response)),
                        NextStep::Retry(response, metrics) => {
                            *this.metrics = Some(metrics);
                            let response = Box::pin(response);
                            this.state.set(State::Failed { response });
                        }
                    }
                    continue;
                }
                StateProj::Failed { response } => {
                    let failed = ready!(response.as_mut().poll(cx));
                    let Ok(retry) = &mut *this.retry else {
                        unreachable!("only a retryable request is retried");
                    };
                    retry.failed_with(failed);
                    let admission = retry.next_attempt();
                    this.state.set(State::Admitted { admission });
                    continue;
                }
            };
            match parsed {
                Ok((demand, body)) => {
                    if let Some(metrics) = this.metrics {
                        metrics.asked = Some(demand.name());
                    }
                    *this.retry = RetryState::keep(some(head), &demand); // before the request goes on
                    let admission = take_once(head).admit(demand, body);
                    this.state.set(State::Admitted { admission });
                }
                Err(why) => {
                    let head = take_once(head);
                    let (headers, why) = (&head.head.headers, RejectReason::Unservable(why));
                    let response = take_once(this.metrics).reject(headers, &why, Duration::ZERO);
                    return Poll::Ready(Some(Ok(response)));
                }
            }
        }
    }
}

/// Takes a value that exists until the future is answered.
fn take_once<T>(value: &mut Option<T>) -> T {
    match value.take() {
        Some(value) => value,
        None => answered(),
    }
}

/// Returns a value that is taken once and has to be there still.
fn some<T>(value: &mut Option<T>) -> &mut T {
    match value {
        Some(value) => value,
        None => answered(),
    }
}

/// Panics because the future was polled after it had resolved.
fn answered() -> ! {
    panic!("response future polled after it was answered")
}
