//! The metrics of models: their loads, unloads and states.
//!
//! With the feature `metrics`, they go to the recorder that the program has installed. Without it, nothing is counted.

#[cfg(feature = "metrics")]
mod facade;

#[cfg(feature = "metrics")]
pub(super) use facade::Metrics;

use std::time::Duration;

use super::ModelState;

/// Counts the change of an instance of `model` from a state, which it has had for `took`, to another one.
pub(super) fn changed(model: &str, from: ModelState, to: ModelState, took: Duration) {
    #[cfg(feature = "metrics")]
    match Change::of(from, to) {
        Some(Change::LoadEnded(outcome)) => facade::load_ended(model, outcome, took),
        Some(Change::Unloaded) => facade::unloaded(model),
        None => {}
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (model, from, to, took);
}

/// A change of an instance's state that is counted.
#[cfg(feature = "metrics")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A load ended with this outcome: `ok`, `failed` or `cancelled`.
    LoadEnded(&'static str),
    /// The instance was stopped or put to sleep, which frees its memory.
    Unloaded,
}

#[cfg(feature = "metrics")]
impl Change {
    fn of(from: ModelState, to: ModelState) -> Option<Self> {
        use ModelState::{Failed, Loaded, Loading, Sleeping, Unloaded, Unloading};
        match (from, to) {
            (Loading, Loaded) => Some(Self::LoadEnded("ok")),
            (Loading, Failed) => Some(Self::LoadEnded("failed")),
            (Loading, Unloaded | Unloading | Sleeping) => Some(Self::LoadEnded("cancelled")),
            (Unloading, Unloaded | Sleeping) => Some(Self::Unloaded),
            _ => None, // an instance that ended by itself was not unloaded
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::ModelState::*;
    use super::*;

    #[test]
    fn each_load_and_unload_counts_once() {
        let counted = [
            (Unloaded, Loading, None),
            (Loading, Loaded, Some(Change::LoadEnded("ok"))),
            (Loading, Failed, Some(Change::LoadEnded("failed"))),
            (Loading, Unloaded, Some(Change::LoadEnded("cancelled"))),
            (Loaded, Unloading, None),
            (Unloading, Unloaded, Some(Change::Unloaded)),
            (Unloading, Sleeping, Some(Change::Unloaded)),
            (Loaded, Unloaded, None),
            (Failed, Loading, None),
        ];
        for (from, to, expected) in counted {
            assert_eq!(Change::of(from, to), expected, "{from:?} => {to:?}");
        }
    }
}
