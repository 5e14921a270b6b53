//! What a rejection looks like, and how long a slot is held: that depends on what the service speaks.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::classify::{Classify, DefaultPriority, FromHeaders};
use super::error::QueueError;
use crate::admit::{RejectReason, SlotPool, Ticket};
use crate::gate::{BodyPermit, Permit, RoomFull};
use crate::http::{AnswerFormat, PermitBody, ToRejection, queue_full, wants_stream};
use crate::service::{LayerState, Render, ResponseOptions, Settings, hold_in_body};

/// What the service behind a queue speaks: [`Http`] or [`Plain`].
pub trait Protocol<Req, S: Service<Req>>: Clone + sealed::Sealed {
    /// What callers get: for [`Http`] the inner response, its body in a [`PermitBody`].
    type Response;
    /// What callers get instead: for [`Http`] the inner service's error, for [`Plain`] a [`QueueError`].
    type Error;

    #[doc(hidden)]
    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket;

    #[doc(hidden)]
    fn reject(
        &self,
        request: &Req,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, Self::Error>;

    #[doc(hidden)]
    fn respond(
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        options: sealed::Options,
    ) -> Result<Self::Response, Self::Error>;
}

pub(super) mod sealed {
    use super::{Duration, LayerState, RejectReason, ResponseOptions, RoomFull, SlotPool};

    /// Keeps the protocols to those that are here.
    pub trait Sealed {}
    /// What a ticket is read by.
    pub struct Settings<'a>(pub(in crate::queue) &'a super::Settings);
    /// Why a request is rejected, and what the rejection is written by.
    pub struct Rejected<'a> {
        pub(in crate::queue) state: &'a LayerState<SlotPool>,
        pub(in crate::queue) reason: RejectReason,
        pub(in crate::queue) waited: Duration,
        /// What is known of the full room, if it was not locked.
        pub(in crate::queue) full: Option<RoomFull>,
    }
    /// How a response is passed on.
    #[derive(Clone, Copy)]
    pub struct Options(pub(in crate::queue) ResponseOptions);
}

/// HTTP and gRPC: rejections are responses, and the slot is held until the body ends (see
/// [`Hold`](super::Hold)).
///
/// The inner service takes `http::Request<_>` and answers with an `http::Response` whose body has
/// [`Bytes`] for its data, as those of axum, tonic and hyper have. Its error type stays what it is: nothing
/// is added to it.
#[derive(Clone)]
pub struct Http<K = FromHeaders> {
    pub(super) classify: K,
    pub(super) render: Option<Arc<Render>>,
}

impl<K> fmt::Debug for Http<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl<K> sealed::Sealed for Http<K> {}

impl<B, R, S, K> Protocol<http::Request<B>, S> for Http<K>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    R: Body<Data = Bytes>,
    K: Classify<http::Request<B>> + Clone,
{
    type Response = http::Response<PermitBody<R, BodyPermit>>;
    type Error = S::Error;

    fn ticket(
        &self,
        request: &http::Request<B>,
        settings: &sealed::Settings<'_>,
        arrival: Instant,
    ) -> Ticket {
        let settings = settings.0;
        let ticket = self.classify.ticket(request, &settings.classifier, arrival);
        if settings.rejects_streams() && wants_stream(request.headers()) {
            return ticket.no_wait();
        }
        ticket
    }

    #[inline]
    fn reject(
        &self,
        request: &http::Request<B>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, S::Error> {
        let state = rejected.state;
        let render = self.render.as_deref();
        let estimated_wait = || match rejected.full {
            Some(full) => full.estimated_wait,
            None => state.gate.estimated_wait(),
        };
        let response = match AnswerFormat::of(request.headers()) {
            // A full room rejects often: the response is kept, one for each number of seconds.
            AnswerFormat::Http if rejected.full.is_some() && render.is_none() => {
                queue_full(state.retry_after(estimated_wait()))
            }
            _ => {
                let rejection = rejected.reason.to_rejection();
                let rejection = state.with_retry_after(rejection, estimated_wait);
                state.write_rejection(rejection, request.headers(), rejected.waited, render)
            }
        };
        Ok(response.map(PermitBody::rejection))
    }

    #[inline]
    fn respond(
        result: Result<http::Response<R>, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        options: sealed::Options,
    ) -> Result<Self::Response, S::Error> {
        let permit = permit.map(BodyPermit::from);
        result.map(|response| hold_in_body(response, permit, waited, options.0))
    }
}

/// Anything else: rejections are [`QueueError`]s, and the slot is held until the response is there.
///
/// [`streaming`](super::QueueConfig::streaming), [`server_timing`](super::QueueConfig::server_timing),
/// [`retry_after`](super::QueueConfig::retry_after), [`hold`](super::QueueConfig::hold) and the header names
/// of the configuration mean nothing here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain<K = DefaultPriority> {
    pub(super) classify: K,
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
        self.classify
            .ticket(request, &settings.0.classifier, arrival)
    }

    fn reject(&self, _: &Req, rejected: sealed::Rejected<'_>) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(rejected.reason))
    }

    fn respond(
        result: Result<S::Response, S::Error>,
        _: Option<Permit<SlotPool>>,
        _: Duration,
        _: sealed::Options,
    ) -> Result<S::Response, Self::Error> {
        result.map_err(QueueError::Inner)
    }
}
