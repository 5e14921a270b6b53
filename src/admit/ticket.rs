//! Tickets: what a waiting room knows of its requests.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Priority;
use crate::clock::now;

/// The tenant that a request belongs to: which share it uses under [`Fair`](super::Discipline::Fair), and which
/// tenant's limit of waiting requests it counts towards.
///
/// Any bytes, compared exactly. The empty tenant is the one of requests that name none.
///
/// ```
/// use tower_triage::admit::Tenant;
///
/// let tenant: Tenant = "team-a".into();
/// assert_eq!(tenant.as_bytes(), b"team-a");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Bytes);

impl Tenant {
    /// The tenant of requests that name none.
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
/// the request waits; and their owner may have a destructor of its own, which must not run in the waiting room.
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

/// What a waiting room knows of a request: its priority, tenant, deadline, cost and arrival.
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
    /// The level that it waits in.
    pub priority: Priority,
    /// The tenant that it belongs to. Default: the empty one.
    pub tenant: Tenant,
    /// When its caller no longer wants an answer: the wait ends then, or after the room's `max_wait`. Default `None`.
    pub deadline: Option<Instant>,
    /// How much of its tenant's share it uses, in units of the user's choice. Default 1; 0 counts as 1.
    pub cost: u32,
    /// When it first arrived. Kept when it waits again, so that its wait as a whole has one bound. `None`: when it is
    /// handed in. An instant that is still to come counts as `None` as far as waits go.
    pub arrival: Option<Instant>,
    /// The user's own number for it, to find it among the permits that are out. Default 0.
    pub id: u64,
    /// Whether it may wait if every slot is busy. Default `true`.
    pub wait: bool,
    /// Whether it had a slot before and comes back for another. Default `false`. If so, its `arrival` decides its
    /// place in the order; all others go behind the requests that are there already.
    pub requeued: bool,
    /// `true` if its client sends it again: it goes behind the first attempts of its level. Default `false`.
    pub client_retry: bool,
    /// `true` if no bound of the waiting room refuses it or ends its wait: see [`patient`](Self::patient). Default `false`.
    pub patient: bool,
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

    /// The tenant that it belongs to.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Sets the deadline to `timeout` after the arrival; of a ticket without one, to `timeout` from now, by Tokio's
    /// clock. A timeout beyond what the clock can hold is none.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let arrival = *self.arrival.get_or_insert_with(now);
        self.deadline = arrival.checked_add(timeout);
        self
    }

    /// How much of its tenant's share it uses.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// The user's own number for it.
    #[must_use]
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Puts it where its arrival belongs: before all of its level that arrived later.
    ///
    /// For a request that had a slot, failed, and is tried again. Its `arrival` has to be the first one; without an
    /// arrival it goes last.
    ///
    /// Under [`Fair`](super::Discipline::Fair) it goes before later requests of its own tenant, and uses that share
    /// again. It replaces no waiter for that: a full room rejects it like any other.
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

    /// Marks it as sent again by its client, so that it goes behind the first attempts of its level: clients that retry at
    /// once gain nothing by it.
    #[must_use]
    pub fn client_retry(mut self) -> Self {
        self.client_retry = true;
        self
    }

    /// Exempts it from the bounds of the waiting room: for work that is stored elsewhere and may wait for hours.
    ///
    /// It is never refused, displaced or evicted for [`max_size`](super::WaitingRoomConfig::max_size), which may be 0, for
    /// the bound of its partition or its tenant, or for `target_wait`; and `max_wait` does not end its wait. It takes none
    /// of the places that these bounds count, and its wait is not measured: predictions for others count it as one waiter
    /// that goes before them, where it does.
    ///
    /// Its own deadline still holds, and so do its tenant's limit of slots and [`no_wait`](Self::no_wait).
    ///
    /// Meant for [`Gate::acquire`](crate::Gate::acquire), with a ticket that its work
    /// [keeps up to date](crate::gate::Acquire::set_ticket). A layer whose waiting room is full rejects requests before it
    /// reads their tickets.
    ///
    /// ```
    /// use tower_triage::{Gate, Priority, SlotPool, Ticket, WaitingRoomConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // Without a waiting room, other requests are rejected if the slot is busy.
    /// let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default().max_size(0));
    /// let running = gate.try_acquire(&()).unwrap();
    /// let batch = tokio::spawn(gate.acquire(Ticket::from(Priority(1)).patient(), ()));
    /// tokio::task::yield_now().await;
    /// drop(running);
    /// assert!(batch.await.unwrap().is_ok());
    /// # }
    /// ```
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.patient = true;
        self
    }

    /// Has it rejected if every slot is busy.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = false;
        self
    }
}

/// As [`Ticket::new`], for a request that arrives when it is handed in.
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
            client_retry: false,
            patient: false,
        }
    }
}
