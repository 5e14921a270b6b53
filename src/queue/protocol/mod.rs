//! The protocols of inner services, which determine the form of a rejection and the time that a slot is held.

mod http;
mod mode;
mod plain;
mod status;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tower_service::Service;

use super::future::QueueHandler;
use crate::admit::{Priority, RejectReason, SlotPool, Ticket};
use crate::gate::{BodyPermit, Gate, Permit, RoomFull};
use crate::service::{JustQueued, LayerState, Settings};

pub use http::Http;
pub use mode::{HttpMode, UntilBodyEnds, UntilHeaders};
pub use plain::Plain;
pub use status::WithStatus;

/// The protocol of the service behind a queue: [`Http`] or [`Plain`].
///
/// A service that is not HTTP has a queue made by [`QueueLayer::plain`](super::QueueLayer::plain):
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// let service = QueueLayer::plain(QueueConfig::new(8)).layer(next);
/// assert_eq!(service.oneshot(1).await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// [`QueueLayer::new`](super::QueueLayer::new) is for HTTP, so this does not compile:
///
/// ```compile_fail,E0277
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_triage::{QueueConfig, QueueLayer};
/// # async fn send() {
/// # let next = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) });
/// let service = QueueLayer::new(QueueConfig::new(8)).layer(next);
/// let response = service.oneshot(1).await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{S}` is no service that `{Self}` can answer for",
    label = "not an HTTP service, or a classifier that can't read `{Req}`",
    note = "`QueueLayer::new` is for a `Service<http::Request<_>>` that returns an `http::Response` with a body of `Bytes`",
    note = "with `status_stream`, the service, its future and error, the request and the bodies must be `Send` and borrow nothing, because a response may begin while its request waits",
    note = "with `until_headers`, the body of the response must be `From<Bytes>`",
    note = "for any other service, make the layer with `QueueLayer::plain`"
)]
pub trait Protocol<Req, S: Service<Req>>: Clone + sealed::Sealed {
    /// The response to callers: for [`Http`] the inner response, its body in a
    /// [`QueueResponseBody`](super::QueueResponseBody).
    type Response;
    /// The error for callers: for [`Http`] the inner service's error, for [`Plain`] a
    /// [`QueueError`](super::QueueError).
    type Error;

    /// Returns `true` if the request passes without a slot. Such a request is prepared for the inner service here.
    #[doc(hidden)]
    #[inline(always)]
    fn exempts(&self, _request: &mut Req) -> bool {
        false
    }

    #[doc(hidden)]
    fn ticket(&self, request: &Req, settings: &sealed::Settings<'_>, arrival: Instant) -> Ticket;

    #[doc(hidden)]
    fn on_queued(
        queued: sealed::Queued<'_, S, Req, Self>,
    ) -> Option<Result<Self::Response, Self::Error>>
    where
        S: Clone;

    /// Returns the request's priority, if the classifier reads it without the rest of the ticket.
    #[doc(hidden)]
    fn priority(&self, request: &Req, settings: &sealed::Settings<'_>) -> Option<Priority>;

    #[doc(hidden)]
    fn reject(
        &self,
        request: &Req,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, Self::Error>;

    /// Returns the head of the request, as far as its rejection needs it.
    #[doc(hidden)]
    fn head(&self, _request: &Req) -> ::http::Request<()> {
        ::http::Request::new(())
    }

    /// Rejects a request of which only the head is left.
    #[doc(hidden)]
    fn reject_head(
        &self,
        head: &::http::Request<()>,
        rejected: sealed::Rejected<'_>,
    ) -> Result<Self::Response, Self::Error>;

    /// Returns the reason of the rejection, if the request was rejected with this answer. The answer to an admitted request
    /// may look the same.
    #[doc(hidden)]
    fn reason(answer: &Result<Self::Response, Self::Error>) -> Option<&RejectReason>;

    /// Takes the permit of this gate out of the request, if the request carries one.
    #[doc(hidden)]
    fn carried(&self, _: &mut Req, _: &Gate<SlotPool>) -> Option<Permit<SlotPool>> {
        None
    }

    /// Returns `true` if [`on_admitted`](Self::on_admitted) changes requests.
    #[doc(hidden)]
    #[inline]
    fn changes_requests(&self) -> bool {
        false
    }

    /// Prepares the request for the inner service, after it has waited for `_waited`. An exempt request has no permit.
    #[doc(hidden)]
    fn on_admitted(
        &self,
        _request: &mut Req,
        _permit: Option<&mut Permit<SlotPool>>,
        _waited: Duration,
    ) {
    }

    /// Returns `true` if the service had too much to do.
    #[doc(hidden)]
    fn is_overloaded(result: &Result<S::Response, S::Error>) -> bool {
        result.is_err()
    }

    /// Polls the call of a request that did not wait, and passes its response on.
    #[doc(hidden)]
    #[inline(always)]
    fn poll_call(
        future: Pin<&mut S::Future>,
        permit: &mut Option<BodyPermit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::Response, Self::Error>> {
        let result = ready!(future.poll(cx));
        Poll::Ready(Self::respond(result, permit.take(), Duration::ZERO))
    }

    #[doc(hidden)]
    fn respond(
        result: Result<S::Response, S::Error>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Result<Self::Response, Self::Error>;

    /// Passes the response of a request on that may hold its slot for a limited time.
    #[doc(hidden)]
    fn respond_limited(
        result: Result<S::Response, S::Error>,
        permit: BodyPermit,
        waited: Duration,
        _hold: sealed::CallHold,
    ) -> Result<Self::Response, Self::Error> {
        Self::respond(result, Some(permit), waited)
    }
}

pub(super) mod sealed {
    use super::{Duration, JustQueued, LayerState, QueueHandler, RejectReason, RoomFull, SlotPool};

    /// A marker that keeps protocols of other crates out.
    pub trait Sealed {}
    /// The limits on the time for which a request may hold its slot.
    pub struct CallHold(pub(in crate::queue) crate::http::CallHold);
    /// The settings with which a classifier reads a ticket.
    pub struct Settings<'a>(pub(in crate::queue) &'a super::Settings);
    /// The reason of a rejection, and the state with which the rejection is written.
    pub struct Rejected<'a> {
        pub(in crate::queue) state: &'a LayerState<SlotPool>,
        pub(in crate::queue) reason: RejectReason,
        pub(in crate::queue) waited: Duration,
        /// The notice of the full room, if the request was rejected without the lock.
        pub(in crate::queue) full: Option<RoomFull>,
    }
    impl Rejected<'_> {
        /// Returns the time that one more request would probably wait. If the room was full, this takes no lock.
        pub(in crate::queue) fn estimated_wait(&self) -> Option<Duration> {
            match self.full {
                Some(full) => full.estimated_wait,
                None => self.state.gate.estimated_wait(),
            }
        }
    }

    /// A request that has just been queued.
    pub struct Queued<'a, S, Req, P>(
        pub(in crate::queue) JustQueued<'a, SlotPool, S, Req, QueueHandler<P>>,
    );
}
