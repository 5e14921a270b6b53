//! The service with a queue for each key in front of it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::rooms::Rooms;
use crate::queue::future::{QueueFuture, QueueHandler};
use crate::queue::protocol::Protocol;
use crate::queue::request::QueueRequest;
use crate::service::{Admission, Prepare, Prepared};

/// A service with a queue for each key of requests in front of it. Created by [`PerKeyLayer`](super::PerKeyLayer).
#[derive(Clone)]
pub struct PerKeyQueue<S, P, F> {
    inner: S,
    rooms: Arc<Rooms>,
    protocol: P,
    key: F,
}

impl<S, P, F> PerKeyQueue<S, P, F> {
    pub(super) fn new(inner: S, rooms: Arc<Rooms>, protocol: P, key: F) -> Self {
        Self {
            inner,
            rooms,
            protocol,
            key,
        }
    }
}

impl<S, Req, P, F> Service<Req> for PerKeyQueue<S, P, F>
where
    Req: QueueRequest<S, P>,
    F: Fn(&Req) -> &str,
{
    type Response = <P as Protocol<Req, S>>::Response;
    type Error = <P as Protocol<Req, S>>::Error;
    type Future = QueueFuture<S, Req, P>;

    /// Returns ready at once, because the key of the request that follows is not known yet.
    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        // An exempt request needs no room, so it must not open one.
        let state = match self.protocol.exempts(&mut request) {
            true => self.rooms.shared(),
            false => self.rooms.of((self.key)(&request)),
        };
        let is_prepared = state
            .prepare()
            .intersects(Prepare::MEASUREMENT | Prepare::TENANT);
        let prepared = is_prepared.then_some(Prepared(None));
        // The handler lives as long as the request needs it, so that the queue of an idle key can be dropped.
        let protocol = self.protocol.clone();
        let mut handler = QueueHandler { state, protocol };
        QueueFuture {
            admission: Admission::start(&mut handler, &mut self.inner, request, (), prepared),
        }
    }
}

/// Keeps the name of the gRPC service, as [`Queue`](crate::queue::Queue) does.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService, P, F> tonic::server::NamedService for PerKeyQueue<S, P, F> {
    const NAME: &'static str = S::NAME;
}

impl<S: fmt::Debug, P, F> fmt::Debug for PerKeyQueue<S, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKeyQueue")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
