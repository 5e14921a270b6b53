//! Requests that leave when their token is cancelled.
//!
//! A queue that looks at the token when the request's turn comes keeps the dead on chairs meanwhile; a task per
//! request that waits for its token costs a task per request. Here the token itself takes the request out, at the
//! instant at which it is cancelled, by waking a waker that does so.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::shared::Shared;
use crate::admit::Key;

/// Dropping it takes it back from the token.
pub(super) struct Registration {
    _wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Registration {
    /// `None` if the token has been cancelled already.
    pub(super) fn new<T: Send + 'static>(
        shared: &Arc<Shared<T>>,
        key: Key,
        token: CancellationToken,
    ) -> Option<Self> {
        let remover = Remover {
            shared: Arc::downgrade(shared),
            key,
        };
        let waker = Waker::from(Arc::new(remover));
        let mut wait = Box::pin(token.cancelled_owned());
        let is_cancelled = wait
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        (!is_cancelled).then_some(Self { _wait: wait })
    }
}

/// Takes a request out when it is woken. Does not keep the queue alive.
struct Remover<T> {
    shared: Weak<Shared<T>>,
    key: Key,
}

impl<T: Send + 'static> Wake for Remover<T> {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            drop(shared.remove(self.key));
        }
    }
}
