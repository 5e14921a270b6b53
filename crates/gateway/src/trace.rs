//! The span of a request, which is the parent of the spans of its waits and tries. Only the export of traces needs it.

use http::Request;
use tracing::Span;
#[cfg(feature = "otlp")]
use tracing::{debug_span, field};

use crate::metrics::Labels;

/// Starts the export of traces if the environment asks for it. Returns the layer that collects them.
#[cfg(feature = "otlp")]
pub(crate) use crate::otlp::start as layer;

/// Returns no layer, because this build exports no traces.
#[cfg(not(feature = "otlp"))]
pub(crate) fn layer() -> Result<Option<tracing_subscriber::layer::Identity>, String> {
    Ok(None)
}

/// The span of a request. It is boxed, because most gateways export no traces.
pub(crate) struct RequestSpan(Option<Box<Span>>);

impl RequestSpan {
    /// Begins the span of a call, which belongs to the trace that the request's `traceparent` names. The endpoint gets the
    /// span as the parent of its own spans.
    #[cfg(feature = "otlp")]
    pub(crate) fn begin<B>(request: &mut Request<B>, is_call: bool, labels: Labels) -> Self {
        if !is_call || !crate::otlp::is_on() {
            return Self(None);
        }
        let name = match labels.route {
            Some(route) => format!("{} {route}", labels.method),
            None => labels.method.to_owned(), // the path may be any
        };
        let span = debug_span!(
            "request",
            otel.name = name,
            otel.kind = "server",
            http.request.method = labels.method,
            http.route = labels.route,
            http.response.status_code = field::Empty,
        );
        crate::otlp::join(&span, request.headers_mut());
        Self(Some(Box::new(span)))
    }

    #[cfg(not(feature = "otlp"))]
    pub(crate) fn begin<B>(_: &mut Request<B>, _is_call: bool, _: Labels) -> Self {
        Self(None)
    }

    /// Runs `work` inside of the span.
    #[inline]
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            None => work(),
            Some(span) => span.in_scope(work),
        }
    }

    /// Records the status of the response, if there was one.
    pub(crate) fn end(&self, status: Option<u16>) {
        if let (Some(span), Some(status)) = (&self.0, status) {
            span.record("http.response.status_code", status);
        }
    }
}
