//! An open database that can be closed and replaced.

use std::sync::{PoisonError, RwLock};

use tower_triage_durable::StoreError;

/// A database behind a lock, because it may be closed while other threads use it.
pub(crate) struct Open<D>(RwLock<Option<D>>);

impl<D> Open<D> {
    pub(crate) fn new(database: D) -> Self {
        Self(RwLock::new(Some(database)))
    }

    pub(crate) fn with<T>(
        &self,
        access: impl FnOnce(&D) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Some(database) => access(database),
            None => Err(StoreError::Unavailable("it is closed".to_owned())),
        }
    }

    /// Closes the database, and opens another one in its place.
    pub(crate) fn replace(
        &self,
        open: impl FnOnce() -> Result<D, StoreError>,
    ) -> Result<(), StoreError> {
        let mut database = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // The old database is closed first, because it holds the lock of its files.
        *database = None;
        *database = Some(open()?);
        Ok(())
    }

    pub(crate) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
