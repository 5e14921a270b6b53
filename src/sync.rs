//! The primitives that the gate is built on, or `loom`'s models of them.

#[cfg(not(loom))]
pub(crate) use self::real::*;
#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::AtomicU64;
    pub(crate) use std::sync::atomic::Ordering::SeqCst;
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
}

#[cfg(loom)]
pub(crate) use self::model::*;
#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    use std::sync::atomic::Ordering;
    pub(crate) use std::sync::atomic::Ordering::SeqCst;

    use loom::sync::atomic::fence;

    /// `loom` treats sequentially consistent accesses as acquire and release only, but knows the fence. A
    /// fence after each write and before each read is what the language guarantees among such accesses.
    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            before(order);
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
            after(order);
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            let old = self.0.fetch_add(value, order);
            after(order);
            old
        }

        pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
            let old = self.0.swap(value, order);
            after(order);
            old
        }

        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            let old = self.0.fetch_sub(value, order);
            after(order);
            old
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            won: Ordering,
            lost: Ordering,
        ) -> Result<u64, u64> {
            let result = self.0.compare_exchange(old, new, won, lost);
            after(won);
            result
        }
    }

    fn before(order: Ordering) {
        if order == SeqCst {
            fence(SeqCst);
        }
    }

    fn after(order: Ordering) {
        if order == SeqCst {
            fence(SeqCst);
        }
    }
}
