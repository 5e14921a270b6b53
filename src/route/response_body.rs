//! The body of a routed response, which measures the response's duration and notices when the body breaks off.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed; // the counter is only compared with an earlier count
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::client_wait::ClientWait;
use super::metrics::RequestOutcome;
use super::request_metrics::RequestMetrics;
use super::token_meter::TokenMeter;
use crate::endpoints::Endpoints;
use crate::endpoints::latency::CoarseInstant;
use crate::gate::{self, ClientStall, Permit};
use crate::http::{HoldError, LimitedHold, PermitBody};
use crate::openai::ErrorReader;
use crate::service::StatusStream;

pin_project! {
    /// The body of a response of a [`Route`](super::Route).
    ///
    /// Its error is the boxed error of the inner body, or a [`HoldError`](crate::queue::HoldError).
    #[derive(Debug)]
    pub struct RouteResponseBody<B> {
        #[pin]
        content: Content<B>,
    }

    impl<B> PinnedDrop for RouteResponseBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if let ContentProj::Answer { measure: Some(measure), .. } = this.project().content.project() {
                measure.cut_short();
            }
        }
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ContentProj]
    enum Content<B> {
        Answer {
            // `None` after an error, so that the work is gone before the slot comes back.
            #[pin]
            body: Option<B>,
            // `None` once the body is over. It is boxed, because the body is moved through each layer and the server.
            measure: Option<Box<Measure>>,
            // The slot, if it has limits. It is declared last, because it must be free only after the work is gone.
            hold: Option<Box<LimitedHold<Permit<Endpoints>>>>,
        },
        // The body of a response that began while its request waited. The final answer is part of it.
        Status { stream: Box<StatusStream<RoutedBody<B>>> },
    }
}

/// A response of a [`Route`](super::Route).
pub(super) type Routed<R> = Response<RoutedBody<R>>;

/// The body of a response of a [`Route`](super::Route), which holds the slot until it ends.
pub(super) type RoutedBody<R> = PermitBody<RouteResponseBody<R>, Permit<Endpoints>>;

#[derive(Debug)]
struct Measure {
    metrics: RequestMetrics,
    /// The time at which the inner service was called. `None` if the duration of the response does not describe the
    /// endpoint.
    called: Option<Instant>,
    /// The outcome to record if the body is read to its end.
    outcome: RequestOutcome,
    /// The meter that charges the tenant for the tokens of the response. `None` if tokens are not charged.
    tokens: Option<Box<TokenMeter>>,
    wait: ClientWait,
    /// The reader that looks for errors in a stream. `None` for other bodies, and once an error was found.
    errors: Option<ErrorReader>,
    /// `true` if the answer is an error, or has one in it, although its status says success.
    has_error: bool,
}

impl<B: Body> RouteResponseBody<B> {
    /// Creates the body. `metrics` holds the outcome to record if the body is read to its end.
    #[inline]
    pub(super) fn new(
        body: B,
        mut metrics: RequestMetrics,
        called: Option<Instant>,
        tokens: Option<Box<TokenMeter>>,
        errors: Option<ErrorReader>,
        stall: Option<Arc<ClientStall>>,
    ) -> Self {
        // If the body is dropped before its end, the request counts as cancelled.
        let outcome = std::mem::replace(&mut metrics.outcome, RequestOutcome::Cancelled);
        let endpoint = metrics.decision.as_ref().map(|decision| &decision.endpoint);
        let wait = endpoint.map(|endpoint| ClientWait::at(endpoint, stall));
        let mut wait = wait.unwrap_or_default();
        wait.set(true); // the body waits for the client to read
        let mut measure = Some(Box::new(Measure {
            metrics,
            called,
            outcome,
            tokens,
            wait,
            errors,
            has_error: false,
        }));
        if body.is_end_stream() {
            finish(&mut measure, Measure::end);
        }
        let content = Content::Answer {
            body: Some(body),
            measure,
            hold: None,
        };
        Self { content }
    }

    /// Adds the slot of a response, which has limits. A body that has ended gives the slot back at once.
    pub(super) fn limited(mut self, slot: LimitedHold<Permit<Endpoints>>) -> Self {
        if let Content::Answer {
            hold,
            measure: Some(_),
            ..
        } = &mut self.content
        {
            *hold = Some(Box::new(slot));
        }
        self
    }
}

impl<B> RouteResponseBody<B> {
    /// Creates the body of a response that began while its request waited.
    pub(super) fn status(stream: StatusStream<RoutedBody<B>>) -> Self {
        let stream = Box::new(stream);
        let content = Content::Status { stream };
        Self { content }
    }
}

impl Measure {
    /// Records that the body was read to its end.
    fn end(&mut self) {
        if self.metrics.wants_stream && self.errors.take_if(|it| !it.has_event()).is_some() {
            self.error_in_stream(); // a stream without an event is no answer
        }
        if let (Some(called), Some(decision)) = (self.called, &self.metrics.decision) {
            let now = gate::now();
            let took = now.saturating_duration_since(called);
            let now = CoarseInstant::at(now);
            let state = decision.endpoint.state();
            state.latency.total.add(took, now);
            if !self.has_error {
                state.ejection.resets.end();
            }
            decision.endpoint.note_end(now);
        }
        self.metrics.outcome = self.outcome;
        if let Some(tokens) = self.tokens.take() {
            tokens.end();
        }
    }

