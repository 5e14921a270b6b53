//! The bounds on an endpoint's limit, and slots that it has only for a while, by a bound that ends on its own.
//!
//! Processes that share a backend must not use slots that another process may have been given meanwhile. A process may be
//! stopped and continued at any point, so every request that takes a slot reads the clock to see if the lease has ended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::EndpointRef;
use super::endpoint_word::{EndpointWord, MAX_SLOTS};
use super::latency::START;
use crate::clock;

/// The bound that leased slots put on an endpoint's limit.
#[derive(Debug)]
pub(super) struct SlotLease {
    /// The end of the lease in nanoseconds since [`START`], or [`UNBOUNDED`]. It is written under the lock.
    until: AtomicU64,
    bounds: Mutex<Bounds>,
}

/// The endpoint's limit is the lowest one of all.
#[derive(Debug)]
struct Bounds {
    /// The limit that the configuration, an operator or measurements have set.
    own: u32,
    /// The number of leased slots, or `u32::MAX` for an endpoint that is [`UNBOUNDED`].
    leased: u32,
    /// The number of requests that the endpoint took when it refused others, or `u32::MAX` if it refused none lately.
    taken: u32,
}

/// The value of `until` for an endpoint that has all slots of its own limit.
const UNBOUNDED: u64 = u64::MAX;

/// Returns the nanoseconds since [`START`], kept below [`UNBOUNDED`].
fn nanos(at: Instant) -> u64 {
    let since = at.saturating_duration_since(*START).as_nanos();
    u64::try_from(since).map_or(UNBOUNDED - 1, |since| since.min(UNBOUNDED - 1))
}

impl SlotLease {
    /// Makes the bound of an endpoint that has all slots of its `own` limit.
    pub(super) fn new(own: u32) -> Self {
        Self {
            until: AtomicU64::new(UNBOUNDED),
            bounds: Mutex::new(Bounds {
                own: own.min(MAX_SLOTS),
                leased: u32::MAX,
                taken: u32::MAX,
            }),
        }
    }

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
            self.until.store(0, SeqCst);
            bounds.lease(0, word);
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
        bounds.lease(slots, word)
    }

    /// Takes away the slots of a lease that has ended.
    #[cold]
    pub(super) fn end(&self, word: &EndpointWord) {
        let mut bounds = self.lock();
        // The end is read again under the lock, because the lease may have been renewed.
        if self.has_ended() {
            bounds.lease(0, word);
        }
    }

    /// Sets the endpoint's own limit, which a lease may bound further.
    pub(super) fn set_own(&self, word: &EndpointWord, limit: u32) {
        let mut bounds = self.lock();
        bounds.own = limit.min(MAX_SLOTS);
        bounds.apply(word);
    }

    /// Sets the endpoint's own limit to one that was found by measurement. Returns `true` if the endpoint has more slots
    /// than before.
    pub(super) fn adapt_own(&self, word: &EndpointWord, limit: u32) -> bool {
        let mut bounds = self.lock();
        // A limit of 0 stays, because it means that the endpoint was taken out of service.
        if bounds.own == 0 || bounds.own == limit {
            return false;
        }
        bounds.own = limit;
        bounds.apply(word)
    }

    /// Sets the bound that the endpoint's refusals put on its limit, or removes it. Returns `true` if the limit is higher now.
    pub(super) fn set_taken(&self, word: &EndpointWord, taken: Option<u32>) -> bool {
        let mut bounds = self.lock();
        bounds.taken = taken.unwrap_or(u32::MAX);
        bounds.apply(word)
    }

    fn lock(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bounds {
    fn lease(&mut self, slots: u32, word: &EndpointWord) -> bool {
        self.leased = slots;
        self.apply(word)
    }

    /// Sets the limit by all bounds. Returns `true` if it is higher than before.
    fn apply(&self, word: &EndpointWord) -> bool {
        let limit = self.own.min(self.leased).min(self.taken);
        let before = word.load().limit(); // changes only under the lock
        if before != limit {
            word.set_limit(limit);
        }
        limit > before
    }
}

impl EndpointRef {
    /// Returns the number of requests that the endpoint could serve at a time without the bounds by
    /// [leased slots](crate::route::RouteHandle::lease_slots) and by its own refusals.
    #[must_use]
    pub fn own_limit(&self) -> u32 {
        self.state().cold.lease.lock().own
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
    use std::time::Duration;

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
        let lease = SlotLease::new(8);
        assert!(lease.adapt_own(&word, 9));
        assert_eq!(word.load().limit(), 9);
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

    #[test]
    fn a_limit_of_0_is_not_adapted() {
        let word = EndpointWord::new(8);
        let lease = SlotLease::new(8);
        lease.set_own(&word, 0);
        assert!(!lease.adapt_own(&word, 9));
        assert_eq!(word.load().limit(), 0);
        lease.set_own(&word, 2);
        assert!(!lease.adapt_own(&word, 2));
        assert!(!lease.adapt_own(&word, 1));
        assert!(lease.adapt_own(&word, 3));
    }
}
