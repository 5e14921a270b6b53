//! A stored body that is longer than one part, which is read from the store as its client takes it.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::{RequestId, ResponsePart, Store, StoreError};

/// The number of bytes of a response that are read at a time.
pub(super) const PART: usize = 128 << 10;

/// The rest of a stored response, of which at most one part is in memory.
pub(super) struct StoredBody {
    store: Arc<dyn Store>,
    id: RequestId,
    /// The number of bytes of the stored form that were read so far.
    offset: u64,
    /// The number of bytes of the whole stored form.
    length: u64,
    /// The part that was read and is not yet taken.
    part: Bytes,
    /// The read of the next part. `None` until the client takes it.
    next: Option<NextPart>,
}

type NextPart = Pin<Box<dyn Future<Output = Result<Option<ResponsePart>, StoreError>> + Send>>;

impl StoredBody {
    /// Returns a body that begins with `part`, after which byte `offset` of the stored form follows.
    pub(super) fn new(
        store: Arc<dyn Store>,
        id: RequestId,
        part: Bytes,
        offset: u64,
        length: u64,
    ) -> Self {
        Self {
            store,
            id,
            offset,
            length,
            part,
            next: None,
        }
    }

    /// Returns the number of bytes that are still to be taken.
    pub(super) fn left(&self) -> u64 {
        self.length.saturating_sub(self.offset) + self.part.len() as u64
    }

    /// Returns the next part, or `None` at the end.
    pub(super) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error + Send + Sync>>>> {
        if !self.part.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.part))));
        }
        if self.offset >= self.length {
            return Poll::Ready(None);
        }
        let next = self.next.get_or_insert_with(|| {
            let (store, id, offset) = (Arc::clone(&self.store), self.id, self.offset);
            Box::pin(async move { store.response_part(id, offset, PART).await })
        });
        let read = ready!(next.as_mut().poll(cx));
        self.next = None;
        let part = match read {
            Ok(Some(part)) if part.length == self.length && !part.data.is_empty() => part.data,
            // The connection breaks with the error, so the client can't mistake the parts for the whole.
            Ok(_) => {
                self.offset = self.length;
                let gone = "the response was forgotten or replaced while it was read";
                return Poll::Ready(Some(Err(gone.into())));
            }
            Err(error) => {
                self.offset = self.length;
                return Poll::Ready(Some(Err(error.into())));
            }
        };
        self.offset += part.len() as u64;
        Poll::Ready(Some(Ok(part)))
    }
}
