//! Calls a strategy, which may be user code.
//!
//! The router calls a strategy while it hands a slot over. If requests wait, this happens under the gate's lock and in
//! the task of another request. So the panic of a strategy is caught, and a strategy must not wait for the router that
//! called it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Candidates, Choice, Strategy};

thread_local! {
    /// `true` while this thread runs a strategy.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the choice of `strategy`, or `None` if it panics. The caller then takes the first candidate that is free.
pub(crate) fn ask<'a>(strategy: &dyn Strategy, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    // A strategy may call another router, so this call may run inside another one.
    let outer = ASKING.replace(true);
    // Unwinding is safe here because `candidates` has only cells that cache a number and the clock.
    let chosen = catch_unwind(AssertUnwindSafe(|| strategy.choose(candidates)));
    ASKING.set(outer);
    chosen.unwrap_or_else(|_| {
        tracing::error!("a routing strategy panicked; the first endpoint that is free is taken");
        None
    })
}

/// Panics if a strategy called the current method, which waits for the router's lock.
///
/// # Panics
///
/// Panics at every call inside a strategy, even if the lock is free at that moment.
pub(crate) fn forbid_in_strategy(method: &str) {
    assert!(
        !ASKING.get(),
        "`{method}` was called by a `Strategy`, which must not wait for the router that asks it; \
         `Candidates` says how busy each endpoint is"
    );
}
