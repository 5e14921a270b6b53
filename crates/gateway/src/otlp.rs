//! The export of traces by OTLP over HTTP. `OTEL_EXPORTER_OTLP_ENDPOINT` turns it on; the other variables are those of
//! OpenTelemetry's specification.

use std::env;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tracing::{Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};

/// The variables that turn the export on.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The name of the service, unless a variable sets another one.
const SERVICE: &str = "tower-triage-gateway";

/// The longest time that an export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that the last export may take, when the gateway has nothing else to do.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(1);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Returns `true` if traces are exported.
pub(crate) fn is_on() -> bool {
    PROVIDER.get().is_some()
}

/// Starts the export if the environment asks for it. Returns the layer that collects the spans.
pub(crate) fn start() -> Result<Option<impl Layer<Registry> + Send + Sync>, String> {
    let is_set = |name| env::var(name).is_ok_and(|value: String| !value.is_empty());
    let says = |name, value| env::var(name).is_ok_and(|it| it.eq_ignore_ascii_case(value));
    let is_off = says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none");
    if is_off || !ENDPOINTS.into_iter().any(is_set) {
        return Ok(None);
    }
    let exporter = exporter().map_err(|error| format!("traces are not exported: {error}"))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource())
        .build();
    let tracer = provider.tracer("gateway");
    PROVIDER.get_or_init(|| provider);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false);
    Ok(Some(layer.with_filter(filter_fn(is_exported))))
}

/// Returns `true` for the spans of the gateway and of the library. The spans of other crates tell nothing of requests.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_span()
        && (target.starts_with("tower_triage") || target.starts_with("triage_gateway"))
}

fn exporter() -> Result<SpanExporter, HttpError> {
    let client = ExportClient::new()?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    Ok(exporter.build()?)
}

fn resource() -> Resource {
    let variables = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];
    let is_named = variables.into_iter().filter_map(|name| env::var(name).ok());
    let resource = Resource::builder();
    match is_named.into_iter().any(|value| !value.is_empty()) {
        true => resource.build(),
        false => resource.with_service_name(SERVICE).build(),
    }
}

/// Makes `span` a part of the trace that `headers` name, and names `span` in `headers` as the parent of later spans.
pub(crate) fn join(span: &Span, headers: &mut HeaderMap) {
    let propagator = TraceContextPropagator::new();
    let parent = propagator.extract(&HeaderExtractor(headers));
    _ = span.set_parent(parent); // fails if the span is not exported
    propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
}

/// Exports the spans that are left. Blocks for as long as that takes, up to [`LAST_EXPORT_TIMEOUT`].
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown_with_timeout(LAST_EXPORT_TIMEOUT)
    {
        tracing::warn!(%error, "the last traces could not be exported");
    }
}

/// The client of the exporter. It has a runtime of its own, because the exporter calls it from a thread without one.
struct ExportClient {
    runtime: Runtime,
    /// `true` if the last export failed.
    fails: AtomicBool,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl ExportClient {
    fn new() -> Result<Self, HttpError> {
        let connector = HttpsConnectorBuilder::new().with_native_roots()?;
        let connector = connector.https_or_http().enable_http1().build();
        Ok(Self {
            fails: AtomicBool::new(false),
            runtime: Builder::new_current_thread().enable_all().build()?,
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Logs the first of several failures, and the end of them.
    fn log_change(&self, error: Option<&HttpError>) {
        match (self.fails.swap(error.is_some(), Ordering::Relaxed), error) {
            (false, Some(error)) => {
                tracing::warn!(%error, "traces cannot be exported, and are lost")
            }
            (true, None) => tracing::info!("traces are exported again"),
            _ => {}
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.request(request.map(Full::new)).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

impl HttpClient for ExportClient {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        // The exporter's thread may block: it does nothing else.
        Box::pin(async move {
            let send = async { timeout(EXPORT_TIMEOUT, self.send(request)).await };
            let sent = self.runtime.block_on(send);
            let sent = sent.unwrap_or_else(|late| Err(late.into()));
            self.log_change(sent.as_ref().err());
            sent
        })
    }
}

impl fmt::Debug for ExportClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportClient").finish_non_exhaustive()
    }
}
