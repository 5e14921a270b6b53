//! A count of what an endpoint sends apart from answers to checks: a backend with one thread answers no check while it
//! streams, and still works.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // only compared with an earlier count

/// How many responses and parts of responses an endpoint has sent.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicU32);

impl Activity {
    /// A response or a part of one has come.
    #[inline]
    pub(crate) fn record(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// The count, which wraps around.
    #[cfg(feature = "client")]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
