//! The observation of one request, which makes sure that the request has exactly one last event.

use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, Version};

use super::{Observer, RequestEnd};
use crate::admit::RejectReason;
use crate::gate;
use crate::queue::request_head::RequestHead;
use crate::service::Progress;

/// The observation of one request. It is a guard: an observation that is dropped before the last event reports that the
/// request was given up.
pub(super) struct Observation<O: Observer> {
    observer: O,
    request: O::Request,
    /// The time of the arrival; once the request is admitted, that of the admission.
    since: Instant,
    stage: Stage,
    /// `true` while the queue is called, or its future or body is polled. If it still is when the observation is dropped,
    /// the queue or its inner service panicked.
    is_polled: bool,
    /// `true` for a request of HEAD, whose response has no body.
    is_head: bool,
    /// `true` for a request of CONNECT, which has no body if it succeeds.
    is_connect: bool,
    /// `true` if the version of HTTP is below 2.
    is_http1: bool,
}

/// The stages of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Arrived,
    Queued,
    /// Admitted, and without a response yet.
    Running,
    /// The response has this status, and its body is being read.
    Responding(StatusCode),
    /// The last event has been reported, or the request is exempt.
    Ended,
}

impl<O: Observer> Observation<O> {
    /// Starts the observation of a request that arrives. The queue is called next.
    #[inline]
    pub(super) fn start<B>(observer: O, request: &Request<B>) -> Self {
        let since = gate::now();
        Self {
            request: observer.on_arrived(&RequestHead::of(request)),
            observer,
            since,
            stage: Stage::Arrived,
            is_polled: true,
            is_head: request.method() == Method::HEAD,
            is_connect: request.method() == Method::CONNECT,
            is_http1: request.version() < Version::HTTP_2,
        }
    }

    /// Returns `true` if a response with this status has no body, whatever its head says.
    pub(super) fn has_no_body(&self, status: StatusCode) -> bool {
        let is_without = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        is_without || self.is_head || self.is_connect && status.is_success()
    }

    /// Returns `true` if a server reads a body no further than its length. With HTTP/2, it also reads trailers.
    pub(super) fn ends_by_length(&self) -> bool {
        self.is_http1
    }

    /// Returns `true` until the request has its last event.
    pub(super) fn is_open(&self) -> bool {
        self.stage != Stage::Ended
    }

    /// Returns `true` until the request is admitted.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Arrived | Stage::Queued)
    }

    /// Records that a poll begins, or that a call or a poll has returned.
    #[inline]
    pub(super) fn set_polled(&mut self, is_polled: bool) {
        self.is_polled = is_polled;
    }

    /// Reports the admission, if the request has been admitted since the last call.
    #[inline]
    pub(super) fn follow(&mut self, progress: Progress) {
        if !self.is_waiting() {
            return;
        }
        match progress {
            Progress::Waiting => {}
            // ## Arrived | Queued => Running
            Progress::Admitted { waited } => self.admit(waited),
            // ## Arrived => Ended
            Progress::Exempt => self.stage = Stage::Ended,
        }
    }

    /// Reports that the request waits, if it has not been admitted.
    // ## Arrived => Queued
    #[inline]
    pub(super) fn queue(&mut self) {
        if self.stage == Stage::Arrived {
            self.stage = Stage::Queued;
            self.observer.on_queued(&mut self.request);
        }
    }

    /// Reports the admission of a request that has waited for `waited`.
    pub(super) fn admit(&mut self, waited: Duration) {
        if !waited.is_zero() {
            // A requeued ticket waited before this arrival as well.
            let now = gate::now();
            let admitted = self.since.checked_add(waited);
            self.since = admitted.map_or(now, |admitted| admitted.min(now));
        }
        self.stage = Stage::Running;
        self.observer.on_admitted(&mut self.request, waited);
    }

    /// Reports the admission of a request whose inner service failed or panicked before its admission was seen.
    pub(super) fn admit_late(&mut self) {
        let waited = self.waited();
        self.admit(waited);
    }

    /// Records that there is a response.
    // ## Running => Responding
    pub(super) fn respond(&mut self, status: StatusCode) {
        if self.stage == Stage::Running {
            self.stage = Stage::Responding(status);
        }
    }

    /// Reports the rejection of a request that waited, or was rejected at once.
    // ## Arrived | Queued => Ended
    pub(super) fn reject(&mut self, reason: &RejectReason, status: StatusCode) {
        let waited = self.waited();
        self.stage = Stage::Ended;
        self.observer
            .on_rejected(&mut self.request, reason, status, waited);
    }

    /// Reports that the inner service failed without a response.
    // ## Running => Ended
    pub(super) fn fail(&mut self) {
        if self.stage == Stage::Running {
            self.stage = Stage::Ended;
            self.finish(RequestEnd::ServiceFailed);
        }
    }

    /// Reports the end of a response's body.
    // ## Responding => Ended
    pub(super) fn end_body(&mut self, end: impl FnOnce(StatusCode) -> RequestEnd) {
        if let Stage::Responding(status) = self.stage {
            self.stage = Stage::Ended;
            self.finish(end(status));
        }
    }

    fn finish(&mut self, end: RequestEnd) {
        let ran = gate::now().saturating_duration_since(self.since);
        self.observer.on_finished(&mut self.request, end, ran);
    }

    /// Returns the time since the arrival, or zero for a request that has not begun to wait.
    fn waited(&self) -> Duration {
        match self.stage {
            Stage::Queued => gate::now().saturating_duration_since(self.since),
            _ => Duration::ZERO,
        }
    }
}

impl<O: Observer> Drop for Observation<O> {
    fn drop(&mut self) {
        let end = match self.stage {
            Stage::Ended => return,
            // A panic of `poll_ready`, of `call`, or of the first poll, in which the admission was.
            // ## Arrived | Queued => Ended
            Stage::Arrived | Stage::Queued if self.is_polled => {
                self.admit_late();
                RequestEnd::Panicked
            }
            Stage::Arrived | Stage::Queued => {
                let waited = self.waited();
                return self.observer.on_abandoned(&mut self.request, waited);
            }
            // ## Running | Responding => Ended
            _ if self.is_polled => RequestEnd::Panicked,
            Stage::Running => RequestEnd::Cancelled,
            Stage::Responding(status) => RequestEnd::BodyDropped(status),
        };
        self.finish(end);
    }
}
