//! The synchronisation primitives that the gate is built on. In tests under `--cfg loom` they are `loom`'s models of
//! them.

#[cfg(not(all(test, loom)))]
pub(crate) use self::real::*;
#[cfg(not(all(test, loom)))]
mod real {
    pub(crate) use std::sync::atomic::AtomicU64;
    pub(crate) use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use tokio::task::coop::poll_proceed;
}

#[cfg(all(test, loom))]
pub(crate) use self::model::*;
#[cfg(all(test, loom))]
mod model {
    use std::cell::Cell;
    pub(crate) use std::sync::Arc;
    use std::sync::atomic::Ordering;
    pub(crate) use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::task::{Context, Poll};

    use loom::sync::atomic::fence;
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    /// The position of the fence that makes an access sequentially consistent.
    ///
    /// `loom` treats `SeqCst` accesses as acquire and release only, but it models the fence exactly. A fence after each
    /// write, or before each read, gives the accesses the guarantees of the language, as long as all of them are
    /// `SeqCst`. With fences after writes, a model fails if a write is weaker than it must be. With fences before
    /// reads, it fails if a read is too weak. Fences at both positions would hide either mistake.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fences {
        AfterWrites,
        BeforeReads,
    }

    thread_local! {
        static FENCES: Cell<Fences> = const { Cell::new(Fences::AfterWrites) };
    }

    impl Fences {
        /// Sets the position of the fence for the models that this thread runs from now on.
        pub(crate) fn place(self) {
            FENCES.set(self);
        }

        /// Issues a fence if `self` is the chosen position and the access is `SeqCst`.
        fn at(self, order: Ordering) {
            if order == SeqCst && FENCES.get() == self {
                fence(SeqCst);
            }
        }
    }

    /// A cooperative budget without an end. It stands in for Tokio's, because the models run without a runtime.
    pub(crate) struct Budget;

    impl Budget {
        pub(crate) fn made_progress(&self) {}
    }

    pub(crate) fn poll_proceed(_: &mut Context<'_>) -> Poll<Budget> {
        Poll::Ready(Budget)
    }

    /// An atomic of `loom` that adds a fence to each `SeqCst` access.
    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            Fences::BeforeReads.at(order);
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
            Fences::AfterWrites.at(order);
        }

        pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
            Fences::BeforeReads.at(order);
            let old = self.0.swap(value, order);
            Fences::AfterWrites.at(order);
            old
        }

        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            Fences::BeforeReads.at(order);
            let old = self.0.fetch_sub(value, order);
            Fences::AfterWrites.at(order);
            old
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            won: Ordering,
            lost: Ordering,
        ) -> Result<u64, u64> {
            Fences::BeforeReads.at(lost);
            // The strong exchange is used because spurious failures would only add to the states that `loom` has to
            // explore.
            let result = self.0.compare_exchange(old, new, won, lost);
            // A failed exchange writes nothing, so it needs no fence after a write.
            if result.is_ok() {
                Fences::AfterWrites.at(won);
            }
            result
        }
    }
}
