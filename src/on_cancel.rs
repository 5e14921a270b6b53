//! What is done at the instant at which a token is cancelled.
//!
//! A task that waits for the token needs a runtime that is driven, costs a task, and acts some time after the
//! cancellation. Here the token itself acts, inside `cancel`, by waking a waker that does the work: on any runtime or
//! none.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// An action registered with a token. Dropping it takes the action back.
pub(crate) struct OnCancel {
    _wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl OnCancel {
    /// Runs `action` inside [`CancellationToken::cancel`], without any lock of the token. The token keeps the action
    /// for as long as this lives, so it holds what it acts on by a weak reference. A panic of it is reported by the
    /// panic hook and goes no further.
    ///
    /// `None` if the token has been cancelled already; the action has not run then.
    pub(crate) fn new(
        token: CancellationToken,
        action: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let waker = Waker::from(Arc::new(Action(action)));
        let mut wait = Box::pin(token.cancelled_owned());
        let is_cancelled = wait
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        (!is_cancelled).then_some(Self { _wait: wait })
    }
}

impl fmt::Debug for OnCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCancel").finish_non_exhaustive()
    }
}

struct Action<F>(F);

impl<F: Fn() + Send + Sync> Wake for Action<F> {
    fn wake(self: Arc<Self>) {
        // The token wakes several wakers in a row: an unwinding would lose those behind this one.
        let _ = catch_unwind(AssertUnwindSafe(&self.0));
    }
}
