//! Slots that an endpoint has only for a while, by a bound on its limit that ends on its own.
//!
//! Processes that share a backend must not use slots that another process may have been given meanwhile. A task that
//! lowers the limit in time would not be enough, because a process may be stopped and continued at any point. So every
//! request that takes a slot reads the clock, and finds out if the lease has ended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::EndpointRef;
use super::endpoint_word::EndpointWord;
use crate::clock;

/// The bound that leased slots put on an endpoint's limit, for endpoints that have only leased slots.
#[derive(Debug)]
pub(super) struct SlotLease {
    /// The end of the lease in nanoseconds since [`START`], or [`UNBOUNDED`]. It is written under the lock.
    until: AtomicU64,
    bounds: Mutex<Bounds>,
}

#[derive(Debug, Default)]
struct Bounds {
    /// The limit that the configuration, an operator or measurements have set. It is unused while the endpoint is
    /// unbounded.
    own: u32,
    leased: u32,
}

/// The value of `until` for an endpoint that has all slots of its own limit.
const UNBOUNDED: u64 = u64::MAX;

/// An instant before all others, even before those of a paused clock.
static START: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(3600)).unwrap_or(now)
});
/// Returns the nanoseconds since [`START`], kept below [`UNBOUNDED`].

fn nanos(at: Instant) -> u64 {
    let since = at.saturating_duration_since(*START).as_nanos();
    u64::try_from(since).map_or(UNBOUNDED - 1, |since| since.min(UNBOUNDED - 1))
}

impl Default for SlotLease {
    fn default() -> Self {
        Self {
            until: AtomicU64::new(UNBOUNDED),
            bounds: Mutex::default(),
        }
    }
}

impl SlotLease {
    /// Returns `true` if the endpoint has only leased slots, and their time is over.
    pub(super) fn has_ended(&self) -> bool {
        match self.until.load(SeqCst) {
            UNBOUNDED => false,
            until => nanos(clock::now()) >= until,
        }
    }

    /// Takes all slots away until some are leased, unless that was done before.
    pub(super) fn begin(&self, word: &EndpointWord) {
        let mut bounds = self.lock();
        if self.until.load(SeqCst) == UNBOUNDED {
            bounds.own = word.load().limit();
            bounds.leased = 0;
            self.until.store(0, SeqCst);
            word.set_limit(0);
        }
    }

    /// Sets the number of leased slots and the end of the lease. Returns `true` if the limit is higher now.
    fn set(&self, word: &EndpointWord, slots: u32, until: Instant) -> bool {
        let mut bounds = self.lock();
        if self.until.load(SeqCst) == UNBOUNDED {
            return false;
        }
        // The end is set first, because a slot of the new lease must not be refused after the old lease has ended.
        self.until.store(nanos(until), SeqCst);
        bounds.leased = slots;
        bounds.apply(word)
    }

    /// Takes away the slots of a lease that has ended.
    #[cold]
    pub(super) fn end(&self, word: &EndpointWord) {
        let mut bounds = self.lock();
        // The end is read again under the lock, because the lease may have been renewed.
        if self.has_ended() {
            bounds.leased = 0;
            bounds.apply(word);
        }
    }

    /// Sets the endpoint's own limit, which a lease may bound further.
    pub(super) fn set_own(&self, word: &EndpointWord, limit: u32) {
        let mut bounds = self.lock();
        match self.until.load(SeqCst) {
            UNBOUNDED => word.set_limit(limit),
            _ => {
                bounds.own = limit;
                bounds.apply(word);
            }
        }
    }

    /// Sets the endpoint's own limit to one that was found by measurement, unless it is 0. Returns `true` if the
    /// endpoint has more slots than before.
    pub(super) fn adapt_own(&self, word: &EndpointWord, limit: u32) -> bool {
        // Without the lock, `begin` may run at the same time. It sets the limit to 0, which `adapt_limit` does not
        // change.
        if self.until.load(SeqCst) == UNBOUNDED {
            return word.adapt_limit(limit);
        }
        let mut bounds = self.lock();
        if bounds.own == 0 || bounds.own == limit {
            return false;
        }
        bounds.own = limit;
        bounds.apply(word)
    }

