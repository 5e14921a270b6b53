//! An action that runs inside [`CancellationToken::cancel`].
//!
//! A task that waits for the token needs a runtime that is driven, and it acts some time after the cancellation. This
//! module registers a waker with the token instead, and the waker itself does the work when the token wakes it. So the
//! action runs on any runtime or without one, and it has run before `cancel` returns.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// An action that is registered with a token. Dropping this value takes the action back.
pub(crate) struct OnCancel {
    /// The wait that holds the waker of the action. Dropping the wait takes the waker out of the token.
    _wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl OnCancel {
    /// Registers `action` to run inside [`CancellationToken::cancel`], outside all locks of the token. (Before tokio-util
    /// 0.7.20, the cancelled parent of a token stays locked meanwhile.) The token keeps the action for as long as this
    /// value lives, so the action should refer weakly to the data that it acts on. If the action panics, the panic hook
    /// reports it and the panic ends there.
    ///
    /// Returns `None` if the token has been cancelled already. The action has not run then.
    pub(crate) fn new(
        token: CancellationToken,
        action: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let waker = Waker::from(Arc::new(Action(action)));
        let mut wait = Box::pin(token.cancelled_owned());
        // The first poll registers the waker with the token.
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
        // The token wakes several wakers in a row. The panic is caught here, because unwinding would lose the later
        // wakers.
        let _ = catch_unwind(AssertUnwindSafe(&self.0));
    }
}
