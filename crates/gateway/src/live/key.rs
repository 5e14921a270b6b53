//! The keys of live requests.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The key of a request, which no other one has had since the start of the process. Each thread counts its own requests, so
/// that threads do not write to one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    thread: u64,
    nth: u64,
}

thread_local! {
    static NEXT: Cell<Key> = Cell::new(Key { thread: next_thread(), nth: 1 });
}

fn next_thread() -> u64 {
    static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);
    NEXT_THREAD.fetch_add(1, Ordering::Relaxed) // a counter: no order needed
}

impl Key {
    pub(super) fn next() -> Self {
        NEXT.with(|next| {
            let key = next.get();
            next.set(Self {
                nth: key.nth + 1,
                ..key
            });
            key
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.thread, self.nth)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn no_two_requests_have_the_same_key() {
        let of_thread = || thread::spawn(|| [(); 100].map(|()| Key::next().to_string()));
        let threads = [(); 8].map(|()| of_thread());
        let keys = threads.into_iter().flat_map(|it| it.join().unwrap());
        assert_eq!(keys.collect::<HashSet<_>>().len(), 800);
    }
}
