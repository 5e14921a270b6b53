//! Strategies, which pick one of the endpoints that can serve a request now.
//!
//! A [`Strategy`] only states a preference. The router finds the candidates before it calls the strategy. Afterwards it
//! takes the slot if the endpoint is still as the strategy saw it. So a strategy cannot overload an endpoint or choose
//! one that lacks something that the request needs.

mod ask;
mod candidates;
pub(super) mod least_loaded;
pub(super) mod power_of_two;
pub(super) mod prefix_affinity;
pub(super) mod priority_only;
pub(super) mod random;
pub(super) mod round_robin;
pub(super) mod smart;

use std::fmt;
use std::sync::Arc;

pub(crate) use ask::{ask, forbid_in_strategy};
pub use candidates::{Candidate, Candidates};
pub use smart::Weights;

/// A policy that chooses one of the endpoints that can serve a request now.
///
/// Many threads call it at once, and the router calls it again if another request took the slot meanwhile. It must not
/// block or do I/O, and should not allocate. While requests wait, it runs under the lock of the waiting room, so it
/// must not use a [`RouterHandle`](crate::route::RouterHandle). Methods that need the lock panic inside a strategy, at
/// every call. [`Candidates`] reports the load of each endpoint instead.
///
/// If a strategy panics, the router logs an error and takes the first candidate that is free.
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

    /// Chooses one of [`candidates.free()`](Candidates::free), or returns `None` if all candidates are busy.
    ///
    /// If it returns `None` while a candidate is free, or chooses a busy candidate, the router takes the first free
    /// one.
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

/// A strategy that the crate defines by a function.
struct BuiltIn<F> {
    name: &'static str,
    choose: F,
}

impl<F> Strategy for BuiltIn<F>
where
    F: for<'a> Fn(&Candidates<'a>) -> Option<Choice<'a>> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        (self.choose)(candidates)
    }
}

impl<F> fmt::Debug for BuiltIn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Makes a strategy of a name and a function.
pub(super) fn built_in(
    name: &'static str,
    choose: impl for<'a> Fn(&Candidates<'a>) -> Option<Choice<'a>> + Send + Sync + 'static,
) -> Arc<dyn Strategy> {
    Arc::new(BuiltIn { name, choose })
}
