//! The response future of a routed request, which reads the body, attempts the request, retries it and responds.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::RouteBody;
use super::attempt::{Admitted, Attempt, AttemptOutcome, StatusForm};
use super::failed_response::ReadFailed;
use super::inner_service::{RoutableService, RouteInner};
use super::load_report::LoadReport;
use super::observer::observer;
use super::parsed_request::{DemandSource, Parsed, RequestHead};
use super::read_request::ReadRequest;
use super::request_metrics::RequestMetrics;
use super::response::next_step;
use super::response_body::{BoxError, RouteResponseBody, Routed, RoutedBody};
use super::retry::{NotRetryable, RetryState, Retryable};
use super::shared::RouterShared;
use crate::clock;
use crate::endpoints::{EndpointLease, Endpoints, Requirements};
use crate::gate::{QueuePlace, Shared};
use crate::http::PermitBody;
use crate::queue;
use crate::service::{PendingAnswer, Prepared, StatusStream, status_response};

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
                    StateProj::Admitted { admission, .. } => admission.lease(),
                    _ => None,
                };
                if let Some(lease) = lease.filter(|_| !metrics.has_failed) {
                    metrics.shared.given_up(lease);
                }
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
        Reading { #[pin] body: ReadRequest<B>, head: Option<RequestHead<S>> },
        /// The demand is read from the head of the request, while the body is streamed.
        Streaming { body: Option<B>, head: Option<RequestHead<S>> },
        /// An attempt waits for a slot or for the inner service's response. After a refusal, it waits for other endpoints than
        /// those that refused it until the timer fires.
        Admitted { #[pin] admission: A, pause: Option<Pin<Box<Sleep>>> },
        /// The attempt failed, and its response is read before the next attempt.
        Failed { response: Pin<Box<ReadFailed<R>>> },
    }
}

impl<S, B, R> Attempts<S, B, R>
where
    S: Service<Request<RouteBody<B>>>,
    B: Body<Data = Bytes> + Send + 'static,
{
    pub(super) fn new(
        shared: Arc<RouterShared>,
        inner: S,
        prepared: Option<Prepared<Shared<Endpoints>>>,
        request: Request<B>,
    ) -> Self {
        let (mut head, body) = request.into_parts();
        let observer = observer(&head.extensions).cloned();
        let metrics = Some(RequestMetrics::new(Arc::clone(&shared), observer));
        let body = match shared.options.demand_from {
            DemandSource::Body if !has_demand(&head) => {
                Ok(ReadRequest::new(body, &mut head, &shared))
            }
            DemandSource::Body | DemandSource::Head(_) => Err(body),
        };
        let head = Some(RequestHead {
            attempt: Attempt::new(shared),
            inner,
            prepared,
            head,
        });
        let state = match body {
            Ok(body) => State::Reading { body, head },
            Err(body) => {
                let body = Some(body);
                State::Streaming { body, head }
            }
        };
        Self {
            state,
            retry: Err(NotRetryable::NotKept),
            metrics,
        }
    }
}

impl<S, B, R> Future for Attempts<S, B, R>
where
    S: RoutableService<B, R>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
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
    S: RoutableService<B, R>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
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
            let next = match this.state.as_mut().project() {
                StateProj::Reading { body, head } => {
                    let body = ready!(body.poll_read(head, cx));
                    let mut head = take_once(head);
                    let parsed = body.and_then(|content| head.parse_body(content));
                    first_attempt(head, parsed, this.metrics, this.retry)
                }
                StateProj::Streaming { body, head } => {
                    let mut head = take_once(head);
                    let parsed = head.parse_head(take_once(body));
                    first_attempt(head, parsed, this.metrics, this.retry)
                }
                StateProj::Admitted {
                    mut admission,
                    pause,
                } => match admission.as_mut().poll(cx) {
                    Poll::Ready(Some(outcome)) => after_attempt(outcome, this.metrics, this.retry),
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Pending => {
                        ready!(poll_pause(admission, pause, cx));
                        ControlFlow::Continue(after_pause(this.retry))
                    }
                },
                StateProj::Failed { response } => {
                    let failed = ready!(response.as_mut().poll(cx));
                    ControlFlow::Continue(later_attempt(failed, this.retry))
                }
            };
            match next {
                ControlFlow::Continue(state) => this.state.set(state),
                ControlFlow::Break(response) => return Poll::Ready(Some(response)),
            }
        }
    }

    /// Begins the response to a request that still waits for a slot.
    #[cold]
    #[inline(never)]
    fn status_response(self: Pin<&mut Self>) -> Result<Routed<R>, S::Error> {
        let this = self.project();
        let (admission, pause, form) = match this.state.project() {
            StateProj::Admitted { admission, pause } => {
                let parts = admission.queued_parts();
                let form = parts.and_then(|(attempt, request)| attempt.status_form(request));
                (admission.take_queued(), pause.take(), form)
            }
            _ => (None, None, None),
        };
        let asked = this.metrics.as_ref().and_then(|it| it.asked.clone());
        let mut retry = std::mem::replace(this.retry, Err(NotRetryable::NotKept));
        if let Ok(retry) = &mut retry {
            retry.ask_for_identity();
        }
        let Some(admission) = admission else {
            unreachable!("only a request that waits is answered meanwhile");
        };
        let pending = Self {
            state: State::Admitted { admission, pause },
            retry,
            metrics: this.metrics.take(),
        };
        let stream = match (form, asked) {
            (Some(StatusForm::LoadReport), Some(asked)) => {
                StatusStream::written_by(Box::new(LoadReport::new(asked)), pending)
            }
            _ => StatusStream::new(pending),
        };
        let delayed = stream.delayed_head();
        let body = PermitBody::new(RouteResponseBody::status(stream), None);
        Ok(status_response(body, delayed))
    }
}

