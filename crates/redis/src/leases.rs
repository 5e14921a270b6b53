//! The leases of this process.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use tower_triage_durable::{Lease, RequestId, Stop};

/// The leases of the requests that this process runs, and the fetches that still wait for their replies.
#[derive(Default)]
pub(super) struct Leases {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<RequestId, Held>,
    /// The numbers of fetches that still wait for their replies.
    fetches: BTreeSet<u64>,
    next_fetch: u64,
    /// The leases that this process owned in Redis at the last check but did not hold here, and the number of the next
    /// fetch at that time.
    strays: (HashSet<(RequestId, String)>, u64),
}

struct Held {
    fence: String,
    stop: watch::Sender<Option<Stop>>,
    pieces: Pieces,
}

/// The numbering of the pieces of a response.
#[derive(Default)]
struct Pieces {
    last: u64,
    /// The last piece while its reply is missing. Redis may have stored it under the last number.
    doubtful: Option<Bytes>,
}

impl Leases {
    pub(super) fn begin_fetch(&self) -> u64 {
        let mut state = self.lock();
        let number = state.next_fetch;
        state.next_fetch += 1;
        state.fetches.insert(number);
        number
    }

    /// Ends a fetch, whose leases were [added](Self::add) before.
    pub(super) fn end_fetch(&self, number: u64) {
        self.lock().fetches.remove(&number);
    }

    /// Adds the leases that a fetch returned.
    pub(super) fn add<'a>(&self, leases: impl Iterator<Item = &'a Lease>) {
        let mut state = self.lock();
        for lease in leases {
            let held = Held {
                fence: lease.fence().to_owned(),
                stop: watch::Sender::new(None),
                pieces: Pieces::default(),
            };
            state.held.insert(lease.id(), held);
        }
    }

    /// Removes a lease, if the one that is held has the same fence.
    pub(super) fn remove(&self, lease: &Lease) {
        self.forget(lease.id(), lease.fence());
    }

    pub(super) fn forget(&self, id: RequestId, fence: &str) {
        let mut state = self.lock();
        if state.held.get(&id).is_some_and(|held| held.fence == fence) {
            state.held.remove(&id);
        }
    }

    pub(super) fn clear(&self) {
        self.lock().held.clear();
    }

    /// Returns the ids and fences of the held leases, without the leases that were already stopped.
    pub(super) fn held(&self) -> Vec<(RequestId, String)> {
        let state = self.lock();
        let held = state.held.iter();
        held.filter(|(_, held)| held.stop.borrow().is_none())
            .map(|(id, held)| (*id, held.fence.clone()))
            .collect()
    }

    /// Tells a worker that it has lost its lease, and the reason.
    pub(super) fn stop(&self, id: RequestId, fence: &str, stop: Stop) {
        if let Some(held) = self.lock().held.get(&id)
            && held.fence == fence
        {
            held.stop.send_replace(Some(stop));
        }
    }

    /// Returns a receiver for the end of a lease, or `None` if the lease is not held.
    pub(super) fn stopped(&self, lease: &Lease) -> Option<watch::Receiver<Option<Stop>>> {
        let state = self.lock();
        let held = state.held.get(&lease.id())?;
        (held.fence == lease.fence()).then(|| held.stop.subscribe())
    }

    /// Returns the leases of `owned` that were lost together with a reply. Such a lease is unknown here, was unknown at
    /// the last check, and all fetches that were running at the last check have ended since.
    pub(super) fn strays(&self, owned: Vec<(RequestId, String)>) -> Vec<(RequestId, String)> {
        let mut state = self.lock();
        let unknown: HashSet<_> = owned
            .into_iter()
            .filter(|(id, fence)| state.held.get(id).is_none_or(|held| held.fence != *fence))
            .collect();
        let (before, next_fetch) = &state.strays;
        let is_settled = state
            .fetches
            .first()
            .is_none_or(|earliest| earliest >= next_fetch);
        let lost = if is_settled {
            unknown.intersection(before).cloned().collect()
        } else {
            Vec::new()
        };
        if is_settled {
            state.strays = (unknown, state.next_fetch);
        }
        lost
    }

    /// Returns the number of a piece. A piece that is sent again keeps its number if the first reply is missing.
    pub(super) fn number_piece(&self, lease: &Lease, data: &Bytes) -> u64 {
        let mut state = self.lock();
        let Some(held) = state.held.get_mut(&lease.id()) else {
            return 0;
        };
        if held.pieces.doubtful.as_ref() != Some(data) {
            held.pieces.last += 1;
        }
        held.pieces.doubtful = Some(data.clone());
        held.pieces.last
    }

    pub(super) fn on_piece_sent(&self, lease: &Lease) {
        if let Some(held) = self.lock().held.get_mut(&lease.id()) {
            held.pieces.doubtful = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
