//! What a rejection looks like, and how long a slot is held: that depends on what the service speaks.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::classify::{Classify, DefaultPriority, FromHeaders};
use super::common::{Common, Settings};
use super::error::QueueError;
use crate::admission::Tail;
use crate::admit::{Capacity, RejectReason, SlotPool, Ticket};
use crate::gate::Permit;
use crate::http::{
    AnswerFormat, PermitBody, Rejection, ToRejection, insert_server_timing, queue_full,
    wants_stream,
};
use crate::queue::Hold;

/// What the service behind a queue speaks: [`Http`] or [`Plain`].
pub trait Protocol<Req, S: Service<Req>>: Clone + sealed::Sealed {
    /// What callers get: for [`Http`] the inner response, its body in a [`PermitBody`].
    type Response;
    /// What callers get instead: for [`Http`] the inner service's error, for [`Plain`] a [`QueueError`].
    type Error;

    #[doc(hidden)]
    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket;

    #[doc(hidden)]
    fn refuse(
        &self,
        request: Req,
        why: RejectReason,
        waited: Duration,
        common: &sealed::Common<'_>,
    ) -> Result<Self::Response, Self::Error>;

    /// Turns a request away, if every chair is taken and nothing but that needs to be known of it.
    #[doc(hidden)]
    fn turn_away(&self, request: &Req, common: &sealed::Common<'_>) -> Option<sealed::Notice>;

    /// The answer of one that was turned away.
    #[doc(hidden)]
    fn turned_away(notice: sealed::Notice) -> Result<Self::Response, Self::Error>;

    #[doc(hidden)]
    fn answer(
        result: Result<S::Response, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        tail: sealed::Tail,
    ) -> Result<Self::Response, Self::Error>;
}

pub(super) mod sealed {
    /// Keeps the protocols to those that are here.
    pub trait Sealed {}
    /// What a ticket is read by.
    pub struct Settings<'a>(pub(in crate::queue) &'a super::Settings);
    /// What a rejection is written by.
    pub struct Common<'a>(pub(in crate::queue) &'a super::Common<crate::admit::SlotPool>);
    /// What one that was turned away is told.
    #[derive(Clone, Copy)]
    pub struct Notice {
        pub(in crate::queue) format: super::AnswerFormat,
        pub(in crate::queue) server_timing: bool,
        /// In seconds.
        pub(in crate::queue) retry_after: u64,
    }
    /// How an answer is passed on.
    #[derive(Clone, Copy)]
    pub struct Tail(pub(in crate::queue) super::Tail);
}

/// HTTP and gRPC: rejections are responses, and the slot is held until the body is over (see
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

/// Writes a rejection: the whole response, in the user's own words.
pub(crate) type Render =
    dyn Fn(&Rejection, &http::HeaderMap) -> http::Response<Bytes> + Send + Sync;

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
    type Response = http::Response<PermitBody<R, Permit<SlotPool>>>;
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

    fn refuse(
        &self,
        request: http::Request<B>,
        why: RejectReason,
        waited: Duration,
        common: &sealed::Common<'_>,
    ) -> Result<Self::Response, S::Error> {
        let rejection = common.0.with_retry_after(why.to_rejection());
        let render = self.render.as_deref();
        let response = common.0.write(rejection, request.headers(), waited, render);
        Ok(response.map(PermitBody::rejection))
    }

    fn turn_away(
        &self,
        request: &http::Request<B>,
        common: &sealed::Common<'_>,
    ) -> Option<sealed::Notice> {
        // The user's own words are for a request that is still there.
        if self.render.is_some() {
            return None;
        }
        let full = common.0.gate.turn_away()?;
        tracing::debug!(reason = %RejectReason::<Infallible>::Full, "request rejected");
        Some(sealed::Notice {
            format: AnswerFormat::of(request.headers()),
            server_timing: common.0.tail().server_timing,
            retry_after: common.0.retry_after(full.estimated_wait),
        })
    }

    fn turned_away(notice: sealed::Notice) -> Result<Self::Response, S::Error> {
        let response = queue_full(notice.format, notice.retry_after, notice.server_timing);
        Ok(response.map(PermitBody::rejection))
    }

    #[inline]
    fn answer(
        result: Result<http::Response<R>, S::Error>,
        permit: Option<Permit<SlotPool>>,
        waited: Duration,
        tail: sealed::Tail,
    ) -> Result<Self::Response, S::Error> {
        result.map(|response| pass_on(response, permit, waited, tail.0))
    }
}

/// A response with its permit inside.
#[inline]
pub(crate) fn pass_on<R: Body<Data = Bytes>, G>(
    mut response: http::Response<R>,
    permit: Option<G>,
    waited: Duration,
    tail: Tail,
) -> http::Response<PermitBody<R, G>> {
    if tail.server_timing {
        insert_server_timing(response.headers_mut(), waited);
    }
    let permit = permit.filter(|_| tail.hold == Hold::Body);
    let (head, body) = response.into_parts();
    http::Response::from_parts(head, PermitBody::new(body, permit))
}

impl<C: Capacity> Common<C> {
    /// Tells a client that may come back when to.
    pub(crate) fn with_retry_after(&self, rejection: Rejection) -> Rejection {
        if !rejection.is_retryable() {
            return rejection;
        }
        let seconds = self.retry_after(self.gate.estimated_wait());
        rejection.with_retry_after(Duration::from_secs(seconds))
    }

    /// Writes a rejection in the words of its client's protocol, or of the user.
    pub(crate) fn write(
        &self,
        rejection: Rejection,
        headers: &http::HeaderMap,
        waited: Duration,
        render: Option<&Render>,
    ) -> http::Response<Bytes> {
        let mut response = match render {
            Some(render) => render(&rejection, headers),
            None => rejection.into_response_to(headers),
        };
        if self.tail().server_timing {
            insert_server_timing(response.headers_mut(), waited);
        }
        response
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

    fn refuse(
        &self,
        _: Req,
        why: RejectReason,
        _: Duration,
        _: &sealed::Common<'_>,
    ) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(why))
    }

    fn turn_away(&self, _: &Req, common: &sealed::Common<'_>) -> Option<sealed::Notice> {
        common.0.gate.turn_away()?;
        Some(sealed::Notice {
            format: AnswerFormat::Http,
            server_timing: false,
            retry_after: 0,
        })
    }

    fn turned_away(_: sealed::Notice) -> Result<S::Response, Self::Error> {
        Err(QueueError::Rejected(RejectReason::Full))
    }

    fn answer(
        result: Result<S::Response, S::Error>,
        _: Option<Permit<SlotPool>>,
        _: Duration,
        _: sealed::Tail,
    ) -> Result<S::Response, Self::Error> {
        result.map_err(QueueError::Inner)
    }
}
