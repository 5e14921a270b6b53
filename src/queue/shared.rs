//! One inner service for all clones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;

/// An inner service that all clones share. Sound only behind a queue in which one request at a time has the
/// turn: the one that finds it ready is the one that calls it.
#[derive(Debug)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S> Shared<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Req, S: Service<Req>> Service<Req> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.lock().poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> S::Future {
        self.lock().call(request)
    }
}
