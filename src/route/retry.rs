//! A request that failed before anything of an answer went out can be tried again, if it is still there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{RETRY_AFTER, TRAILER};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::arrival::{Arrival, Asked, Content};
use super::desk::Desk;
use super::future::Admitted;
use super::request_body::Whole;
use super::verdict::Retry;
use super::{Decision, Demand, EndpointRef, RouteBody};
use crate::gate;
use crate::http::{Rejection, is_grpc};
use crate::service::ResponseOptions;

/// A request as it came, in case that it fails.
pub(super) struct Kept<S, E> {
    desk: Arc<Desk>,
    inner: S,
    head: Parts,
    whole: Whole,
    demand: Demand,
    stream: bool,
    since: Option<Instant>,
    /// When it came, known from its first try on.
    first_came: Option<Instant>,
    /// When it came back, after that.
    came_back_after: Duration,
    /// How many more retries there may be.
    left: u32,
    /// What it is answered with if it finds no other endpoint.
    pub(super) failed: Option<Failed<Bytes, E>>,
}

/// The answer of an endpoint that failed.
pub(super) struct Failed<R, E> {
    pub(super) result: Result<Response<R>, E>,
    pub(super) decision: Decision,
    pub(super) waited: Duration,
    pub(super) options: ResponseOptions,
}

/// Why a request is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unkept {
    /// Nothing is tried again.
    NoRetries,
    TooLarge,
    /// Its body is passed on as it comes.
    Streamed,
}

impl Unkept {
    /// Says why a request that failed is not tried again, if that may surprise.
    pub(super) fn tell(self, decision: &Decision) {
        let endpoint = decision.endpoint.name();
        match self {
            Self::NoRetries => {}
            Self::TooLarge => tracing::warn!(
                endpoint,
                "request not retried: its body is larger than `retry_body_limit_bytes`"
            ),
            Self::Streamed => tracing::debug!(
                endpoint,
                "request not retried: its body is passed on as it comes"
            ),
        }
    }
}

impl<S: Clone> Arrival<S> {
    /// Keeps the request for another try.
    pub(super) fn keep<B, E>(&self, asked: &Asked<B>) -> Result<Box<Kept<S, E>>, Unkept> {
        let retries = self.desk.endpoints().retries();
        if retries.max == 0 {
            return Err(Unkept::NoRetries);
        }
        let Content::Whole(whole) = &asked.content else {
            return Err(Unkept::Streamed);
        };
        if whole.bytes.len() > retries.body_limit {
            return Err(Unkept::TooLarge);
        }
        Ok(Box::new(Kept {
            desk: Arc::clone(&self.desk),
            inner: self.inner.clone(),
            head: self.head.clone(),
            whole: whole.clone(),
            demand: asked.demand.clone(),
            stream: asked.stream,
            since: self.since,
            first_came: None,
            came_back_after: Duration::ZERO,
            left: retries.max,
            failed: None,
        }))
    }
}

impl<S, E> Kept<S, E> {
    /// It was tried, after it `came` and `waited`. Says how long it waited over all its tries.
    pub(super) fn was_tried(&mut self, came: Instant, waited: Duration) -> Duration {
        if self.first_came.is_none() {
            self.first_came = Some(came);
            // Not when it came: those who are turned away are no load, and must not pay for more of it.
            self.desk.deposit();
        }
        let before = self.failed.as_ref().map(|failed| failed.waited);
        before.unwrap_or_default() + waited.saturating_sub(self.came_back_after)
    }

    /// Whether it may be tried once more, after it failed at `endpoint`; if so, that try is paid for, and goes
    /// elsewhere.
    pub(super) fn may_try_again(&mut self, endpoint: &EndpointRef, retry: Retry) -> bool {
        match retry {
            Retry::No => return false,
            Retry::Once => self.left = self.left.min(1),
            Retry::Yes => {}
        }
        if self.left == 0 {
            return false;
        }
        if self.is_too_late() {
            tracing::debug!("request not retried: its deadline has passed");
            return false;
        }
        let elsewhere = self.demand.clone().again(endpoint);
        if !self.desk.endpoints().could_serve(&elsewhere) {
            tracing::debug!("request not retried: no other endpoint could serve it");
            return false;
        }
        if !self.desk.withdraw() {
            tracing::debug!("request not retried: the budget for retries is spent");
            return false;
        }
        self.left -= 1;
        self.demand = elsewhere;
        self.desk.meter.retried(endpoint);
        true
    }

    fn is_too_late(&self) -> bool {
        let now = gate::now();
        let settings = self.desk.common.settings();
        let came = self.since.or(self.first_came).unwrap_or(now);
        let ticket = settings.classifier.ticket(&self.head.headers, came);
        ticket.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Keeps what it is answered with if it finds no other endpoint: what is left of an answer that could not be
    /// read is its status, and when to come back.
    pub(super) fn failed_with(&mut self, answer: Failed<Option<Bytes>, E>) {
        let endpoint = answer.decision.endpoint.name();
        let result = answer.result.map(|response| {
            let (mut head, body) = response.into_parts();
            if let Some(body) = body {
                head.headers.remove(TRAILER); // none were kept
                return Response::from_parts(head, body);
            }
            let why = format!(
                "Endpoint '{endpoint}' answered {}, at such length that nothing else of it was kept while \
                 another endpoint was looked for",
                head.status
            );
            let rejection = Rejection::new(head.status, "upstream_failed", why);
            let mut response = rejection.into_response(is_grpc(&self.head.headers));
            if let Some(after) = head.headers.get(RETRY_AFTER) {
                response.headers_mut().insert(RETRY_AFTER, after.clone());
            }
            response
        });
        self.failed = Some(Failed {
            result,
            decision: answer.decision,
            waited: answer.waited,
            options: answer.options,
        });
    }

    /// Tries it once more.
    pub(super) fn again<B, R>(&mut self) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes>,
    {
        let first_came = *self.first_came.get_or_insert_with(gate::now);
        self.came_back_after = gate::now().saturating_duration_since(first_came);
        let arrival = Arrival {
            desk: Arc::clone(&self.desk),
            inner: self.inner.clone(),
            reservation: None,
            head: self.head.clone(),
            since: self.since,
            first_came: Some(first_came),
        };
        arrival.admit(Asked {
            demand: self.demand.clone(),
            stream: self.stream,
            content: Content::Whole(self.whole.clone()),
        })
    }
}
