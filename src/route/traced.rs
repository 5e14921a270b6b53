//! The spans `triage.try`, one for each call of the inner service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::{Span, debug_span, field};

use crate::endpoints::Decision;

/// An inner service whose calls have the span `triage.try`.
///
/// The span begins with the call and ends with the head of the answer. The inner service is called and polled inside of
/// the span, so its own spans and events belong to the try.
#[derive(Debug, Clone)]
pub struct Traced<S>(S);

impl<S> Traced<S> {
    #[inline]
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S, T, R> Service<Request<T>> for Traced<S>
where
    S: Service<Request<T>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = TracedFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<T>) -> Self::Future {
        let Some(span) = span(&request) else {
            return TracedFuture {
                future: self.0.call(request),
                span: None,
            };
        };
        let future = span.in_scope(|| self.0.call(request));
        let span = Some(Box::new(span));
        TracedFuture { future, span }
    }
}

/// Returns the span of a call. `None` if no subscriber wants it, which takes one load to find out.
#[inline]
fn span<T>(request: &Request<T>) -> Option<Span> {
    let decision = || request.extensions().get::<Decision>();
    // The fields are only evaluated if the span is enabled.
    let span = debug_span!(
        "triage.try",
        endpoint = decision().map(|to| to.endpoint.name()),
        model = decision().map(|to| &*to.model),
        via = decision().map(|to| to.via.as_str()),
        status = field::Empty,
    );
    (!span.is_disabled()).then_some(span)
}

pin_project! {
    /// The future of a call of a [`Traced`] service.
    #[derive(Debug)]
    pub struct TracedFuture<F> {
        #[pin]
        future: F,
        // Boxed, so that the future of a call without a span grows by one word. It is dropped last, because the span covers
        // the end of the call.
        span: Option<Box<Span>>,
    }
}

impl<F, R, E> Future for TracedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(span) = this.span else {
            return this.future.poll(cx);
        };
        let result = ready!(span.in_scope(|| this.future.poll(cx)));
        if let Ok(response) = &result {
            span.record("status", response.status().as_u16());
        }
        *this.span = None;
        Poll::Ready(result)
    }
}
