//! Retries, which keep a request so that it can go to another endpoint until a part of a response went out.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{RETRY_AFTER, TRAILER};
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower::retry::budget::Budget;
use tower_service::Service;

use super::attempt::Admitted;
use super::parsed_request::RequestHead;
use super::response_body::BoxError;
use super::response_class::Retry;
use super::{AtMostOnce, RouteBody};
use crate::endpoints::{Decision, Demand, EndpointRef, RouteError};
use crate::gate;
use crate::http::Rejection;
use crate::queue;
use crate::service::{ResponseOptions, ask_for_identity};

/// A request as it came, together with its remaining retries.
pub(super) struct RetryState<S, E> {
    /// The request as it came. Its first arrival is known from the first attempt on.
    request: RequestHead<S>,
    demand: Demand,
    /// The time from the arrival that a retry keeps to the start of the current attempt.
    requeued_after: Duration,
    retries_left: u32,
    /// `true` once the request has waited for its endpoint to be started again.
    has_awaited_start: bool,
    /// The response to send if the request can be served nowhere else.
    pub(super) failed: Option<Box<FailedResponse<E>>>,
}

/// The state for retries of the request, or the reason why the request cannot be retried.
pub(super) type Retryable<S, E> = Result<Box<RetryState<S, E>>, NotRetryable>;

/// The response of an endpoint that failed.
pub(super) struct FailedResponse<E> {
    pub(super) result: Result<Response<Bytes>, E>,
    pub(super) decision: Decision,
    /// The total wait of all attempts.
    pub(super) waited: Duration,
    pub(super) options: ResponseOptions,
}

/// The reason why a request cannot be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotRetryable {
    /// Retries are switched off, and the endpoints have neither adaptive limits nor a start on demand.
    NoRetries,
    /// One endpoint alone could serve the request when it arrived.
    OneEndpoint,
    /// The body of the request is too large to be kept.
    TooLarge,
    /// The body of the request is streamed.
    Streamed,
}

