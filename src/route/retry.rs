//! Retries: keeps a request, to try it again at another endpoint as long as nothing of a response went out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{RETRY_AFTER, TRAILER};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::retry::budget::Budget;
use tower_service::Service;

use super::RouteBody;
use super::attempt::Admitted;
use super::parsed_request::{ParsedBody, ParsedRequest, RequestHead};
use super::request_body::BufferedBody;
use super::response_class::Retry;
use super::shared::RouterShared;
use crate::endpoints::{Decision, Demand, EndpointRef};
use crate::gate;
use crate::http::Rejection;
use crate::service::ResponseOptions;

/// A request as it came, and what is left of its retries.
pub(super) struct RetryState<S, E> {
    shared: Arc<RouterShared>,
    inner: S,
    head: Parts,
    body: BufferedBody,
    demand: Demand,
    stream: bool,
    since: Option<Instant>,
    /// Known from the first attempt on.
    first_arrival: Option<Instant>,
    /// From the first arrival to the start of this attempt.
    requeued_after: Duration,
    retries_left: u32,
    /// The response if no other endpoint can serve the request.
    pub(super) failed: Option<FailedResponse<Bytes, E>>,
}

/// What a retry of the request needs, or why it cannot be retried.
pub(super) type Retryable<S, E> = Result<Box<RetryState<S, E>>, NotRetryable>;

/// The response of an endpoint that failed.
pub(super) struct FailedResponse<R, E> {
    pub(super) result: Result<Response<R>, E>,
    pub(super) decision: Decision,
    pub(super) waited: Duration,
    pub(super) options: ResponseOptions,
}

/// Why a request cannot be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotRetryable {
    /// Retries are off.
    NoRetries,
    /// Its body is too large to be kept.
    TooLarge,
    /// Its body is streamed.
    Streamed,
}

impl NotRetryable {
    /// Logs why a request that failed is not retried, if that may surprise.
    pub(super) fn log(self, decision: &Decision) {
        let endpoint = decision.endpoint.name();
        match self {
            Self::NoRetries => {}
            Self::TooLarge => tracing::warn!(
                endpoint,
                "request not retried: its body is larger than `retry_body_limit_bytes`"
            ),
            Self::Streamed => {
                tracing::debug!(endpoint, "request not retried: its body is streamed")
            }
        }
    }
}

impl<S: Clone> RequestHead<S> {
    /// Keeps the request for retries.
    pub(super) fn keep<B, E>(
        &self,
        parsed: &ParsedRequest<B>,
    ) -> Result<Box<RetryState<S, E>>, NotRetryable> {
        let table = self.shared.endpoints().table.load();
        let routing = &table.rules.config;
        if routing.max_retries == 0 {
            return Err(NotRetryable::NoRetries);
        }
        let ParsedBody::Buffered(body) = &parsed.body else {
            return Err(NotRetryable::Streamed);
        };
        if body.bytes.len() > routing.retry_body_limit_bytes {
            return Err(NotRetryable::TooLarge);
        }
        Ok(Box::new(RetryState {
            shared: Arc::clone(&self.shared),
            inner: self.inner.clone(),
            head: self.head.clone(),
            body: body.clone(),
            demand: parsed.demand.clone(),
            stream: parsed.stream,
            since: self.since,
            first_arrival: None,
            requeued_after: Duration::ZERO,
            retries_left: routing.max_retries,
            failed: None,
        }))
    }
}

impl<S, E> RetryState<S, E> {
    /// Records an attempt that arrived at `arrived` and waited for `waited`. Returns the wait of all attempts together.
    pub(super) fn attempted(&mut self, arrived: Instant, waited: Duration) -> Duration {
        if self.first_arrival.is_none() {
            self.first_arrival = Some(arrived);
            // With the first attempt, not on arrival: rejected requests are no load and earn no retries.
            self.shared.budget.load().deposit();
        }
        // `waited` counts from the first arrival: only the part since the requeueing is new.
        let before = self.failed.as_ref().map(|failed| failed.waited);
        before.unwrap_or_default() + waited.saturating_sub(self.requeued_after)
    }

    /// Whether the request may be retried after it failed at `endpoint`. If so, the retry is paid for and its demand
    /// excludes that endpoint.
    pub(super) fn may_retry(&mut self, endpoint: &EndpointRef, advice: Retry) -> bool {
        match advice {
            Retry::No => return false,
            Retry::Once => self.retries_left = self.retries_left.min(1),
            Retry::Yes => {}
        }
        if self.retries_left == 0 {
            return false;
        }
        if self.is_too_late() {
            tracing::debug!("request not retried: its deadline has passed");
            return false;
        }
        let elsewhere = self.demand.clone().retry(endpoint);
        if !self.shared.endpoints().could_serve(&elsewhere) {
            tracing::debug!("request not retried: no other endpoint could serve it");
            return false;
        }
        // Last, because it takes from the budget.
        if !self.shared.budget.load().withdraw() {
            tracing::debug!("request not retried: the budget for retries is spent");
            return false;
        }
        self.retries_left -= 1;
        self.demand = elsewhere;
        self.shared.metrics.retried(endpoint);
        true
    }

    fn is_too_late(&self) -> bool {
        let now = gate::now();
        let settings = self.shared.state.settings();
        let arrived = self.since.or(self.first_arrival).unwrap_or(now);
        let ticket = settings.classifier.ticket(&self.head.headers, arrived);
        ticket.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Keeps the response of the failed attempt, in case that no other endpoint can serve the request. Of one that
    /// could not be read, the status and `Retry-After` are left.
    pub(super) fn failed_with(&mut self, failed: FailedResponse<Option<Bytes>, E>) {
        let endpoint = failed.decision.endpoint.name();
        let result = failed.result.map(|response| {
            let (mut head, body) = response.into_parts();
            if let Some(body) = body {
                // Read whole: passed on as it is.
                head.headers.remove(TRAILER); // trailers are not kept
                return Response::from_parts(head, body);
            }
            let why = format!(
                "Endpoint '{endpoint}' answered {}, at such length that nothing else of it was kept while \
                 another endpoint was looked for",
                head.status
            );
            let rejection = Rejection::new(head.status, "upstream_failed", why);
            let mut response = rejection.into_response_to(&self.head.headers);
            if let Some(after) = head.headers.get(RETRY_AFTER) {
                response.headers_mut().insert(RETRY_AFTER, after.clone());
            }
            response
        });
        self.failed = Some(FailedResponse {
            result,
            decision: failed.decision,
            waited: failed.waited,
            options: failed.options,
        });
    }

    /// Begins the next attempt.
    pub(super) fn next_attempt<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let first_arrival = *self.first_arrival.get_or_insert_with(gate::now);
        self.requeued_after = gate::now().saturating_duration_since(first_arrival);
        let head = RequestHead {
            shared: Arc::clone(&self.shared),
            inner: self.inner.clone(),
            reservation: None,
            head: self.head.clone(),
            since: self.since,
            first_arrival: Some(first_arrival),
        };
        head.admit(ParsedRequest {
            demand: self.demand.clone(),
            stream: self.stream,
            body: ParsedBody::Buffered(self.body.clone()),
        })
    }
}
