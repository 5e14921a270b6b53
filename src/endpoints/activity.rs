//! A backend with one thread answers no check while it streams, and to a check that looks like death.
//!
//! [`Activity`] counts what is heard of an endpoint beside its checks: answers, and pieces of them.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // only whether it has changed is asked

/// How often something was heard of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicU32);

impl Activity {
    /// An answer has begun, or a piece of one has come.
    #[inline]
    pub(crate) fn record(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// How often so far. It wraps around.
    #[cfg(feature = "client")]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
