//! Handles of metrics that are kept between requests, because finding a handle hashes its name and its labels.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use metrics::{Recorder, with_recorder};

/// A handle that is found at its first use and kept from then on.
///
/// A handle belongs to the recorder that it was found in, so it is found again if another recorder is installed.
pub(super) struct Kept<T>(ArcSwapOption<Found<T>>);

struct Found<T> {
    /// The address of the recorder. A recorder stays at its address while it is installed.
    recorder: usize,
    handle: T,
}

impl<T> Kept<T> {
    /// Passes the handle to `act`. The handle comes from `find` unless the kept one `fits`.
    pub(super) fn with(
        &self,
        fits: impl FnOnce(&T) -> bool,
        find: impl FnOnce() -> T,
        act: impl FnOnce(&T),
    ) {
        let recorder = with_recorder(|it| ptr::from_ref::<dyn Recorder>(it).addr());
        if let Some(found) = &*self.0.load()
            && found.recorder == recorder
            && fits(&found.handle)
        {
            return act(&found.handle);
        }
        let handle = find();
        act(&handle);
        self.0.store(Some(Arc::new(Found { recorder, handle })));
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
