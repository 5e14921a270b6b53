//! The protocol of services that are not HTTP.

use std::time::{Duration, Instant};

use tower_service::Service;

use super::{Protocol, sealed};
use crate::admit::{Priority, RejectReason, Ticket};
use crate::gate::BodyPermit;
use crate::queue::classify::{Classify, ClassifyContext, DefaultPriority};
use crate::queue::error::QueueError;

/// Anything else: rejections are [`QueueError`]s, and the slot is held until the response is there.
///
/// [`streaming`](crate::QueueConfig::streaming), [`status_stream`](crate::QueueConfig::status_stream),
/// [`server_timing`](crate::QueueConfig::server_timing), [`retry_after`](crate::QueueConfig::retry_after),
/// [`hold`](crate::QueueConfig::hold) and the header names of the configuration mean nothing here, but
/// for a classifier that [reads headers](crate::queue::ClassifyContext::ticket_from_headers).
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain<K = DefaultPriority> {
    pub(in crate::queue) classify: K,
}

impl<K> sealed::Sealed for Plain<K> {}

impl<Req, S, K> Protocol<Req, S> for Plain<K>
where
    S: Service<Req>,
    K: Classify<Req> + Clone,
{
    type Response = S::Response;
    type Error = QueueError<S::Error>;

    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket {
        let context = ClassifyContext::new(Some(arrival), &settings.0.classifier);
        self.classify.ticket(request, &context)
    }

    fn priority(&self, request: &Req, settings: &sealed::Settings<'_>) -> Option<Priority> {
        let context = ClassifyContext::new(None, &settings.0.classifier);
        self.classify.priority(request, &context)
    }

    fn on_queued(_: sealed::Queued<'_, S, Req, Self>) -> Option<Result<S::Response, Self::Error>>
    where
        S: Clone,
    {
        None
    }

    fn reject(&self, _: &Req, rejected: sealed::Rejected<'_>) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(rejected.reason))
    }

    fn reject_head(
        &self,
        _: &http::Request<()>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(rejected.reason))
    }

    fn reason(answer: &Result<S::Response, Self::Error>) -> Option<&RejectReason> {
        match answer {
            Err(QueueError::Rejected(reason)) => Some(reason),
            Ok(_) | Err(QueueError::Inner(_)) => None,
        }
    }

    fn respond(
        result: Result<S::Response, S::Error>,
        _: Option<BodyPermit>,
        _: Duration,
    ) -> Result<S::Response, Self::Error> {
        result.map_err(QueueError::Inner)
    }
}
