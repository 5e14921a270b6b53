//! The service with a waiting room in front of it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::clone_or_share_inner::CloneOrShareInner;
use super::future::{QueueFuture, QueueHandler};
use super::handle::QueueHandle;
use super::protocol::{Http, Protocol};
use super::request::QueueRequest;
use crate::admit::SlotPool;
use crate::gate::Shared;
use crate::service::{Admission, LayerState, Prepare, ReadyState};

/// A service with a waiting room in front of it. Created by [`QueueLayer`](super::QueueLayer).
///
/// All services of one layer, and their clones, share one waiting room and its slots. `poll_ready` may reserve a place
/// in the waiting room (see [`Overflow::Backpressure`](super::Overflow::Backpressure)). The place belongs to the clone
/// that was polled, and a clone of that clone starts without a place.
pub struct Queue<S, P = Http> {
    inner: S,
    handler: QueueHandler<P>,
    ready: ReadyState<Shared<SlotPool>>,
}

impl<S, P> Queue<S, P> {
    pub(super) fn new(inner: S, state: Arc<LayerState<SlotPool>>, protocol: P) -> Self {
        Self {
            inner,
            handler: QueueHandler { state, protocol },
            ready: ReadyState::IDLE,
        }
    }

    /// Returns a handle to the waiting room.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::clone(&self.handler.state))
    }

    /// Returns a reference to the inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service. A change to it affects only this clone and its later requests.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service and drops the queue around it.
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
}

impl<S, Req, P> Service<Req> for Queue<S, P>
where
    Req: QueueRequest<S, P>,
{
    type Response = <P as Protocol<Req, S>>::Response;
    type Error = <P as Protocol<Req, S>>::Error;
    type Future = QueueFuture<S, Req, P>;

    /// Returns ready at once, so that a full room can answer the call.
    ///
    /// With `overflow = "backpressure"`, it is ready once a place in the waiting room is reserved for the call that
    /// follows. The inner service is not polled here, because it would be reserved for a clone that may stay idle.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let prepare = self.handler.state.prepare();
        if prepare.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_prepared(prepare, cx).map(Ok)
    }

    #[inline(always)]
    fn call(&mut self, request: Req) -> Self::Future {
        let prepared = self.ready.take();
        let (handler, inner) = (&mut self.handler, &mut self.inner);
        // The future is built in one expression, because it is large and each move of it is a copy.
        QueueFuture {
            admission: Admission::start(handler, inner, request, (), prepared),
        }
    }
}

impl<S, P> Queue<S, P> {
    /// Waits for the reservation of the next call, or marks the call as measured.
    #[cold]
    #[inline(never)]
    fn poll_prepared(&mut self, prepare: Prepare, cx: &mut Context<'_>) -> Poll<()> {
        if prepare.contains(Prepare::RESERVATION) {
            let gate = self.handler.state.gate.shared();
            return self.ready.poll_reserve(gate, cx);
        }
        self.ready.prepare();
        Poll::Ready(())
    }
}

impl<S: CloneOrShareInner, P: Clone> Clone for Queue<S, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            handler: self.handler.clone(),
            // A reservation is for one request, so the clone makes its own.
            ready: ReadyState::IDLE,
        }
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Queue<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("inner", &self.inner)
            .field("gate", &self.handler.state.gate)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::mpsc;
    use std::time::Duration;

    use http::{Request, Response};
    use http_body_util::Empty;
    use tower::{Layer, service_fn};

    use super::*;
    use crate::queue::QueueLayer;

    #[test]
    fn shedding_takes_no_lock() {
        let layer = QueueLayer::shed(0);
        let mut service = layer.layer(service_fn(|_: Request<()>| {
            pending::<Result<Response<Empty<bytes::Bytes>>, Infallible>>()
        }));
        let shared = Arc::clone(service.handler.state.gate.shared());
        let locked = crate::gate::with_lock::WithLock::lock(&*shared);
        let (answers, answered) = mpsc::channel();
        // In a thread of its own, so that a wait for the lock fails the test and does not hang it.
        std::thread::spawn(move || {
            let mut call = Box::pin(service.call(Request::new(())));
            let polled = call
                .as_mut()
                .poll(&mut Context::from_waker(std::task::Waker::noop()));
            let status = polled.map(|response| response.map(|response| response.status()));
            answers.send(status).unwrap();
        });
        let answer = answered.recv_timeout(Duration::from_secs(10));
        assert_eq!(
            answer,
            Ok(Poll::Ready(Ok(http::StatusCode::SERVICE_UNAVAILABLE)))
        );
        drop(locked);
    }
}