impl NotRetryable {
    /// Logs the reason why a failed request is not retried, if it may be a surprise.
    pub(super) fn log(self, decision: &Decision) {
        let endpoint = decision.endpoint.name();
        match self {
            Self::NoRetries => {}
            Self::OneEndpoint => {
                tracing::debug!(
                    endpoint,
                    "request not retried: no other endpoint could serve it"
                )
            }
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

impl<S: Clone, E> RetryState<S, E> {
    /// Keeps a copy of the request for retries, or returns the reason why it cannot be retried.
    pub(super) fn keep(request: &RequestHead<S>, demand: &Demand) -> Retryable<S, E> {
        let attempt = &request.attempt;
        let table = attempt.shared.endpoints().table.load();
        let routing = &table.rules.config;
        let mut endpoints = table.endpoints.iter();
        let may_requeue = |it: &EndpointRef| it.is_adaptive() || it.config().is_on_demand();
        if routing.max_retries == 0 && !endpoints.any(may_requeue) {
            return Err(NotRetryable::NoRetries);
        }
        let body = attempt.body.as_ref().ok_or(NotRetryable::Streamed)?;
        if body.bytes.len() > routing.retry_body_limit_bytes {
            return Err(NotRetryable::TooLarge);
        }
        if !table.may_attempt_again(demand) {
            return Err(NotRetryable::OneEndpoint);
        }
        Ok(Box::new(Self {
            request: request.clone(),
            demand: demand.clone(),
            requeued_after: Duration::ZERO,
            retries_left: routing.max_retries,
            has_awaited_start: false,
            failed: None,
        }))
    }
}

impl<S, E> RetryState<S, E> {
    /// Records an attempt at `model` that arrived at `arrived` and waited for `waited`. Returns the total wait of all
    /// attempts.
    #[inline]
    pub(super) fn attempted(
        &mut self,
        model: &str,
        arrived: Instant,
        waited: Duration,
    ) -> Duration {
        let attempt = &mut self.request.attempt;
        if attempt.first_arrival.is_none() {
            attempt.first_arrival = Some(arrived);
            // The deposit is made at the first attempt and not on arrival, because rejected requests are not load and
            // so must not earn retries.
            let table = attempt.shared.endpoints().table.load();
            if let Some(budget) = table.retry_budget(model) {
                budget.deposit();
            }
        }
        // `waited` counts from the arrival that a retry keeps, so only the part since the requeueing is new.
        let before = self.failed.as_ref().map(|failed| failed.waited);
        before.unwrap_or_default() + waited.saturating_sub(self.requeued_after)
    }

    /// Takes the failure that the client gets because a retry was refused a slot. `waited` is counted as in
    /// [`attempted`](Self::attempted).
    pub(super) fn refused(&mut self, waited: Duration) -> Option<Box<FailedResponse<E>>> {
        let mut failed = self.failed.take()?;
        failed.waited += waited.saturating_sub(self.requeued_after);
        Some(failed)
    }

    /// Returns `true` if the request may be retried after it failed by the decision `failed`. The retry is then withdrawn from
    /// the budget of its model, and the demand excludes the endpoint.
    pub(super) fn may_retry(&mut self, failed: &Decision, advice: Retry) -> bool {
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
        let shared = &self.request.attempt.shared;
        let elsewhere = self.demand.clone().retry(&failed.endpoint);
        let table = shared.endpoints().table.load();
        if table.pools_in_order(&elsewhere.asked).is_empty() {
            tracing::debug!("request not retried: no other endpoint could serve it");
            return false;
        }
        // This check is the last one, because it takes a retry from the budget.
        let budget = table.retry_budget(&failed.model);
        if budget.is_some_and(|budget| !budget.withdraw()) {
            tracing::debug!("request not retried: the budget for retries is spent");
            return false;
        }
        self.retries_left -= 1;
        self.demand = elsewhere;
        true
    }

    /// Returns the error that replaces the missing response of an endpoint, if every endpoint of a fallback chain has
    /// been tried.
    pub(super) fn exhausted_chain(&self, failed: &Decision) -> Option<RouteError> {
        let elsewhere = self.demand.clone().retry(&failed.endpoint);
        let table = self.request.attempt.shared.endpoints().table.load();
        table.exhausted_chain(&elsewhere.asked)
    }

    /// Returns the headers of the request.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.request.head.headers
    }

    /// Returns `true` if the request may wait for another slot, because the endpoint refused it as one too many. Such a wait
    /// costs neither a retry nor a part of the budget.
    pub(super) fn may_requeue(&self) -> bool {
        !self.is_too_late()
    }

    /// Returns `true`, once, if the request may wait for a slot again because an on-demand endpoint, which may have ended a
    /// moment ago, refused the connection. The wait costs neither a retry nor a part of the budget.
    pub(super) fn may_await_start(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.has_awaited_start, true);
        // A request that was sent over a kept connection before may have ended the endpoint, and it may end the next
        // one, too. So at most one retry is left.
        self.retries_left = self.retries_left.min(1);
        is_first && !self.is_too_late()
    }

    /// Returns `true` if the request must not go to another endpoint after one endpoint may have worked on it.
    pub(super) fn is_at_most_once(&self) -> bool {
        self.request.head.extensions.get::<AtMostOnce>().is_some()
    }

    /// Makes the later attempts ask for a response without a content encoding.
    pub(super) fn ask_for_identity(&mut self) {
        ask_for_identity(&mut self.request.head.headers);
    }

    fn is_too_late(&self) -> bool {
        let now = gate::now();
        let head = queue::RequestHead::of_parts(&self.request.head);
        let ticket = self.request.attempt.classify(&head, now);
        ticket.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Completes the response of the failed attempt with its body. If the body could not be read, only the status and
    /// `Retry-After` are kept, and a short explanation replaces the body.
    pub(super) fn failed_with(&mut self, body: Option<Bytes>) {
        let Some(failed) = &mut self.failed else {
            return;
        };
        let Ok(response) = &mut failed.result else {
            return;
        };
        if let Some(body) = body {
            response.headers_mut().remove(TRAILER); // trailers are not kept
            *response.body_mut() = body;
            return;
        }
        let status = response.status();
        let why = format!(
            "Endpoint '{}' answered {status}, at such length that nothing else of it was kept while \
             another endpoint was looked for",
            failed.decision.endpoint.name(),
        );
        let after = response.headers_mut().remove(RETRY_AFTER);
        let rejection = Rejection::new(status, "upstream_failed", why);
        *response = rejection.into_response_to(&self.request.head.headers);
        if let Some(after) = after {
            response.headers_mut().insert(RETRY_AFTER, after);
        }
    }

    /// Begins the next attempt. The slot of the failed attempt is already free.
    pub(super) fn next_attempt<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        R: Body<Data = Bytes>,
    {
        let attempt = &mut self.request.attempt;
        attempt.shared.pass_probe_on(); // if the failed attempt was a probe, a waiter may be the next one
        let now = gate::now();
        let first_arrival = *attempt.first_arrival.get_or_insert(now);
        self.requeued_after = now.saturating_duration_since(first_arrival);
        attempt.failed_at = self.failed.as_ref().map(|it| it.decision.endpoint.clone());
        let body = attempt.body.clone().unwrap_or_default().unchanged();
        self.request.clone().admit(self.demand.clone(), body)
    }
}
