//! An action that runs inside [`CancellationToken::cancel`].
//!
//! A task that waits for the token needs a runtime that is driven, and acts some time after the cancellation. Here a waker
//! is registered with the token that does the work itself when it is woken: on any runtime or none, before `cancel`
//! returns.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// An action registered with a token. Dropping this takes the action back.
pub(crate) struct OnCancel {
    /// Dropping it takes the waker out of the token.
    _wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl OnCancel {
    /// Runs `action` inside [`CancellationToken::cancel`], without any lock of the token. The token keeps the action for as
    /// long as this lives, so the action should hold what it acts on by a weak reference. If it panics, the panic hook
    /// reports that, and the panic ends there.
    ///
    /// `None` if the token has been cancelled already; the action has not run then.
    pub(crate) fn new(
        token: CancellationToken,
        action: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let waker = Waker::from(Arc::new(Action(action)));
        let mut wait = Box::pin(token.cancelled_owned());
        // The first poll registers the waker.
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

/// A waker that runs a function.
struct Action<F>(F);

impl<F: Fn() + Send + Sync> Wake for Action<F> {
    fn wake(self: Arc<Self>) {
        // The token wakes several wakers in a row: unwinding would lose those behind this one.
        let _ = catch_unwind(AssertUnwindSafe(&self.0));
    }
}
