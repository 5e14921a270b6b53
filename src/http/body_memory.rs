//! A limit on the memory of all request bodies that are read or kept at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst}; // relaxed where the counter only grows, because it protects no other data

#[cfg(feature = "route")]
use bytes::Bytes;

use super::memory_waiters::MemoryWaiters;

/// A limit on the memory of all request bodies that are read or kept at a time. Clones share it.
///
/// Without it, memory is bounded only by the number of clients times the largest body. A body counts by its length, from
/// its first byte until the last copy of it is dropped. A body whose parameters were changed for its endpoint counts even
/// beyond the limit.
#[derive(Debug, Clone)]
pub struct BodyMemory(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    limit: usize,
    used: AtomicUsize,
    waiters: MemoryWaiters,
}

impl BodyMemory {
    /// Creates a limit of `bytes`, of which none are used.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Counter {
            limit: bytes,
            used: AtomicUsize::new(0),
            waiters: MemoryWaiters::default(),
        }))
    }

    /// Returns the number of bytes that all bodies may have together.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the number of bytes that bodies have now.
    #[must_use]
    pub fn used(&self) -> usize {
        // Sequentially consistent for a body that waits, which looks here after it has left its waker.
        self.0.used.load(SeqCst)
    }

    /// Counts `bytes` until the returned value is dropped. Returns `None` if they do not fit, and counts none of them then.
    ///
    /// This is for the bytes that a server holds of a body before anything reads it, such as the window of a stream of
    /// HTTP/2.
    #[must_use]
    pub fn try_hold(&self, bytes: usize) -> Option<MemoryShare> {
        let mut share = self.share();
        share.grow(bytes).then_some(share)
    }

    /// Counts `bytes` even beyond the limit, until the returned value is dropped.
    #[must_use = "the bytes count until the value is dropped"]
    pub fn hold(&self, bytes: usize) -> MemoryShare {
        let mut share = self.share();
        share.grow_beyond(bytes);
        share
    }

    /// Returns `true` if `bytes` more fit now.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.0.limit
    }

    /// Returns the bodies that wait for room.
    pub(super) fn waiters(&self) -> &MemoryWaiters {
        &self.0.waiters
    }

    /// Wakes the bodies that fit now.
    #[inline]
    pub(super) fn wake_waiting(&self) {
        let free = || self.limit().saturating_sub(self.used());
        self.0.waiters.wake(free);
    }

    /// Counts the body of an admitted request, even beyond the limit, until the last copy of the returned bytes is dropped.
    #[cfg(feature = "route")]
    pub(crate) fn count(&self, bytes: Bytes) -> Bytes {
        self.hold(bytes.len()).tie_to(bytes)
    }

    /// Returns the share of a body that has no bytes yet, for a body that is counted while it comes.
    ///
    /// ```
    /// use tower_triage::queue::BodyMemory;
    ///
    /// let memory = BodyMemory::new(1_000);
    /// let mut share = memory.share();
    /// assert!(share.grow(600));
    /// assert!(!share.grow(600), "refuse the request");
    /// assert_eq!(memory.used(), 600);
    /// drop(share);
    /// assert_eq!(memory.used(), 0);
    /// ```
    #[must_use]
    pub fn share(&self) -> MemoryShare {
        MemoryShare {
            memory: self.clone(),
            bytes: 0,
        }
    }
}

/// The part of a [`BodyMemory`] that one body uses, which is given back when the value is dropped.
#[derive(Debug)]
pub struct MemoryShare {
    memory: BodyMemory,
    bytes: usize,
}

impl MemoryShare {
    /// Returns the limit that the share is a part of.
    #[must_use]
    pub fn memory(&self) -> &BodyMemory {
        &self.memory
    }

