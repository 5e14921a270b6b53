//! The service that lets requests wait.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tower_service::Service;

use super::clone_or_share_inner::CloneOrShareInner;
use super::common::Common;
use super::future::{Front, ResponseFuture};
use super::handle::QueueHandle;
use super::protocol::{Http, Protocol, sealed};
use super::seat::Seat;
use crate::admission::{Admission, Visit};
use crate::admit::{SlotPool, Ticket};
use crate::gate::{self, Reservation};

/// A service with a waiting room in front of it. Made by [`QueueLayer`](super::QueueLayer).
///
/// All services of one layer, and their clones, share one waiting room and its slots. A chair that was
/// reserved by `poll_ready` (see [`Overflow::Backpressure`](super::Overflow::Backpressure)) belongs to the
/// clone that was asked: a clone of it starts without.
pub struct Queue<S, P = Http> {
    inner: S,
    common: Arc<Common<SlotPool>>,
    protocol: P,
    seat: Seat<SlotPool>,
}

impl<S, P> Queue<S, P> {
    pub(super) fn new(inner: S, common: Arc<Common<SlotPool>>, protocol: P) -> Self {
        Self {
            inner,
            common,
            protocol,
            seat: Seat::None,
        }
    }

    /// A handle to the waiting room.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::clone(&self.common))
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. A change to it does not reach the clones that exist already, nor requests that wait.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the queue.
    ///
    /// ```
    /// use tower::{Layer, service_fn};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let double = service_fn(|n: u32| async move { Ok::<_, std::io::Error>(2 * n) });
    /// let mut service = QueueLayer::plain(QueueConfig::new(4)).layer(double);
    /// let _: &mut tower::util::ServiceFn<_> = service.get_mut();
    /// let double = service.into_inner();
    /// ```
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn ticket<Req>(&self, request: &Req, now: Instant) -> Ticket
    where
        S: Service<Req>,
        P: Protocol<Req, S>,
    {
        let settings = self.common.settings();
        let settings = sealed::Settings(&settings);
        self.protocol.ticket(request, &settings, now)
    }

    /// The way of a request that finds no slot.
    #[cold]
    #[inline(never)]
    fn wait<Req>(
        &self,
        request: Req,
        chair: Option<Reservation<SlotPool>>,
    ) -> ResponseFuture<S, Req, P>
    where
        S: Service<Req> + Clone,
        P: Protocol<Req, S>,
    {
        let tail = self.common.tail();
        if chair.is_none()
            && let Some(notice) = self
                .protocol
                .turn_away(&request, &sealed::Common(&self.common))
        {
            let admission = Admission::turned_away(notice, tail);
            return ResponseFuture { admission };
        }
        let now = gate::now();
        let ticket = self.ticket(&request, now);
        let visit = self.visit(self.inner.clone(), request);
        let admission = Admission::waiting(visit, ticket, now, (), chair, tail);
        ResponseFuture { admission }
    }

    fn visit<Req>(&self, inner: S, request: Req) -> Visit<S, Req, Front<P>>
    where
        P: Clone,
    {
        Visit {
            desk: Front {
                common: Arc::clone(&self.common),
                protocol: self.protocol.clone(),
            },
            inner,
            request,
        }
    }
}

impl<S, Req, P> Service<Req> for Queue<S, P>
where
    S: Service<Req> + CloneOrShareInner,
    P: Protocol<Req, S>,
{
    type Response = P::Response;
    type Error = P::Error;
    type Future = ResponseFuture<S, Req, P>;

    /// Always ready, so that a full room can answer; with `overflow = "backpressure"`, ready once a chair is
    /// reserved for the call that follows. The inner service is not asked: it would be reserved for a clone
    /// that may never call.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), P::Error>> {
        self.seat.poll_ready(&self.common, cx).map(Ok)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let chair = self.seat.take();
        let Some(permit) = self.common.gate.try_acquire(&()) else {
            return self.wait(request, chair);
        };
        drop(chair);
        // Nearly always it is ready, and the request needs no clone of it.
        let mut noop = Context::from_waker(Waker::noop());
        match self.inner.poll_ready(&mut noop) {
            Poll::Ready(Ok(())) => {
                let future = self.inner.call(request);
                return ResponseFuture {
                    admission: Admission::calling(future, permit, self.common.tail()),
                };
            }
            Poll::Ready(Err(error)) => {
                return ResponseFuture {
                    admission: Admission::failed(error, self.common.tail()),
                };
            }
            Poll::Pending => {}
        }
        // What was asked to be ready goes along; a clone of it stays.
        let clone = self.inner.clone();
        let asked = std::mem::replace(&mut self.inner, clone);
        let ticket = self.ticket(&request, gate::now());
        let visit = self.visit(asked, request);
        ResponseFuture {
            admission: Admission::readying(visit, &ticket, permit, self.common.tail()),
        }
    }
}

impl<S: Clone, P: Clone> Clone for Queue<S, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            common: Arc::clone(&self.common),
            protocol: self.protocol.clone(),
            // A reserved chair is one request's; the clone reserves its own.
            seat: Seat::None,
        }
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Queue<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("inner", &self.inner)
            .field("gate", &self.common.gate)
            .finish_non_exhaustive()
    }
}
