//! The bodies that wait until a [`BodyMemory`] has room for them.
//!
//! A body that waits leaves its waker and the number of bytes that it needs. Memory that is given back wakes the bodies that fit
//! into it, in the order in which they came, and no others. A body that was woken tells the others when it has taken its bytes,
//! or leaves, or finds that another one was faster. So no memory stays free while a body fits into it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst; // memory that is given back and bodies that wait are a store-load pair
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::BodyMemory;

/// The bodies that wait for room in one memory.
#[derive(Debug, Default)]
pub(super) struct MemoryWaiters {
    /// The number of entries. It saves the lock while no body waits.
    len: AtomicUsize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The bytes and the waker of each body, by the order in which they came. A body that is woken has no entry.
    waiting: BTreeMap<u64, (usize, Waker)>,
    last_id: u64,
}

impl MemoryWaiters {
    /// Wakes the bodies that fit into the memory. `free` returns the number of free bytes.
    #[inline]
    pub(super) fn wake(&self, free: impl FnOnce() -> usize) {
        // This runs for each body, and nearly always none waits.
        if self.len.load(SeqCst) > 0 {
            self.wake_fitting(free);
        }
    }

    #[cold]
    fn wake_fitting(&self, free: impl FnOnce() -> usize) {
        let mut entries = self.lock();
        let mut free = free();
        let mut woken = Vec::new();
        entries.waiting.retain(|_, (bytes, waker)| {
            let fits = *bytes <= free;
            if fits {
                free -= *bytes;
                woken.push(std::mem::replace(waker, Waker::noop().clone()));
            }
            !fits
        });
        self.len.store(entries.waiting.len(), SeqCst);
        drop(entries);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Adds or replaces the entry of a body. Returns `true` if it had none.
    fn enter(&self, id: u64, bytes: usize, waker: Waker) -> bool {
        let mut entries = self.lock();
        let old = entries.waiting.insert(id, (bytes, waker));
        self.len.store(entries.waiting.len(), SeqCst);
        drop(entries); // before the old waker, whose code is the caller's
        old.is_none()
    }

    /// Removes the entry of a body. Returns `true` if it had one.
    fn leave(&self, id: u64) -> bool {
        let mut entries = self.lock();
        let old = entries.waiting.remove(&id);
        self.len.store(entries.waiting.len(), SeqCst);
        drop(entries);
        old.is_some()
    }

    fn next_id(&self) -> u64 {
        let mut entries = self.lock();
        entries.last_id += 1;
        entries.last_id
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait of one body for room in a memory. Dropping it wakes the bodies that fit into what is left.
pub(crate) struct RoomWait {
    memory: BodyMemory,
    id: u64,
}

impl BodyMemory {
    /// Waits until `bytes` more fit. Once the caller has taken them, or has stopped to want them, it drops the `wait`.
    pub(crate) fn poll_room(
        &self,
        bytes: usize,
        wait: &mut Option<RoomWait>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.has_room_for(bytes) {
            return Poll::Ready(());
        }
        let waited = wait.is_some();
        let wait = wait.get_or_insert_with(|| RoomWait {
            memory: self.clone(),
            id: self.waiters().next_id(),
        });
        let was_woken = self.waiters().enter(wait.id, bytes, cx.waker().clone()) && waited;
        // The memory may have been given back before the entry was there.
        if self.has_room_for(bytes) {
            return Poll::Ready(());
        }
        if was_woken {
            self.wake_waiting(); // a smaller body may fit into what is left
        }
        Poll::Pending
    }
}

impl Drop for RoomWait {
    fn drop(&mut self) {
        let was_woken = !self.memory.waiters().leave(self.id);
        if was_woken {
            self.memory.wake_waiting();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use fastrand::Rng;

    use super::*;
    use crate::http::MemoryShare;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    /// A body that takes its bytes in one or more pieces.
    struct Reader {
        bytes: usize,
        woken: Arc<Flag>,
        wait: Option<RoomWait>,
        share: Option<MemoryShare>,
    }

    impl Reader {
        fn new(bytes: usize) -> Self {
            Self {
                bytes,
                woken: Arc::default(),
                wait: None,
                share: None,
            }
        }

        fn waits(&self) -> bool {
            self.share.is_none()
        }

        fn was_woken(&self) -> bool {
            self.woken.0.swap(false, SeqCst)
        }

        /// Takes the bytes if there is room for them.
        fn poll(&mut self, memory: &BodyMemory) {
            let waker = Waker::from(Arc::clone(&self.woken));
            let mut cx = Context::from_waker(&waker);
            if memory
                .poll_room(self.bytes, &mut self.wait, &mut cx)
                .is_ready()
            {
                self.share = Some(memory.hold(self.bytes));
                self.wait = None;
            }
        }
    }

    fn readers<const N: usize>(memory: &BodyMemory, bytes: [usize; N]) -> [Reader; N] {
        bytes.map(|bytes| {
            let mut reader = Reader::new(bytes);
            reader.poll(memory);
            reader
        })
    }

    #[test]
    fn only_bodies_that_fit_are_woken() {
        let memory = BodyMemory::new(100);
        let full = memory.hold(90);
        let large = memory.hold(10);
        let mut all = readers(&memory, [60, 20, 5, 20, 1]);
        assert!(all.iter().all(Reader::waits));
        drop(large);
        let woken: Vec<_> = all.iter().map(Reader::was_woken).collect();
        assert_eq!(woken, [false, false, true, false, true]);
        all[2].poll(&memory);
        all[4].poll(&memory);
        drop(full);
        let woken: Vec<_> = all.iter().map(Reader::was_woken).collect();
        assert_eq!(woken, [true, true, false, false, false]);
    }

    #[test]
    fn a_body_that_leaves_passes_its_room_on() {
        let memory = BodyMemory::new(100);
        let full = memory.hold(100);
        let [first, second] = readers(&memory, [80, 80]);
        drop(full);
        assert!(first.was_woken() && !second.was_woken());
        drop(first);
        assert!(second.was_woken());
    }

    #[test]
    fn a_body_that_comes_too_late_passes_the_rest_on() {
        let memory = BodyMemory::new(100);
        let full = memory.hold(100);
        let [mut first, second] = readers(&memory, [80, 50]);
        drop(full);
        let _faster = memory.hold(50);
        assert!(first.was_woken() && !second.was_woken());
        first.poll(&memory);
        assert!(first.waits() && second.was_woken());
    }

    #[test]
    fn no_memory_stays_free_while_a_body_fits() {
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let memory = BodyMemory::new(100);
            let mut readers: Vec<Reader> = Vec::new();
            let mut others = Vec::new();
            for _ in 0..100 {
                match rng.u8(..6) {
                    0..2 => {
                        let mut reader = Reader::new(rng.usize(1..=100));
                        reader.poll(&memory);
                        readers.push(reader);
                    }
                    2 if !readers.is_empty() => {
                        _ = readers.swap_remove(rng.usize(..readers.len()));
                    }
                    3 => others.extend(memory.try_hold(rng.usize(1..50))),
                    4 if !others.is_empty() => drop(others.swap_remove(rng.usize(..others.len()))),
                    _ => {
                        for reader in &mut readers {
                            if rng.bool() && reader.was_woken() {
                                reader.poll(&memory);
                            }
                        }
                    }
                }
                let mut has_woken = true;
                while has_woken && rng.u8(..4) == 0 {
                    has_woken = false;
                    for reader in &mut readers {
                        if reader.was_woken() {
                            has_woken = true;
                            reader.poll(&memory);
                        }
                    }
                }
            }
            while let Some(woken) = readers.iter_mut().find(|it| it.was_woken()) {
                woken.poll(&memory);
            }
            let fits = |it: &Reader| it.waits() && memory.has_room_for(it.bytes);
            assert!(!readers.iter().any(fits), "seed {seed}");
        }
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        let memory = BodyMemory::new(100);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let memory = &memory;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed);
                    for _ in 0..2_000 {
                        let bytes = rng.usize(30..=100);
                        let mut wait = None;
                        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                        let mut cx = Context::from_waker(&waker);
                        let share = loop {
                            let ready = memory.poll_room(bytes, &mut wait, &mut cx).is_ready();
                            match ready.then(|| memory.try_hold(bytes)).flatten() {
                                Some(share) => break share,
                                None if ready => {} // another thread was faster
                                None => std::thread::park(),
                            }
                        };
                        drop(wait);
                        drop(share);
                    }
                });
            }
        });
        assert_eq!(memory.used(), 0);
    }

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
}