impl<S, B, R> PendingAnswer<RoutedBody<R>> for Attempts<S, B, R>
where
    S: RoutableService<B, R>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn poll_answer(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Routed<R>>> {
        // A retry that waits resolves with `None` as well. It is polled again at once, because its status is shown
        // already.
        loop {
            if let Some(response) = ready!(self.as_mut().poll_response(cx)) {
                return Poll::Ready(response.ok());
            }
        }
    }

    fn place(&self) -> Option<QueuePlace> {
        match &self.state {
            State::Admitted { admission, .. } => admission.place(),
            _ => None,
        }
    }
}

/// Returns `true` if a layer in front has put the demand among the extensions of a request.
fn has_demand(head: &Parts) -> bool {
    head.extensions.get::<Requirements<'static>>().is_some()
}

/// The state of [`Attempts`].
type AttemptsState<S, B, R> = State<S, B, Admitted<S, B, R>, R>;

/// Begins the first attempt at a request, or rejects a request that could not be parsed.
fn first_attempt<S, B, R, E>(
    head: RequestHead<S>,
    parsed: Parsed<B>,
    metrics: &mut Option<RequestMetrics>,
    retry: &mut Retryable<S, E>,
) -> ControlFlow<Result<Routed<R>, E>, AttemptsState<S, B, R>>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>, Error = E> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    if let Some(observer) = metrics.as_ref().and_then(|it| it.observer.as_deref()) {
        if observer.wants_ticket() {
            let ticket_of = queue::RequestHead::of_parts(&head.head);
            head.attempt.report_ticket(&ticket_of, observer);
        }
        if let Ok((demand, _)) = &parsed {
            observer.on_asked(&demand.name());
        }
    }
    match parsed {
        Ok((demand, body)) => {
            if let Some(metrics) = metrics {
                metrics.asked = Some(demand.name());
                metrics.wants_stream = head.attempt.stream;
            }
            *retry = RetryState::keep(&head, &demand); // before the request goes on
            let admission = head.admit(demand, body);
            let pause = None;
            ControlFlow::Continue(State::Admitted { admission, pause })
        }
        Err(why) => {
            let headers = &head.head.headers;
            let response = take_once(metrics).reject(headers, &why, Duration::ZERO);
            ControlFlow::Break(Ok(response))
        }
    }
}

/// Returns the response, or begins to read the response of an attempt that is followed by another one.
fn after_attempt<S, B, R, E>(
    outcome: AttemptOutcome<R, E>,
    metrics: &mut Option<RequestMetrics>,
    retry: &mut Retryable<S, E>,
) -> ControlFlow<Result<Routed<R>, E>, AttemptsState<S, B, R>>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>, Error = E> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (response, kept) = next_step(outcome, take_once(metrics), retry)?;
    *metrics = Some(kept);
    let response = Box::pin(response);
    ControlFlow::Continue(State::Failed { response })
}

/// Begins another attempt, once the response of the failed attempt has been read.
fn later_attempt<S, B, R, E>(
    failed: Option<Bytes>,
    retry: &mut Retryable<S, E>,
) -> AttemptsState<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>, Error = E> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let Ok(retry) = retry else {
        unreachable!("only a retryable request is retried");
    };
    retry.failed_with(failed);
    let admission = retry.next_attempt();
    let pause = retry.pause().and_then(clock::sleep_until).map(Box::pin);
    State::Admitted { admission, pause }
}

/// Waits for the end of a pause, for as long as the request waits for a slot. Without a pause, it waits for ever.
fn poll_pause<S, B, R>(
    admission: Pin<&mut Admitted<S, B, R>>,
    pause: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<()>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let Some(sleep) = pause else {
        return Poll::Pending;
    };
    if admission.place().is_none() {
        *pause = None; // it has a slot
        return Poll::Pending;
    }
    sleep.as_mut().poll(cx)
}

/// Lets a refused request wait for all endpoints again.
fn after_pause<S, B, R, E>(retry: &mut Retryable<S, E>) -> AttemptsState<S, B, R>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>, Error = E> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let Ok(retry) = retry else {
        unreachable!("only a request that is kept was refused");
    };
    let admission = retry.after_pause();
    let pause = None;
    State::Admitted { admission, pause }
}

/// Takes a value that exists until the future is answered.
fn take_once<T>(value: &mut Option<T>) -> T {
    value.take().unwrap_or_else(|| answered())
}

/// Panics because the future was polled after it had resolved.
fn answered() -> ! {
    panic!("response future polled after it was answered")
}
