//! The upkeep of the connections to one endpoint: the time for which they are kept, and the addresses that they may lead to.
//!
//! A connection that is always in use would be kept for ever, although the name of its endpoint may have moved to another machine
//! meanwhile. So a connection has a maximal age, and one to an address that the name does not have any more takes no request.

use std::net::IpAddr;
// All numbers are `Relaxed`, because each is read by itself and guards no other memory.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio::time::Instant;

use super::connect::Connector;

/// The time between two look-ups of a name while its connections are used.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The addresses of an endpoint, as its connections need them.
#[derive(Debug)]
pub(super) struct Upkeep {
    connector: Connector,
    to: Uri,
    /// The version of the addresses, which changes with them.
    version: AtomicU32,
    /// The addresses of the last look-up, in order. `None` before the first one.
    addresses: Mutex<Option<Vec<IpAddr>>>,
    /// `true` while the name is being looked up.
    is_looking: AtomicBool,
}

/// The part of a connection that its upkeep needs.
#[derive(Debug)]
pub(super) struct Kept {
    upkeep: Arc<Upkeep>,
    /// The address of the endpoint, if it is known.
    address: Option<IpAddr>,
    /// The time at which the connection was opened.
    opened: Instant,
    /// The age at which the connection takes no further request.
    max_age: Duration,
    /// The version of the addresses that have this one.
    version: AtomicU32,
}

impl Upkeep {
    /// Creates the upkeep of connections to the host of `to`.
    pub(super) fn new(connector: Connector, to: Uri) -> Arc<Self> {
        Arc::new(Self {
            connector,
            to,
            version: AtomicU32::new(0),
            addresses: Mutex::default(),
            is_looking: AtomicBool::new(false),
        })
    }

    /// Returns the part of a connection that has just been opened to `address`.
    pub(super) fn begin(self: &Arc<Self>, address: Option<IpAddr>) -> Kept {
        // Each connection has an age of its own, so that those which were opened together do not all end together.
        let jitter = 1.0 - fastrand::f64() * JITTER;
        Kept {
            upkeep: Arc::clone(self),
            address: address.map(|address| address.to_canonical()),
            opened: Instant::now(),
            max_age: self.connector.max_age().mul_f64(jitter),
            version: AtomicU32::new(self.version.load(Relaxed)),
        }
    }

    /// Looks the endpoint's name up in a task of its own, unless a look-up runs.
    pub(super) fn look_up(self: &Arc<Self>) {
        if self.is_looking.swap(true, Relaxed) {
            return;
        }
        let upkeep = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(addresses) = upkeep.connector.addresses(&upkeep.to).await {
                upkeep.set(addresses);
            }
            upkeep.is_looking.store(false, Relaxed);
        });
    }

    /// Sets the addresses of the endpoint.
    fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut new: Vec<_> = addresses.into_iter().map(|it| it.to_canonical()).collect();
        new.sort_unstable();
        let mut last = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&new) {
            *last = Some(new);
            self.version.fetch_add(1, Relaxed);
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let last = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let has = |last: &Vec<_>| last.is_empty() || last.contains(&address);
        last.as_ref().is_none_or(has)
    }
}

/// The largest part by which an age is shorter than the maximal one.
const JITTER: f64 = 0.2;

impl Kept {
    /// Returns the age at which the connection takes no further request.
    pub(super) fn max_age(&self) -> Duration {
        self.max_age
    }

    /// Returns `true` if the connection is too old for another request at `now`, or leads to an address that its endpoint does not
    /// have any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.opened) >= self.max_age || self.has_moved()
    }

    /// Returns `true` if the connection leads to an address that its endpoint does not have any more.
    pub(super) fn has_moved(&self) -> bool {
        let version = self.upkeep.version.load(Relaxed);
        if version == self.version.load(Relaxed) {
            return false; // the common case
        }
        let has_moved = self
            .address
            .is_some_and(|address| !self.upkeep.has(address));
        if !has_moved {
            self.version.store(version, Relaxed);
        }
        has_moved
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;
    use crate::upstream::lookups::Lookups;

    fn upkeep() -> Arc<Upkeep> {
        let connector = Connector::new(Lookups::default());
        Upkeep::new(connector, Uri::from_static("http://engine"))
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[tokio::test(start_paused = true)]
    async fn connections_end_at_an_age_of_their_own() {
        let upkeep = upkeep();
        let all: Vec<_> = (0..100).map(|_| upkeep.begin(None)).collect();
        let over = || all.iter().filter(|it| it.is_over(Instant::now())).count();
        advance(Duration::from_secs(239)).await;
        assert_eq!(over(), 0);
        advance(Duration::from_secs(31)).await;
        assert!((1..100).contains(&over()), "{}", over());
        advance(Duration::from_secs(30)).await;
        assert_eq!(over(), 100);
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_is_gone_is_over() {
        let upkeep = upkeep();
        upkeep.set([address(1), address(2)]);
        let (first, second, unknown) = (
            upkeep.begin(Some(address(1))),
            upkeep.begin(Some(address(2))),
            upkeep.begin(None),
        );
        assert!(!first.has_moved() && !second.has_moved());
        upkeep.set([address(2), address(3)]);
        assert!(first.has_moved() && first.is_over(Instant::now()));
        assert!(!second.has_moved() && !unknown.has_moved());
        upkeep.set([address(3)]);
        assert!(second.has_moved());
        // A name without an address is a fault of the name's server.
        upkeep.set([]);
        assert!(!second.has_moved());
    }
}
