//! What callers get whose service is not HTTP.

use std::error::Error;
use std::fmt;

use crate::admit::Rejected;

/// Why a request got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueError<E> {
    /// It got no slot.
    Rejected(Rejected),
    /// It got one, and the inner service failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for QueueError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(why) => why.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// Not every inner error is an `Error`: those of Tower's own layers are boxed ones, which are not.
impl<E: fmt::Debug + fmt::Display> Error for QueueError<E> {}