    /// Returns the endpoint's own limit, without the bound by the lease.
    fn own(&self, word: &EndpointWord) -> u32 {
        let bounds = self.lock();
        match self.until.load(SeqCst) {
            UNBOUNDED => word.load().limit(),
            _ => bounds.own,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bounds {
    /// Sets the limit to the lower one of both bounds. Returns `true` if it is higher than before.
    fn apply(&mut self, word: &EndpointWord) -> bool {
        let limit = self.own.min(self.leased);
        let before = word.load().limit(); // changes only under the lock
        if before != limit {
            word.set_limit(limit);
        }
        limit > before
    }
}

impl EndpointRef {
    /// Returns the number of requests that the endpoint could serve at a time if it had as many leased slots.
    ///
    /// This is its [`limit`](Self::limit), unless it has [leased slots only](crate::route::RouterHandle::lease_slots).
    #[must_use]
    pub fn own_limit(&self) -> u32 {
        let state = self.state();
        state.cold.lease.own(&state.word)
    }

    /// Sets the number of slots that the endpoint is leased, with the end of the lease. Returns `true` if it has more
    /// slots than before.
    pub(crate) fn set_lease(&self, slots: u32, until: Instant) -> bool {
        let state = self.state();
        state.cold.lease.set(&state.word, slots, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::{Capacity, LeaseError};
    use crate::endpoints::{Endpoint, Endpoints, Model, Registry, Requirements};

    fn endpoints() -> Endpoints {
        let url = http::Uri::from_static("http://127.0.0.1:9");
        let gpu = Endpoint::new("gpu-1", url).model(Model::new("m"));
        let endpoints = Endpoints::new(Registry::new(vec![gpu.max_concurrent(8)]).unwrap());
        endpoints.lease_slots();
        endpoints
    }

    #[tokio::test(start_paused = true)]
    async fn no_slot_is_taken_after_the_end_of_a_lease() {
        let endpoints = endpoints();
        let gpu = endpoints.endpoints()[0].clone();
        let demand = endpoints.demand(&Requirements::new("m"));
        let is_busy = || matches!(endpoints.try_lease(&demand), Err(LeaseError::Busy));
        assert!(is_busy(), "nothing was leased yet");
        assert_eq!((gpu.limit(), gpu.own_limit()), (0, 8));
        assert!(gpu.set_lease(3, clock::now() + Duration::from_secs(10)));
        let held = endpoints.try_lease(&demand).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(is_busy());
        assert_eq!((gpu.in_flight(), gpu.limit()), (1, 0));
        assert!(gpu.set_lease(2, clock::now() + Duration::from_secs(10)));
        let second = endpoints.try_lease(&demand).unwrap();
        assert!(is_busy());
        endpoints.release(held);
        endpoints.release(second);
    }

    #[tokio::test(start_paused = true)]
    async fn the_lower_of_lease_and_own_limit_holds() {
        let endpoints = endpoints();
        let gpu = endpoints.endpoints()[0].clone();
        let later = clock::now() + Duration::from_secs(10);
        gpu.set_lease(6, later);
        assert_eq!(gpu.limit(), 6);
        gpu.set_limit(4);
        assert_eq!((gpu.limit(), gpu.own_limit()), (4, 4));
        gpu.set_limit(20);
        assert_eq!(gpu.limit(), 6);
        assert!(!gpu.set_lease(5, later));
        assert_eq!(gpu.limit(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_is_added_has_no_slot_before_its_lease() {
        let endpoints = endpoints();
        let changed = endpoints.change(|registry| {
            let mut all = registry.endpoints().to_vec();
            let url = http::Uri::from_static("http://127.0.0.1:10");
            all.push(Endpoint::new("gpu-2", url).model(Model::new("n")));
            Ok::<_, super::super::InvalidRegistry>((Registry::new(all)?, None))
        });
        assert_eq!(changed.unwrap().added, ["gpu-2"]);
        let added = endpoints.endpoints()[1].clone();
        assert_eq!((added.limit(), added.own_limit()), (0, 4));
        let demand = endpoints.demand(&Requirements::new("n"));
        assert!(matches!(
            endpoints.try_lease(&demand),
            Err(LeaseError::Busy)
        ));
    }

    #[test]
    fn a_measured_limit_stays_below_the_lease() {
        let word = EndpointWord::new(8);
        let lease = SlotLease::default();
        assert!(lease.adapt_own(&word, 9));
        lease.begin(&word);
        assert!(!lease.adapt_own(&word, 12));
        assert_eq!(word.load().limit(), 0);
        lease.set(&word, 10, clock::now() + Duration::from_secs(10));
        assert_eq!(word.load().limit(), 10);
        assert!(!lease.adapt_own(&word, 6));
        assert_eq!(word.load().limit(), 6);
        assert!(lease.adapt_own(&word, 7));
        assert_eq!(word.load().limit(), 7);
    }
}
