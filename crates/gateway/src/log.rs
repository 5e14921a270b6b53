//! The log: one line per request, written when its response body has ended, so that it covers the whole request.

mod fields;
mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Request};
use tracing::{Level, Subscriber};
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::args::LogFormat;
use crate::live::{LONGEST_NAME, Record};
use crate::text::truncated;
use crate::trace;
use crate::track::Answer;
use fields::OneLine;
pub(crate) use writer::{LogThread, dropped_lines, error_line};

/// Bytes of a path that are logged. Clients choose its length.
const LONGEST_PATH: usize = 1024;

/// The default filter. Of the database of stored requests, problems alone are logged.
const DEFAULT_FILTER: &str = "info,fjall=warn,lsm_tree=warn";

/// Starts logging to standard error, filtered by `TRIAGE_LOG`, else by `RUST_LOG`, else by [`DEFAULT_FILTER`].
pub(crate) fn start(format: LogFormat) -> LogThread {
    let (writer, log) = writer::start(format);
    let (filter, mut problems) = filter(|name| std::env::var(name).ok());
    match trace::layer() {
        Ok(None) => write_lines(format, writer, filter),
        // The filter is one of the log alone, which makes each event dearer.
        Ok(Some(traces)) => {
            let lines = lines(format, writer).with_filter(filter);
            tracing_subscriber::registry()
                .with(traces)
                .with(lines)
                .init();
        }
        Err(problem) => {
            write_lines(format, writer, filter);
            problems.push(problem);
        }
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

/// Installs the log as all that there is to collect.
fn write_lines(format: LogFormat, writer: NonBlocking, filter: EnvFilter) {
    let lines = tracing_subscriber::fmt()
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .log_internal_errors(false) // would write to standard error directly, and may block
        .with_writer(writer);
    match format {
        LogFormat::Text => lines.fmt_fields(OneLine).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Returns the layer that writes the log beside a layer that exports traces.
fn lines<S>(format: LogFormat, writer: NonBlocking) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false) // would write to standard error directly, and may block
        .with_writer(writer);
    match format {
        LogFormat::Text => lines.fmt_fields(OneLine).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
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

    pub(crate) fn count(&self, status: u16) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(status).or_default() += 1;
    }
}

/// The log line of a request, written when the request has ended. Its text is quoted and escaped by the log, whatever its
/// client put into it.
pub(crate) struct LogLine {
    method: Method,
    path: String,
    /// The run of a stored request that the line is of.
    run: Option<Run>,
    /// The id that the backend gave to the request.
    pub(crate) backend_id: Option<HeaderValue>,
}

/// A run of a stored request: the id of the stored request, and the number of the run, from 1.
struct Run {
    stored: Option<HeaderValue>,
    attempt: Option<HeaderValue>,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RequestEnd {
    /// The whole response was sent.
    Complete,
    /// The client disconnected before.
    ClientLeft,
    /// The body of the response broke off at the endpoint.
    BrokeOff,
    /// The whole response was sent. It is an error, or has one in it, although its status says success.
    ErrorInStream,
    /// An operator has cancelled the request.
    Cancelled,
}

impl RequestEnd {
    fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientLeft => "client_disconnected",
            Self::BrokeOff => "broke_off",
            Self::ErrorInStream => "error_in_stream",
            Self::Cancelled => "cancelled",
        }
    }
}

impl LogLine {
    /// Begins the line of a request. `None` if the log level is above `info`.
    pub(crate) fn begin<B>(request: &Request<B>) -> Option<Box<Self>> {
        // Checked first, so that a filtered line costs no copies.
        tracing::enabled!(Level::INFO).then(|| {
            Box::new(Self {
                method: request.method().clone(),
                path: truncated(request.uri().path(), LONGEST_PATH).to_owned(),
                run: None,
                backend_id: None,
            })
        })
    }

    /// Begins the line of a run of a stored request.
    pub(crate) fn begin_run<B>(request: &Request<B>) -> Option<Box<Self>> {
        let mut line = Self::begin(request)?;
        let value = |name| request.headers().get(name).cloned();
        line.run = Some(Run {
            stored: value("x-triage-request-id"),
            attempt: value("x-triage-attempt"),
        });
        Some(line)
    }

    /// Writes the line of a request that began at `start` and ended at `now`.
    pub(crate) fn write(
        &self,
        record: &Record,
        answer: Option<&Answer>,
        end: RequestEnd,
        (start, now): (Instant, Instant),
    ) {
        let facts = record.facts();
        let outcome = answer.and_then(Answer::outcome);
        let is_delayed = matches!(answer, Some(Answer::Delayed(_)));
        let status = match is_delayed {
            true => Some(200), // the stream of events, which has begun
            false => outcome.map(|(status, _)| status.as_u16()),
        };
        let decision = facts.decision.as_ref();
        let served = decision.map(|to| &*to.model);
        let asked = facts.asked.as_deref().filter(|asked| served != Some(asked));
        let run = self.run.as_ref();
        tracing::info!(
            id = record.id(),
            stored = run.and_then(|run| run.stored.as_ref()?.to_str().ok()),
            attempt = run.and_then(|run| run.attempt.as_ref()?.to_str().ok()),
            method = %truncated(self.method.as_str(), LONGEST_NAME), // a token, which needs no quotes
            path = self.path,
            status,
            answered = outcome
                .filter(|_| is_delayed)
                .map(|(status, _)| status.as_u16()),
            code = outcome.and_then(|(_, code)| code),
            result = end.name(),
            level = facts.level(),
            tenant = facts.tenant(),
            model = served.map(|model| truncated(model, LONGEST_NAME)),
            asked = asked.map(|asked| truncated(asked, LONGEST_NAME)),
            endpoint = facts.endpoint(),
            via = decision.map(|to| to.via.as_str()),
            strategy = decision.map(|to| to.strategy),
            score = decision.and_then(|to| to.score),
            tries = facts.level().map(|_| facts.tries),
            queue_ms = facts.level().map(|_| ms(facts.waited(now))),
            first_byte_ms = facts.first_byte().map(ms),
            total_ms = ms(now.saturating_duration_since(start)),
            bytes = record.bytes(),
            backend_id = self.backend_id(record),
            prompt_tokens = facts.prompt_tokens,
            tokens = facts.tokens,
            "request"
        );
    }

    /// Returns the id that the backend gave to the request, unless it is the request's own.
    fn backend_id(&self, record: &Record) -> Option<&str> {
        let id = self.backend_id.as_ref()?.to_str().ok()?;
        (id != record.id()).then(|| truncated(id, LONGEST_NAME))
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