    /// Counts a frame of the body for the token meter and as activity of the endpoint.
    fn frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(errors) = &mut self.errors
            && let Some(data) = frame.data_ref()
            && errors.read(data)
        {
            self.errors = None;
            self.error_in_stream();
        }
        if let Some(tokens) = &mut self.tokens {
            tokens.read(frame);
        }

        if let Some(decision) = &self.metrics.decision {
            decision
                .endpoint
                .state()
                .cold
                .activity
                .fetch_add(1, Relaxed);
        }
    }

    /// Records that the body broke off, or that it was dropped before its end.
    #[cold]
    fn cut_short(&mut self) {
        if let Some(decision) = &self.metrics.decision {
            decision.endpoint.note_end_now();
        }
    }

    /// Records an error in a stream whose status says success.
    #[cold]
    fn error_in_stream(&mut self) {
        self.has_error = true;
        self.outcome = RequestOutcome::ErrorInStream;
        if let Some(observer) = &self.metrics.observer {
            observer.on_error_in_stream();
        }
        self.failed();
    }

    /// Counts the failure of a body, unless the request has failed before.
    fn failed(&mut self) {
        if let Some(decision) = &self.metrics.decision
            && !self.metrics.has_failed
        {
            let shared = &self.metrics.shared;
            let tenant = std::mem::take(&mut self.metrics.tenant);
            let is_own = shared.is_own_trouble(&decision.endpoint, tenant, gate::now());
            shared.body_failed(&decision.endpoint, is_own);
            self.metrics.has_failed = true;
        }
    }

    /// Records that the body broke off, which counts against the endpoint unless the request has failed elsewhere.
    fn reset(&mut self) {
        self.cut_short();
        self.metrics.outcome = RequestOutcome::Reset;
        if let Some(decision) = &self.metrics.decision {
            decision.endpoint.suspect(); // before the slot comes back
        }
        self.failed();
    }
}

fn is_over<B: Body>(body: &Option<B>) -> bool {
    body.as_ref().is_none_or(Body::is_end_stream)
}

/// Ends the measurement once.
fn finish(measure: &mut Option<Box<Measure>>, how: impl FnOnce(&mut Measure)) {
    if let Some(mut measured) = measure.take() {
        how(&mut measured);
    }
}

/// Passes on what a body returned, unless a limit of its slot is over.
#[cold]
#[inline(never)]
fn check(
    limits: &mut LimitedHold<Permit<Endpoints>>,
    polled: Poll<Option<Result<Frame<Bytes>, BoxError>>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    let checked = limits.check(polled, cx);
    checked.map(|checked| checked.unwrap_or_else(|over| Some(Err(over.into()))))
}

/// Returns `true` if the response took longer than its slot may be held, or its slot was recalled. The client may be at
/// fault.
#[cold]
fn is_held_too_long(error: &BoxError) -> bool {
    let hold = error.downcast_ref();
    hold.is_some_and(|error| matches!(error, HoldError::TooLong(_) | HoldError::Stalled))
}

#[cold]
#[inline(never)]
fn poll_status<B>(
    stream: &mut StatusStream<RoutedBody<B>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    Pin::new(stream).poll_frame(cx)
}

/// The error of a body of any kind.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

impl<B> Body for RouteResponseBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (mut body, measured, hold) = match self.project().content.project() {
            ContentProj::Answer {
                body,
                measure,
                hold,
            } => (body, measure, hold),
            ContentProj::Status { stream } => return poll_status(stream, cx),
        };
        let Some(reading) = body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        if let Some(measure) = measured {
            measure.wait.on_taken();
        }
        let polled = reading.poll_frame(cx).map_err(Into::into);
        let polled = match hold {
            None => polled,
            Some(limits) => check(limits, polled, cx),
        };
        let Poll::Ready(frame) = polled else {
            if let Some(measure) = measured {
                measure.wait.set(false);
            }
            return Poll::Pending;
        };
        if let (Some(Ok(frame)), Some(measure)) = (&frame, &mut *measured) {
            measure.frame(frame);
        }
        match &frame {
            // Trailers are the end of the body, because a server reads nothing after them.
            Some(Ok(frame)) if !frame.is_trailers() && !is_over(&body) => {
                if let Some(measure) = measured {
                    // The body waits for the client to read.
                    measure
                        .wait
                        .on_given(frame.data_ref().map_or(0, Bytes::len));
                }
            }
            Some(Ok(_)) | None => finish(measured, Measure::end),
            Some(Err(error)) if is_held_too_long(error) => finish(measured, Measure::cut_short),
            Some(Err(_)) => finish(measured, Measure::reset),
        }
        if let Some(Err(_)) = &frame {
            body.set(None);
        }
        if measured.is_none() {
            *hold = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            // The end is reported only after it was recorded, because the slot comes back once this is `true`.
            Content::Answer { body, measure, .. } => measure.is_none() && is_over(body),
            Content::Status { stream } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Answer { body, .. } => match body {
                Some(body) => body.size_hint(),
                None => SizeHint::with_exact(0),
            },
            Content::Status { stream } => stream.size_hint(),
        }
    }
}
