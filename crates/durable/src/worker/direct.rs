//! Requests that begin in the same step in which they are stored, because the worker has a free slot.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tower_service::Service;

use super::place::Start;
use super::{Shared, Slot, attempt, queue};
use crate::{Fetched, FreePlace, IdleWorker};

/// The worker as its store sees it.
pub(super) struct Idle<S> {
    pub(super) shared: Arc<Shared>,
    /// The service, in a lock that makes it shareable.
    pub(super) service: Mutex<S>,
    pub(super) started: UnboundedSender<Started<S>>,
}

impl<S> IdleWorker for Idle<S>
where
    S: Service<Request<Full<Bytes>>> + Clone + Send + 'static,
{
    fn try_place(&self, queue: &str) -> Option<FreePlace> {
        if self.shared.shutdown.is_cancelled() {
            return None;
        }
        let mut service = {
            let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
            service.clone()
        };
        // A service that is not ready by now is asked again when the request is fetched.
        let is_ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(())) = is_ready else {
            return None;
        };
        let slot = match &self.shared.settings.slots {
            Some(slots) => slots.try_slot(queue)?,
            None => Slot::of_ready_service(),
        };
        let start = Start { service, slot };
        let (started, shared) = (self.started.clone(), Arc::clone(&self.shared));
        Some(Box::new(move |fetched| {
            let request = Some((start, fetched));
            // If the worker has ended, the value comes back, and its drop puts the request back.
            let _ = started.send(Started { request, shared });
        }))
    }
}

/// A request with its place, on its way to the task that runs it. Its drop puts the request back into its queue.
pub(super) struct Started<S> {
    request: Option<(Start<S>, Fetched)>,
    shared: Arc<Shared>,
}

impl<S> Drop for Started<S> {
    fn drop(&mut self) {
        let Some((start, fetched)) = self.request.take() else {
            return;
        };
        drop(start);
        // Outside of a Tokio runtime the process ends, and other processes find the request.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(queue::give_back(Arc::clone(&self.shared), fetched));
        }
    }
}

/// Runs the requests that begin when they are stored, until no place is left that could send one.
pub(super) async fn run<S, B>(shared: Arc<Shared>, mut started: UnboundedReceiver<Started<S>>)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            next = started.recv() => {
                let Some(mut next) = next else { break };
                if let Some((Start { service, slot }, fetched)) = next.request.take() {
                    running.spawn(attempt::run(Arc::clone(&shared), service, slot, fetched));
                }
            }
            Some(_) = running.join_next() => {}
        }
    }
    while running.join_next().await.is_some() {}
}
