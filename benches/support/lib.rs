//! What the benches share: timing side by side, and peers that tower does not have.

mod harness;
mod peers;

pub use harness::{Bench, is_measuring, quartiles};
pub use peers::{LimitToBodyEnd, PrioritySemaphoreLimit};

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Runs a future that never has to wait.
///
/// # Panics
///
/// If it has to.
#[inline]
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future had to wait"),
    }
}
