//! The log: one line per request, written when its response body has ended, so that it covers the whole request.

mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::response::Parts;
use http::{Extensions, Method, Request, Response};
use http_body::Body;
use tower_triage::RejectReason;
use tower_triage::endpoints::{Decision, RouteError};
use tower_triage::gate::PermitBody;
use tower_triage::queue::{DelayedHead, QueueTime};
use tower_triage::rejection::ToRejection;
use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;
pub(crate) use writer::{LogThread, dropped_lines};

/// Bytes of a method or a path that are logged. Clients choose the length of both.
const MAX_LOGGED_BYTES: usize = 1024;

/// The default filter. Of the database of stored requests, problems alone are logged.
const DEFAULT_FILTER: &str = "info,fjall=warn,lsm_tree=warn";

/// Starts logging to standard error, filtered by `TRIAGE_LOG`, else by `RUST_LOG`, else by [`DEFAULT_FILTER`].
pub(crate) fn start(format: LogFormat) -> LogThread {
    let (writer, log) = writer::start();
    let (filter, problems) = filter(|name| std::env::var(name).ok());
    let lines = tracing_subscriber::fmt()
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .log_internal_errors(false) // would write to standard error directly, and may block
        .with_writer(writer);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    for problem in problems {
        tracing::warn!("{problem}");
    }
    // The default hook writes to standard error directly, and blocks as long as that does.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        let backtrace = captured.then(|| tracing::field::display(&backtrace));
        tracing::error!(backtrace, "{panic}");
    }));
    log
}

/// The filter that the environment asks for, and what is wrong with the variables that were passed over.
fn filter(variable: impl Fn(&str) -> Option<String>) -> (EnvFilter, Vec<String>) {
    let mut problems = Vec::new();
    for name in ["TRIAGE_LOG", "RUST_LOG"] {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        match EnvFilter::try_new(&value) {
            Ok(filter) => return (filter, problems),
            Err(error) => problems.push(format!("{name}={value:?} is ignored: {error}")),
        }
    }
    (EnvFilter::new(DEFAULT_FILTER), problems)
}

/// Number of responses by status code.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusCounts(Arc<Mutex<BTreeMap<u16, u64>>>);

impl StatusCounts {
    pub(crate) fn by_status(&self) -> BTreeMap<u16, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn count(&self, status: u16) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(status).or_default() += 1;
    }
}

/// Counts and logs a request and its response. Without a line if the log level is above `info`.
pub(crate) struct RequestLog(Option<LogLine>);

impl RequestLog {
    pub(crate) fn begin<B>(request: &Request<B>) -> Self {
        // Checked first, so that a filtered line costs no clock read and no copies.
        Self(tracing::enabled!(Level::INFO).then(|| LogLine {
            start: Instant::now(),
            method: request.method().clone(),
            path: truncate(request.uri().path()).to_owned(),
            response: None,
        }))
    }

    /// Counts the status, and moves the line into the body, which writes it when it is dropped.
    pub(crate) fn attach<B: Body<Data = Bytes>>(
        self,
        response: Response<B>,
        statuses: &StatusCounts,
    ) -> Response<PermitBody<B, LogLine>> {
        let (head, body) = response.into_parts();
        statuses.count(head.status.as_u16());
        let line = self.0.map(|line| line.with_response(&head));
        Response::from_parts(head, PermitBody::new(body, line))
    }
}

/// A log line, written when it is dropped: the response has ended, or the client has disconnected.
pub(crate) struct LogLine {
    start: Instant,
    method: Method,
    path: String,
    response: Option<ResponseInfo>,
}

struct ResponseInfo {
    status: u16,
    result: RequestResult,
}

/// The result of a request.
enum RequestResult {
    Known(Outcome),
    /// The result is in the body, because the response began while the request waited.
    Delayed(DelayedHead),
}

struct Outcome {
    /// The status of a delayed answer.
    answered: Option<u16>,
    queue_ms: Option<f64>,
    /// The reason of a rejection.
    code: Option<&'static str>,
    /// `None` if the request reached no endpoint.
    decision: Option<Decision>,
}

impl Outcome {
    fn of(extensions: &Extensions) -> Self {
        let reason = extensions.get::<RejectReason<RouteError>>();
        Self {
            answered: None,
            queue_ms: queue_ms(extensions),
            code: reason.map(|reason| reason.to_rejection().code()),
            decision: extensions.get().cloned(),
        }
    }

    /// Returns what came of a request whose response began while it waited, once that has ended.
    fn of_delayed(head: &Parts) -> Self {
        Self {
            answered: Some(head.status.as_u16()),
            ..Self::of(&head.extensions)
        }
    }
}

impl LogLine {
    fn with_response(mut self, head: &Parts) -> Self {
        self.response = Some(ResponseInfo {
            status: head.status.as_u16(),
            result: match head.extensions.get::<DelayedHead>() {
                Some(delayed) => RequestResult::Delayed(delayed.clone()),
                None => RequestResult::Known(Outcome::of(&head.extensions)),
            },
        });
        self
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let Self {
            method,
            path,
            response,
            start,
        } = self;
        let method = truncate(method.as_str());
        let total_ms = start.elapsed().as_micros() as f64 / 1e3;
        let Some(ResponseInfo { status, result }) = response.take() else {
            tracing::info!(%method, path, total_ms, "client disconnected before the response");
            return;
        };
        let outcome = match result {
            RequestResult::Known(outcome) => outcome,
            RequestResult::Delayed(delayed) => match delayed.get() {
                Some(head) => Outcome::of_delayed(head),
                None => {
                    tracing::info!(%method, path, status, total_ms, "client disconnected while its request waited");
                    return;
                }
            },
        };
        let decision = outcome.decision.as_ref();
        tracing::info!(
            %method,
            path,
            status,
            answered = outcome.answered,
            code = outcome.code,
            queue_ms = outcome.queue_ms,
            endpoint = decision.map(|to| to.endpoint.name()),
            model = decision.map(|to| &*to.model),
            asked = decision.filter(|to| to.asked != to.model).map(|to| &*to.asked),
            via = decision.map(|to| to.via.as_str()),
            strategy = decision.map(|to| to.strategy),
            score = decision.and_then(|to| to.score),
            retries = decision.map(|to| to.retries),
            total_ms,
            "request"
        );
    }
}

/// The first [`MAX_LOGGED_BYTES`] of `text`, cut at a character boundary.
fn truncate(text: &str) -> &str {
    let longest = text.len().min(MAX_LOGGED_BYTES);
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The time in the queue in ms; `None` if the response is not that of a routed or rejected request.
fn queue_ms(extensions: &Extensions) -> Option<f64> {
    let is_routed = extensions.get::<Decision>().is_some();
    let is_rejected = extensions.get::<RejectReason<RouteError>>().is_some();
    let waited = extensions.get::<QueueTime>();
    let ms = waited.map_or(0.0, |QueueTime(waited)| waited.as_micros() as f64 / 1e3);
    (is_routed || is_rejected).then_some(ms)
}
