//! Strategies, which pick one of the endpoints that can serve a request now.
//!
//! A [`Strategy`] only states a preference: the router finds the candidates before, and takes the slot afterwards, if the
//! endpoint is still as the strategy saw it.

mod candidates;
pub(super) mod power_of_two;
pub(super) mod prefix_affinity;
pub(super) mod simple;
pub(super) mod smart;

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use candidates::{Candidate, Candidates};
pub use smart::Weights;

/// A policy that chooses one of the endpoints that can serve a request now.
///
/// Many threads call it at once. It must not block or do I/O, and should not allocate. While requests wait, it runs under the
/// lock of the waiting room, so it must not use a [`RouteHandle`](crate::route::RouteHandle): methods that need the lock
/// panic inside a strategy. If a strategy panics, the router logs an error and takes the first candidate that is free.
///
/// ```
/// use tower_triage::endpoints::{Candidates, Choice, Strategy};
///
/// /// The endpoint with the shortest name.
/// #[derive(Debug)]
/// struct Shortest;
///
/// impl Strategy for Shortest {
///     fn name(&self) -> &'static str {
///         "shortest"
///     }
///
///     fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
///         let shortest = candidates.free().min_by_key(|candidate| candidate.endpoint().name().len());
///         shortest.map(Choice::new)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no routing strategy",
    note = "implement `tower_triage::endpoints::Strategy` for it, and `Debug`; one of the crate's own strategies is \
            chosen by its variant of `StrategyChoice`"
)]
pub trait Strategy: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the strategy for a [`Decision`](super::Decision), for logs and for metrics.
    fn name(&self) -> &'static str;

    /// Returns `true` if [`choose`](Self::choose) reads [`Candidates::prefix`]. The default is `true`.
    ///
    /// With `false`, the router saves the time to hash the beginning of each prompt, and the prefix is always `None`. The
    /// router asks once for each change of its endpoints or its routing.
    fn reads_prefixes(&self) -> bool {
        true
    }

    /// Chooses one of [`candidates.free()`](Candidates::free). If it returns `None` or chooses a busy candidate, the router
    /// takes the first free one.
    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>>;
}

/// The candidate that a [`Strategy`] chose, with its score.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub(crate) candidate: Candidate<'a>,
    pub(crate) score: Option<u32>,
}

impl<'a> Choice<'a> {
    /// Chooses `candidate`, without a score.
    #[must_use]
    pub fn new(candidate: Candidate<'a>) -> Self {
        Self {
            candidate,
            score: None,
        }
    }

    /// Adds the score by which the strategy compared the candidates. It is shown in the [`Decision`](super::Decision).
    #[must_use]
    pub fn score(mut self, score: u32) -> Self {
        self.score = Some(score);
        self
    }
}

thread_local! {
    /// `true` while this thread runs a strategy.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the choice of a strategy, or `None` if it panics. The caller then takes the first candidate that is free.
///
/// The router calls a strategy while it hands a slot over. If requests wait, this happens under the gate's lock and in
/// the task of another request. So the panic of a strategy is caught, and a strategy must not wait for the router that
/// called it.
pub(super) fn ask<'a>(choose: impl FnOnce() -> Option<Choice<'a>>) -> Option<Choice<'a>> {
    // A strategy may call another router, so this call may run inside another one.
    let outer = ASKING.replace(true);
    // Unwinding is safe here because the candidates have only cells that cache a number and the clock.
    let chosen = catch_unwind(AssertUnwindSafe(choose));
    ASKING.set(outer);
    chosen.unwrap_or_else(|_| {
        tracing::error!("a routing strategy panicked; the first endpoint that is free is taken");
        None
    })
}

/// Panics if a strategy called `method`, which waits for the router's lock, even if the lock is free at that moment.
pub(crate) fn forbid_in_strategy(method: &str) {
    assert!(
        !ASKING.get(),
        "`{method}` was called by a `Strategy`, which must not wait for the router that asks it; \
         `Candidates` says how busy each endpoint is"
    );
}
