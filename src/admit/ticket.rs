//! What the waiting room knows of a request.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Priority;
use crate::clock::now;

/// Whose share a request comes out of, for the `fair` discipline and for chairs per tenant.
///
/// Any bytes, compared exactly. The empty tenant is the one of requests that name none.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Bytes);

impl Tenant {
    /// The one of requests that name none.
    pub(crate) const NONE: Self = Self(Bytes::new());

    /// The tenant of this name.
    pub(crate) fn copied(name: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(name))
    }

    /// The tenant's name as it was given.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&'static str> for Tenant {
    fn from(name: &'static str) -> Self {
        Self(Bytes::from_static(name.as_bytes()))
    }
}

impl From<String> for Tenant {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

/// Copies the name. The bytes may be a slice of a whole request's head, which would stay in memory for as long as
/// the tenant waits; and their owner may have a destructor of its own, which must not run in the waiting room.
impl From<Bytes> for Tenant {
    fn from(name: Bytes) -> Self {
        Self::copied(&name)
    }
}

impl std::borrow::Borrow<[u8]> for Tenant {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({:?})", String::from_utf8_lossy(&self.0))
    }
}

/// What the waiting room knows of a request: a triage tag.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_triage::{Priority, Ticket};
///
/// let ticket = Ticket::new(Priority::HIGHEST, Instant::now())
///     .tenant("team-a".into())
///     .timeout(Duration::from_secs(5));
/// assert_eq!(ticket.cost, 1);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ticket {
    /// The level it waits in.
    pub priority: Priority,
    /// Whose share it comes out of.
    pub tenant: Tenant,
    /// When its caller no longer wants an answer. Bounds the wait together with the room's `max_wait`.
    pub deadline: Option<Instant>,
    /// What it takes from its tenant's share, in units of the user's choice. Default 1; 0 counts as 1.
    pub cost: u32,
    /// When it first arrived. Kept when it waits again, so that waiting twice is not waiting longer. `None`: it
    /// arrives when it is handed in; or, in a `RequestQueue` in which nothing depends on how long anybody waits, when
    /// something first does. One that is still to come counts as `None` as far as waits go.
    pub arrival: Option<Instant>,
    /// The user's own name for it, to find it among the permits that are out. Default 0.
    pub id: u64,
    /// Whether it may wait if every slot is busy. Default `true`.
    pub wait: bool,
    /// Whether it had a slot before and comes back for another. Default `false`. If so, it stands where its
    /// `arrival` puts it; everyone else stands behind those who came before.
    pub requeued: bool,
}

impl Ticket {
    /// A ticket of the empty tenant, without a deadline of its own, of cost 1.
    #[must_use]
    #[inline]
    pub fn new(priority: Priority, arrival: Instant) -> Self {
        let arrival = Some(arrival);
        Self {
            arrival,
            ..Self::from(priority)
        }
    }

    /// Whose share it comes out of.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Bounds the wait by `timeout` from the arrival, which is now by Tokio's clock if the ticket says nothing of it.
    /// A timeout beyond what the clock can hold is none.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let arrival = *self.arrival.get_or_insert_with(now);
        self.deadline = arrival.checked_add(timeout);
        self
    }

    /// What it takes from its tenant's share.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// The user's own name for it.
    #[must_use]
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Gives it the place of its arrival: before everyone of its level who came later.
    ///
    /// For a request that had a slot, failed, and is tried again. Its `arrival` has to be the first one; without any it
    /// stands last. Of those in a `RequestQueue` of whom it is not known when they came, it goes before those who were
    /// handed in after one with an `arrival` as late as its own.
    ///
    /// Under [`Fair`](super::Discipline::Fair) it stands before later ones of its own tenant, and is paid for
    /// again. It does not take a chair from anybody for that: a full room turns it away like any other.
    ///
    /// ```
    /// use std::time::Instant;
    /// use tower_triage::{Priority, Ticket};
    ///
    /// let first = Ticket::new(Priority::HIGHEST, Instant::now());
    /// let again = first.clone().requeued();
    /// assert_eq!(again.arrival, first.arrival);
    /// ```
    #[must_use]
    pub fn requeued(mut self) -> Self {
        self.requeued = true;
        self
    }

    /// Turns it away rather than let it wait.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = false;
        self
    }
}

/// As [`Ticket::new`], for a request that arrives when it is handed in. The clock is read then, and only if the room
/// asks what time it is.
impl From<Priority> for Ticket {
    #[inline]
    fn from(priority: Priority) -> Self {
        Self {
            priority,
            tenant: Tenant::NONE,
            deadline: None,
            cost: 1,
            arrival: None,
            id: 0,
            wait: true,
            requeued: false,
        }
    }
}
