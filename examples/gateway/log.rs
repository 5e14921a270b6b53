//! One line per request, written when its answer has ended: only then is its status the whole truth.

mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use tower_triage::endpoints::Decision;
use tower_triage::gate::PermitBody;
use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;
pub(crate) use writer::{Log, dropped_lines};

/// How many bytes of a method or a path are logged: both are as long as a client likes.
const LONGEST: usize = 1024;

/// Starts logging to standard error, as `TRIAGE_LOG` or `RUST_LOG` say; `info` if neither is there.
pub(crate) fn start(format: LogFormat) -> Log {
    let (writer, log) = writer::start();
    let filter = EnvFilter::try_from_env("TRIAGE_LOG")
        .or_else(|_| EnvFilter::try_from_default_env())
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .log_internal_errors(false) // they would be printed to standard error
        .with_writer(writer);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    // The default hook prints to standard error, and so blocks for as long as that does.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let captured = backtrace.status() == BacktraceStatus::Captured;
        let backtrace = captured.then(|| tracing::field::display(&backtrace));
        tracing::error!(backtrace, "{panic}");
    }));
    log
}

/// How many requests were answered with which status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<BTreeMap<u16, u64>>>);

impl Answers {
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

/// RoomStats and logs a request and its answer.
pub(crate) struct Watched(Option<Line>);

impl Watched {
    pub(crate) fn begin<B>(request: &Request<B>) -> Self {
        // Asked here, so that a line that nobody reads costs no clock and no copies.
        Self(tracing::enabled!(Level::INFO).then(|| Line {
            start: Instant::now(),
            method: request.method().clone(),
            path: cut(request.uri().path()).to_owned(),
            answer: None,
        }))
    }

    /// The line is written when the body is over.
    pub(crate) fn answered<B: Body<Data = Bytes>>(
        self,
        answer: Response<B>,
        answers: &Answers,
    ) -> Response<PermitBody<B, Line>> {
        let (head, body) = answer.into_parts();
        answers.count(head.status.as_u16());
        let line = self.0.map(|line| line.answered(&head));
        Response::from_parts(head, PermitBody::new(body, line))
    }
}

/// Dropped when the request is over: the answer has ended, or the client is gone.
pub(crate) struct Line {
    start: Instant,
    method: Method,
    path: String,
    answer: Option<Answer>,
}

struct Answer {
    status: u16,
    queue_ms: Option<f64>,
    /// There is none if it went nowhere.
    decision: Option<Decision>,
}

impl Line {
    fn answered(mut self, head: &Parts) -> Self {
        self.answer = Some(Answer {
            status: head.status.as_u16(),
            queue_ms: queue_ms(&head.headers),
            decision: head.extensions.get().cloned(),
        });
        self
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self { method, path, .. } = self;
        let method = cut(method.as_str());
        let total_ms = self.start.elapsed().as_micros() as f64 / 1e3;
        match &self.answer {
            Some(Answer {
                status,
                queue_ms,
                decision,
            }) => {
                let decision = decision.as_ref();
                tracing::info!(
                    %method,
                    path,
                    status,
                    queue_ms,
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
            None => tracing::info!(%method, path, total_ms, "request given up by its client"),
        }
    }
}

/// Its beginning, if it is long.
fn cut(text: &str) -> &str {
    let longest = text.len().min(LONGEST);
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The time in the queue, from `server-timing: queue;dur=1.5`.
fn queue_ms(headers: &HeaderMap) -> Option<f64> {
    let timings = headers
        .get_all("server-timing")
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut metrics = timings.flat_map(|timing| timing.split(',')).map(str::trim);
    metrics
        .find_map(|metric| metric.strip_prefix("queue;dur="))?
        .parse()
        .ok()
}