    /// Takes `bytes` more. Returns `false` and takes none if they exceed the limit.
    #[must_use = "the bytes may not fit"]
    #[inline]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Counter { limit, used, .. } = &*self.memory.0;
        let more = |used: usize| used.checked_add(bytes).filter(|sum| sum <= limit);
        let has_grown = used.fetch_update(Relaxed, Relaxed, more).is_ok();
        if has_grown {
            self.bytes += bytes; // at most `used`, so it cannot overflow
        }
        has_grown
    }

    /// Takes `bytes` more, even beyond the limit.
    pub fn grow_beyond(&mut self, bytes: usize) {
        self.memory.0.used.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
    }

    /// Ties the share to `bytes`, so that it is given back with the last copy of them.
    #[cfg(feature = "route")]
    pub(crate) fn tie_to(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            return bytes;
        }
        Bytes::from_owner(Tied {
            bytes,
            _share: self,
        })
    }
}

impl Drop for MemoryShare {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.0.used.fetch_sub(self.bytes, SeqCst); // before the look for bodies that wait
            self.memory.wake_waiting();
        }
    }
}

/// The bytes of a body together with their share.
#[cfg(feature = "route")]
struct Tied {
    // Declared first, because the memory is free only once the bytes are dropped.
    bytes: Bytes,
    _share: MemoryShare,
}

#[cfg(feature = "route")]
impl AsRef<[u8]> for Tied {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(all(test, feature = "route"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A step of a random run: a body grows, is tied to bytes and copied, or is dropped.
    #[derive(Debug, Clone)]
    enum Step {
        Grow { body: usize, bytes: usize },
        Tie { body: usize },
        Drop { body: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let body = 0..4_usize;
        prop_oneof![
            (body.clone(), 0..60_usize).prop_map(|(body, bytes)| Step::Grow { body, bytes }),
            body.clone().prop_map(|body| Step::Tie { body }),
            body.prop_map(|body| Step::Drop { body }),
        ]
    }

    proptest! {
        #[test]
        fn the_sum_of_all_bodies_is_used_and_never_above_the_limit(
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let memory = BodyMemory::new(100);
            let mut shares = [const { None::<MemoryShare> }; 4];
            let mut copies: Vec<(usize, Bytes)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grow { body, bytes } => {
                        let fits = memory.has_room_for(bytes);
                        let share = shares[body].get_or_insert_with(|| memory.share());
                        prop_assert_eq!(share.grow(bytes), fits);
                    }
                    Step::Tie { body } => {
                        if let Some(share) = shares[body].take() {
                            let length = share.bytes;
                            let bytes = share.tie_to(Bytes::from(vec![7; length]));
                            let _slice = bytes.slice(..length / 2);
                            copies.push((length, bytes));
                        }
                    }
                    Step::Drop { body } => {
                        shares[body] = None;
                        copies.pop();
                    }
                }
                let kept: usize = copies.iter().map(|(length, _)| length).sum();
                let read: usize = shares.iter().flatten().map(|share| share.bytes).sum();
                prop_assert_eq!(memory.used(), kept + read);
                prop_assert!(memory.used() <= memory.limit());
            }
            drop((shares, copies));
            prop_assert_eq!(memory.used(), 0);
        }
    }

    #[test]
    fn an_admitted_body_counts_beyond_the_limit() {
        let memory = BodyMemory::new(10);
        let bytes = memory.count(Bytes::from_static(b"more than ten"));
        assert_eq!(memory.used(), 13);
        assert!(!memory.has_room_for(0) && !memory.share().grow(1));
        drop(bytes);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn held_bytes_count_until_they_are_dropped() {
        let memory = BodyMemory::new(10);
        let first = memory.try_hold(10).unwrap();
        assert!(memory.try_hold(1).is_none());
        let beyond = memory.hold(5);
        assert_eq!(memory.used(), 15);
        drop((first, beyond));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_last_slice_gives_the_bytes_back() {
        let memory = BodyMemory::new(10);
        let mut share = memory.share();
        assert!(share.grow(6));
        let bytes = share.tie_to(Bytes::from_static(b"sixsix"));
        assert_eq!(bytes, "sixsix");
        let end = bytes.slice(5..);
        drop(bytes);
        assert_eq!(memory.used(), 6);
        drop(end);
        assert_eq!(memory.used(), 0);
    }
}
