//! A database that is open, until it is closed.

use std::sync::{PoisonError, RwLock};

use crate::durable::StoreError;

/// A database behind a lock, because it may be closed while it is used.
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

    /// Closes the database, and opens another in its place.
    pub(crate) fn replace(
        &self,
        open: impl FnOnce() -> Result<D, StoreError>,
    ) -> Result<(), StoreError> {
        let mut database = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Before the other is opened: it holds the database's own lock.
        *database = None;
        *database = Some(open()?);
        Ok(())
    }

    pub(crate) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
