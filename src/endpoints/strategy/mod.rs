//! Strategies: which of the endpoints that can serve a request now gets it.
//!
//! A [`Strategy`] only prefers. The candidates are found before it is asked, and the slot is taken after it if nothing
//! has changed meanwhile; so no strategy can overload an endpoint or choose one that lacks what the request needs.

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

/// Chooses among the endpoints that can serve a request now.
///
/// It is called by many threads at once, and again if another request took the slot meanwhile. It must neither block nor
/// do I/O, and should not allocate. While requests wait, it is called under the lock of the waiting room. So it must not
/// use a [`RouterHandle`](crate::route::RouterHandle): methods that need the lock panic inside a strategy, at every call.
/// [`Candidates`] says how busy each endpoint is.
///
/// If it panics, the first candidate that is free is taken, and there is an error in the log.
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
    /// Its name in a [`Decision`](super::Decision), in logs and in metrics.
    fn name(&self) -> &'static str;

    /// One of [`candidates.free()`](Candidates::free); `None` if there is none. If there is one all the same, the
    /// first is taken.
    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>>;
}

/// What a [`Strategy`] chose.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub(crate) candidate: Candidate<'a>,
    pub(crate) score: Option<u32>,
}

impl<'a> Choice<'a> {
    /// This one.
    #[must_use]
    pub fn new(candidate: Candidate<'a>) -> Self {
        Self {
            candidate,
            score: None,
        }
    }

    /// With this score, for the [`Decision`](super::Decision).
    #[must_use]
    pub fn score(mut self, score: u32) -> Self {
        self.score = Some(score);
        self
    }
}

/// A strategy of the crate's own.
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

pub(super) fn built_in(
    name: &'static str,
    choose: impl for<'a> Fn(&Candidates<'a>) -> Option<Choice<'a>> + Send + Sync + 'static,
) -> Arc<dyn Strategy> {
    Arc::new(BuiltIn { name, choose })
}
