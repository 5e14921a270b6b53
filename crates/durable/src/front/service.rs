//! The service that stores requests.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::util::Oneshot;
use tower_service::Service;

use super::accept::accept;
use super::pages::{PagePath, Viewer, page};
use super::shared::Front;
use super::{DurableBody, DurableFuture, DurableHandle};
use crate::headers::{self, asks_to_be_stored};

/// A service that stores the requests which ask for it, and passes all others on to the inner service.
///
/// [`DurableLayer`](super::DurableLayer) creates it. The service is always ready, because a stored request does not
/// need the inner service. A request that is passed on waits in its response future until the inner service is ready.
#[derive(Clone)]
pub struct Durable<S> {
    inner: S,
    front: Arc<Front>,
}

impl<S> Durable<S> {
    pub(super) fn new(inner: S, front: Arc<Front>) -> Self {
        Self { inner, front }
    }

    /// Returns the handle of the layer that created this service.
    #[must_use]
    pub fn handle(&self) -> DurableHandle {
        DurableHandle(Arc::clone(&self.front))
    }
}

impl<S, B, R> Service<Request<B>> for Durable<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    R: Body<Data = Bytes>,
{
    type Response = Response<DurableBody<R>>;
    type Error = S::Error;
    type Future = DurableFuture<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let front = Arc::clone(&self.front);
        if let Some(path) = PagePath::of(request.uri().path()) {
            let (head, _) = request.into_parts();
            let viewer = Viewer::Tenant(front.classifier.tenant(&head));
            return DurableFuture::own(Box::pin(page(front, path, viewer, head)));
        }
        if front.stores_all || asks_to_be_stored(request.headers()) {
            let (head, body) = request.into_parts();
            return DurableFuture::own(Box::pin(accept(front, head, body)));
        }
        // Only workers set these headers. Removing them keeps a caller from passing its request off as a stored one.
        for name in [&headers::REQUEST_ID, &headers::ATTEMPT] {
            request.headers_mut().remove(name);
        }
        DurableFuture::inner(Oneshot::new(self.inner.clone(), request))
    }
}

impl<S: fmt::Debug> fmt::Debug for Durable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
