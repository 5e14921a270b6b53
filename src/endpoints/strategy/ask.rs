//! Calls a strategy, which may be user code.
//!
//! A strategy is called while a slot is handed over: under the gate's lock if requests wait, and in the task of another
//! request. So its panic is caught, and it must not wait for the router that calls it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Candidates, Choice, Strategy};

thread_local! {
    /// Whether this thread is asking a strategy.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// What `strategy` chooses. `None` if it panics: then the first candidate that is free is taken.
pub(crate) fn ask<'a>(strategy: &dyn Strategy, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
    // A strategy may ask another router, and so be asked while another one is.
    let outer = ASKING.replace(true);
    // Unwind safe for us: `candidates` only has cells that cache a number and the clock.
    let chosen = catch_unwind(AssertUnwindSafe(|| strategy.choose(candidates)));
    ASKING.set(outer);
    chosen.unwrap_or_else(|_| {
        tracing::error!("a routing strategy panicked; the first endpoint that is free is taken");
        None
    })
}

/// Guards a method that waits for the router's lock.
///
/// # Panics
///
/// Inside a strategy, always: not only when the lock happens to be held.
pub(crate) fn forbid_in_strategy(method: &str) {
    assert!(
        !ASKING.get(),
        "`{method}` was called by a `Strategy`, which must not wait for the router that asks it; \
         `Candidates` says how busy each endpoint is"
    );
}
