//! A limit on the memory of answers that clients have yet to take.
//!
//! Each answer has an [`AnswerShare`]. It reserves bytes for as long as any piece of the answer is in memory, and counts the
//! pieces that were handed to the connection and are not sent. While the memory is full, an answer goes on piece by piece: the
//! next one is read only when the client has taken all that came before.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed; // the counters protect no other data
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;

/// The memory of the answers of an address. Clones share it.
#[derive(Clone)]
pub(crate) struct AnswerMemory(Arc<Counter>);

struct Counter {
    limit: usize,
    /// The sum over all shares of the larger of their reserved and their unsent bytes.
    used: AtomicUsize,
}

/// The part of an [`AnswerMemory`] that one answer uses. It is free once the share and all its pieces are dropped.
pub(crate) struct AnswerShare(Arc<Share>);

struct Share {
    memory: AnswerMemory,
    reserved: usize,
    /// The bytes of the pieces that are not sent.
    unsent: AtomicUsize,
    /// Wakes the answer that waits until all its pieces are sent.
    sent: AtomicWaker,
}

impl AnswerMemory {
    /// Creates a memory of `bytes`, of which none are used.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Counter {
            limit: bytes,
            used: AtomicUsize::new(0),
        }))
    }

    /// Reserves bytes for an answer. Returns `None` if they are not free.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<AnswerShare> {
        let Counter { limit, used } = &*self.0;
        let more = |used: usize| used.checked_add(bytes).filter(|sum| sum <= limit);
        used.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(AnswerShare::new(self, bytes))
    }

    /// Returns the share of an answer that reserves nothing, so that it is never refused.
    pub(crate) fn share(&self) -> AnswerShare {
        AnswerShare::new(self, 0)
    }

    fn is_full(&self) -> bool {
        self.0.used.load(Relaxed) >= self.0.limit
    }

    fn change(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.0.used.fetch_add(more, Relaxed),
            None => self.0.used.fetch_sub(before - after, Relaxed),
        };
    }
}

impl AnswerShare {
    fn new(memory: &AnswerMemory, reserved: usize) -> Self {
        Self(Arc::new(Share {
            memory: memory.clone(),
            reserved,
            unsent: AtomicUsize::new(0),
            sent: AtomicWaker::new(),
        }))
    }

    /// Waits until the answer may hand over its next piece.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let share = &*self.0;
        let has_room = || share.unsent.load(Relaxed) == 0 || !share.memory.is_full();
        if has_room() {
            return Poll::Ready(());
        }
        share.sent.register(cx.waker());
        // The last piece may have been sent before the waker was there. The waker orders this load behind that.
        match has_room() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Counts a piece until the last copy of it is dropped.
    pub(crate) fn count(&self, piece: Bytes) -> Bytes {
        if piece.is_empty() {
            return piece;
        }
        let share = Arc::clone(&self.0);
        let before = share.unsent.fetch_add(piece.len(), Relaxed);
        share.change(before, before + piece.len());
        Bytes::from_owner(Counted { piece, share })
    }
}

impl Share {
    /// Changes what the memory has of this share when its unsent bytes change.
    fn change(&self, before: usize, after: usize) {
        let used = |unsent: usize| unsent.max(self.reserved);
        self.memory.change(used(before), used(after));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.change(self.reserved, 0); // no piece is left, as each holds the share
    }
}

/// A piece of an answer that is not sent.
struct Counted {
    piece: Bytes,
    share: Arc<Share>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let length = self.piece.len();
        let before = self.share.unsent.fetch_sub(length, Relaxed);
        self.share.change(before, before - length);
        if before == length {
            self.share.sent.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    fn has_room(share: &AnswerShare) -> bool {
        let context = Context::from_waker(Waker::noop());
        share.poll_room(&context).is_ready()
    }

    #[test]
    fn a_full_memory_refuses_answers_until_one_is_sent() {
        let memory = AnswerMemory::new(100);
        let first = memory.reserve(60).unwrap();
        assert!(memory.reserve(41).is_none());
        let piece = first.count(Bytes::from(vec![0; 50]));
        drop(first);
        assert!(memory.reserve(41).is_none(), "a piece is not sent");
        drop(piece);
        assert!(memory.reserve(100).is_some());
    }

    #[test]
    fn a_full_memory_lets_each_answer_have_one_piece() {
        let memory = AnswerMemory::new(100);
        let (one, other) = (memory.share(), memory.share());
        let large = one.count(Bytes::from(vec![0; 100]));
        assert!(!has_room(&one));
        assert!(has_room(&other));
        let small = other.count(Bytes::from("x"));
        assert!(!has_room(&other));
        drop(small);
        assert!(has_room(&other));
        drop(large);
        assert!(has_room(&one));
    }

    #[tokio::test]
    async fn an_answer_that_waits_is_woken_when_its_pieces_are_sent() {
        let share = AnswerMemory::new(1).share();
        let piece = share.count(Bytes::from("x"));
        let waits = tokio::spawn(std::future::poll_fn(move |cx| share.poll_room(cx)));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(piece);
        waits.await.unwrap();
    }

    proptest! {
        #[test]
        fn all_is_free_once_all_is_dropped(
            reserved in 0..50_usize,
            pieces in proptest::collection::vec(1..40_usize, 0..8),
        ) {
            let memory = AnswerMemory::new(1_000);
            let share = memory.reserve(reserved).unwrap();
            let counted: Vec<Bytes> = pieces.iter().map(|length| share.count(vec![0; *length].into())).collect();
            let unsent: usize = pieces.iter().sum();
            prop_assert_eq!(memory.0.used.load(Relaxed), unsent.max(reserved));
            drop(share);
            drop(counted);
            prop_assert_eq!(memory.0.used.load(Relaxed), 0);
        }
    }
}
