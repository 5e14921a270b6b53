//! The tracking of every request: its id, its record among the live ones, its line in the log, its metrics and its span, and its
//! end if an operator cancels it.

mod body;
mod timing;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body as PageBody;
use http::header::{CONNECTION, Entry};
use http::{Extensions, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use tower_triage::RejectReason;
use tower_triage::endpoints::RouteError;
use tower_triage::queue::DelayedHead;
use tower_triage::rejection::{ErrorCode, ToRejection};
use tower_triage::route::RouteObserver;
use tower_triage::upstream::WebsocketBytes;

use crate::live::{Live, Place, Record};
use crate::log::{LogLine, RequestEnd, StatusCounts};
use crate::metrics::{Labels, RequestSeries, method_name};
use crate::pages::{self, is_operators};
use crate::paths;
use crate::request_id::{self, X_REQUEST_ID};
use crate::service::Handle;
use crate::trace::RequestSpan;
pub(crate) use body::TrackedBody;
use timing::StreamTiming;

/// Tells the clients of OpenAI and Anthropic not to send a request again that an operator has cancelled.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Tracks the requests of a server.
pub(crate) struct Tracker {
    live: Live,
    statuses: StatusCounts,
    series: RequestSeries,
    handle: Handle,
}

/// A request that is tracked until this is dropped.
pub(crate) struct Tracked {
    tracker: Arc<Tracker>,
    record: Arc<Record>,
    place: Place,
    start: Instant,
    labels: Labels,
    timing: StreamTiming,
    span: RequestSpan,
    /// `None` if the request is not logged.
    line: Option<Box<LogLine>>,
    is_http1: bool,
    /// `true` for a request that is for more than a page. Only these are listed if they are refused.
    is_call: bool,
    /// `true` for a run of a stored request, which is not a request of a client.
    is_run: bool,
    answer: Option<Answer>,
    /// The bytes that a websocket passes, if the request asked for one.
    websocket: Option<WebsocketBytes>,
    end: RequestEnd,
}

/// The answer to a request.
pub(crate) enum Answer {
    Known {
        status: StatusCode,
        /// The code of an error.
        code: Option<&'static str>,
    },
    /// The answer is in the body, because the response began while the request waited.
    Delayed(DelayedHead),
}

impl Tracker {
    pub(crate) fn new(handle: &Handle, live: &Live) -> Self {
        Self {
            live: live.clone(),
            statuses: StatusCounts::default(),
            series: RequestSeries::default(),
            handle: handle.clone(),
        }
    }

    /// Counts the responses in `statuses`.
    pub(crate) fn counting(mut self, statuses: &StatusCounts) -> Self {
        self.statuses = statuses.clone();
        self
    }

    /// Begins to track a request of a client, and gives it its id.
    ///
    /// What is tracked is boxed, because it is moved with the future and the body of the response.
    pub(crate) fn begin<B>(self: &Arc<Self>, request: &mut Request<B>) -> Box<Tracked> {
        let line = LogLine::begin(request);
        self.begin_with(request, line, false)
    }

    /// Begins to track a run of a stored request, which has the id of the request that its client sent.
    pub(crate) fn begin_run<B>(self: &Arc<Self>, request: &mut Request<B>) -> Box<Tracked> {
        let line = LogLine::begin_run(request);
        self.begin_with(request, line, true)
    }

    #[inline]
    fn begin_with<B>(
        self: &Arc<Self>,
        request: &mut Request<B>,
        line: Option<Box<LogLine>>,
        is_run: bool,
    ) -> Box<Tracked> {
        let start = Instant::now();
        let is_call = *request.method() == Method::POST && !is_operators(request.uri().path());
        let labels = Labels {
            route: paths::route(request.uri().path()),
            method: method_name(request.method()),
            status: None,
        };
        let id = request_id::of(request.headers_mut());
        let record = Arc::new(Record::new(id, line.is_some()));
        let observer: Arc<dyn RouteObserver> = Arc::clone(&record) as _;
        request.extensions_mut().insert(observer);
        Box::new(Tracked {
            tracker: Arc::clone(self),
            place: self.live.insert(&record),
            record,
            start,
            labels,
            timing: StreamTiming::default(),
            span: RequestSpan::begin(request, is_call, labels),
            line,
            is_http1: request.version() < Version::HTTP_2,
            is_call,
            is_run,
            answer: None,
            websocket: None,
            end: RequestEnd::ClientLeft,
        })
    }
}

impl Tracked {
    /// Runs `work` inside of the request's span.
    #[inline]
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    /// Polls the response within the span of its request. Resolves with `None` if an operator cancels the request.
    #[inline]
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        response: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        if self.record.is_cancelled() {
            return Poll::Ready(None);
        }
        match self.span.in_scope(|| response(cx)) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending if self.record.poll_cancelled(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Records the response: its status, and the times of a stream. For a run, nothing else is to be done.
    pub(crate) fn ran<B>(&mut self, response: &Response<B>) {
        let status = response.status();
        self.labels.status = Some(status.as_u16());
        self.answer = Some(Answer::of(status, response.extensions()));
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.websocket = response.extensions().get().cloned();
        }
        match status.is_success() {
            true => self.timing = StreamTiming::of(response.headers()),
            false => self.record.end_wait(),
        }
    }

    /// Counts the response, and completes its head.
    pub(crate) fn answered<B>(&mut self, response: &mut Response<B>) {
        let status = response.status();
        self.tracker.statuses.count(status.as_u16());
        self.ran(response);
        let headers = response.headers_mut();
        match headers.entry(X_REQUEST_ID) {
            Entry::Vacant(entry) => _ = entry.insert(self.record.id.clone()),
            // The backend has an id of its own for the request, which its support asks for.
            Entry::Occupied(entry) => {
                if let Some(line) = &mut self.line {
                    line.backend_id = Some(entry.get().clone());
                }
            }
        }
        // Over HTTP/2, the connection's graceful shutdown says so. A websocket has another value there.
        let may_close = self.is_http1 && status != StatusCode::SWITCHING_PROTOCOLS;
        if may_close && self.tracker.handle.is_closed() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Returns the response to a request that an operator has cancelled.
    #[cold]
    pub(crate) fn cancelled(&self) -> Response<PageBody> {
        let message = "an operator has cancelled the request".to_owned();
        let mut response = self.error(StatusCode::SERVICE_UNAVAILABLE, "cancelled", message);
        let no = HeaderValue::from_static("false");
        response.headers_mut().insert(X_SHOULD_RETRY, no);
        let length = response.body().size_hint().exact().unwrap_or_default();
        self.record.count(length as usize);
        response
    }

    /// Returns an error response in the format of the API that the request is for.
    pub(crate) fn error(
        &self,
        status: StatusCode,
        code: &'static str,
        message: String,
    ) -> Response<PageBody> {
        pages::error_at(self.labels.route.unwrap_or_default(), status, code, message)
    }

    /// Records the request in the metrics.
    fn measure(&self, now: Instant) {
        let series = &self.tracker.series;
        let took = now.saturating_duration_since(self.start);
        if !self.is_run {
            series.ended(self.labels, took);
        }
        self.span.end(self.labels.status);
        let is_success = self.labels.status.is_some_and(|status| status / 100 == 2);
        self.record.with_facts(|facts| {
            if let Some(decision) = facts.decision.as_ref().filter(|_| is_success) {
                let is_complete = self.end == RequestEnd::Complete;
                let answer = self.timing.answer((self.start, now), is_complete, facts);
                series.generated(&decision.model, &answer);
            }
        });
    }

    /// Returns `true` if the endpoint's answer has begun, even if the response began while the request waited.
    fn is_answer_begun(&self) -> bool {
        match &self.answer {
            Some(Answer::Delayed(delayed)) => delayed.get().is_some(),
            answer => answer.is_some(),
        }
    }
}

impl Answer {
    fn of(status: StatusCode, extensions: &Extensions) -> Self {
        // Most responses are successful, so that their extensions need no more than one look.
        if status.is_success() {
            return match extensions.get::<DelayedHead>() {
                Some(delayed) => Self::Delayed(delayed.clone()),
                None => Self::Known { status, code: None },
            };
        }
        let code = code(extensions);
        Self::Known { status, code }
    }

    /// Returns the status and the code. `None` while a delayed answer is not there.
    pub(crate) fn outcome(&self) -> Option<(StatusCode, Option<&'static str>)> {
        match self {
            Self::Known { status, code } => Some((*status, *code)),
            Self::Delayed(delayed) => {
                let head = delayed.get()?;
                Some((head.status, code(&head.extensions)))
            }
        }
    }
}

/// Returns the code of a rejection, of a failure at the endpoint, or of the gateway's own error.
pub(crate) fn code(extensions: &Extensions) -> Option<&'static str> {
    let rejected = extensions.get::<RejectReason<RouteError>>();
    let rejected = rejected.map(|reason| reason.to_rejection().code());
    rejected.or_else(|| extensions.get().map(|&ErrorCode(code)| code))
}

impl Drop for Tracked {
    /// Writes the line and lists a refusal: the response has ended, or the client has disconnected.
    fn drop(&mut self) {
        self.tracker.live.remove(self.place);
        if let Some(bytes) = &self.websocket {
            let bytes = usize::try_from(bytes.from_endpoint());
            self.record.count(bytes.unwrap_or(usize::MAX));
        }
        let now = Instant::now();
        self.measure(now);
        let end = match self.record.is_cancelled() {
            true => RequestEnd::Cancelled,
            false if self.end == RequestEnd::Complete && self.record.has_error_in_stream() => {
                RequestEnd::ErrorInStream
            }
            false => self.end,
        };
        if let Some(line) = self.line.take() {
            let times = (self.start, now);
            line.write(&self.record, self.answer.as_ref(), end, times);
        }
        let outcome = self.answer.as_ref().and_then(Answer::outcome);
        if let Some((status, Some(code))) = outcome.filter(|_| self.is_call) {
            let record = Arc::clone(&self.record);
            self.tracker.live.refused(record, status.as_u16(), code);
        }
    }
}
