//! Permits that outlive the code that took them.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use super::Gate;
use super::permit::Permit;
use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Account, Capacity};
use crate::clock;
use crate::sync::Arc;

/// The name of a slot that is held until it is given back by this name.
///
/// The name is plain data. It can be stored as text ([`Display`](fmt::Display), [`FromStr`], or serde as a string), and
/// used by other code that holds the same [`Gate`]. A name from another gate, or from a gate that existed before a
/// restart, has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DetachedPermit {
    gate: u64,
    serial: u64,
    request: u64,
}

impl DetachedPermit {
    /// Returns the id of the ticket for which the permit was given, or 0 if there was no ticket.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request
    }
}

impl fmt::Display for DetachedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}-{:x}", self.gate, self.serial, self.request)
    }
}

impl FromStr for DetachedPermit {
    type Err = InvalidDetachedPermit;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut parts = name.split('-').map(|part| u64::from_str_radix(part, 16));
        // The text is invalid if it has a fourth part.
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(gate)), Some(Ok(serial)), Some(Ok(request)), None) => Ok(Self {
                gate,
                serial,
                request,
            }),
            _ => Err(InvalidDetachedPermit(())),
        }
    }
}

/// The error for a text that is not the name of a detached permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a detached permit: expected three hexadecimal numbers joined by `-`")]
pub struct InvalidDetachedPermit(());

#[cfg(feature = "serde")]
impl serde::Serialize for DetachedPermit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for DetachedPermit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// The gate's record of a permit while it is detached.
pub(crate) struct Detached<C: Capacity> {
    lease: C::Lease,
    request: u64,
    account: Option<Account<C::Lane>>,
    since: Instant,
}

impl<C: Capacity> Permit<C> {
    /// Turns the permit into a name, while its slot stays taken.
    ///
    /// The slot comes back only through [`Gate::release`] or [`Gate::reattach`] with the returned name, wherever they
    /// are called.
    pub fn detach(self) -> DetachedPermit {
        let (origin, lease, request) = self.into_parts();
        // The account is cloned without the origin, because an origin would keep alive the gate that holds this record.
        let account = origin.account.clone();
        let since = clock::now(); // read before the lock is taken
        origin.with_lock(|shared, state, _| {
            state.serial += 1;
            let serial = state.serial;
            let kept = Detached {
                lease,
                request,
                account,
                since,
            };
            state.detached.insert(serial, kept);
            DetachedPermit {
                gate: shared.nonce,
                serial,
                request,
            }
        })
    }
}

impl<C: Capacity> Gate<C> {
    /// Gives back the slot of a detached permit. Returns `true` if the permit was still out.
    pub fn release(&self, permit: &DetachedPermit) -> bool {
        self.reattach(permit).is_some()
    }

    /// Turns a detached permit back into a permit. Returns `None` if it is not out, or belongs to another gate.
    #[must_use]
    pub fn reattach(&self, permit: &DetachedPermit) -> Option<Permit<C>> {
        if permit.gate != self.origin.nonce {
            return None; // it is of another gate, or from before a restart
        }
        let kept = self.origin.lock().detached.remove(&permit.serial)?;
        let origin = match kept.account {
            Some(account) => self.origin.with_account(account),
            None => Arc::clone(&self.origin),
        };
        Some(Permit::new(origin, kept.lease, kept.request))
    }

    /// Returns the detached permits that are out with the time at which each was detached, in that order.
    #[must_use]
    pub fn detached(&self) -> Vec<(DetachedPermit, Instant)> {
        let shared: &Shared<C> = &self.origin;
        let state = shared.lock();
        let mut all: Vec<_> = state
            .detached
            .iter()
            .map(|(&serial, kept)| {
                let permit = DetachedPermit {
                    gate: shared.nonce,
                    serial,
                    request: kept.request,
                };
                (permit, kept.since)
            })
            .collect();
        all.sort_unstable_by_key(|(permit, _)| permit.serial); // because the map is in arbitrary order
        all
    }

    /// Returns the detached permit of the request with the id `request`, if such a permit is out.
    #[must_use]
    pub fn find_detached(&self, request: u64) -> Option<DetachedPermit> {
        let all = self.detached();
        let found = all
            .into_iter()
            .find(|(permit, _)| permit.request == request);
        found.map(|(permit, _)| permit)
    }
}
