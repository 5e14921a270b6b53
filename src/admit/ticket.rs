//! Tickets, which tell a waiting room the priority, tenant and deadline of a request.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Priority;
use crate::clock::now;
use crate::setters::setters;

/// The tenant that a request belongs to.
///
/// Under [`Fair`](super::Discipline::Fair) each tenant has a share of the slots. The limit of waiting requests per
/// tenant is counted by this name, too.
///
/// A name consists of any bytes and is compared exactly. Requests without a tenant's name belong to the empty tenant.
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
    /// The empty tenant, to which requests without a tenant's name belong.
    pub(crate) const NONE: Self = Self(Bytes::new());

    /// Returns the tenant of this name, with its own copy of the bytes.
    pub(crate) fn copied(name: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(name))
    }

    /// Returns the tenant's name as it was given.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Copies the name.
impl From<&str> for Tenant {
    fn from(name: &str) -> Self {
        Self::copied(name.as_bytes())
    }
}

impl From<String> for Tenant {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

/// Copies the name, because the bytes may be a slice of a whole request's head, and because their owner may have a
/// destructor of its own, which must not run in the waiting room.
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

/// The data about a request that a waiting room decides by: its priority, tenant, deadline, cost and arrival.
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
    /// The level that the request waits in.
    pub priority: Priority,
    /// The tenant that the request belongs to. The default is the empty tenant.
    pub tenant: Tenant,
    /// The instant from which on the caller no longer wants an answer. The wait ends at this instant or after the
    /// room's `max_wait`, if that is earlier. Default `None`.
    pub deadline: Option<Instant>,
    /// The part of its tenant's share that the request uses, in units of the user's choice. Default 1; 0 counts as 1.
    pub cost: u32,
    /// The first arrival of the request. A request that waits again keeps it, so that its wait as a whole has one
    /// bound.
    ///
    /// `None` stands for the instant at which the ticket is handed in. An instant in the future counts as `None` where
    /// the length of a wait is concerned.
    pub arrival: Option<Instant>,
    /// The user's own number for the request, to find it among the permits that are out. Default 0.
    pub id: u64,
    /// `true` if the request may wait while every slot is busy. Default `true`.
    pub wait: bool,
    /// `true` if the request had a slot before and comes back for another. Its `arrival` decides its position in the
    /// order then, while all other requests go behind those that are there already. Default `false`.
    pub requeued: bool,
    /// `true` if the client sends the request again, so that it goes behind the first attempts of its level. Default
    /// `false`.
    pub client_retry: bool,
    /// `true` to exempt the request from the bounds of the waiting room, which then neither refuse it nor end its wait
    /// (see [`patient`](Self::patient)). Default `false`.
    pub patient: bool,
    /// The cost with the slot time that its tenant's tickets usually leave out, which the request costs at least. The
    /// room sets it.
    pub(crate) least_cost: u32,
    /// `true` if a place in the room was reserved for the request, and the reservation ends with its arrival.
    pub(crate) has_place: bool,
    /// `true` if the bounds of the room hold for the requeued request, because its slot went to an arrival.
    pub(crate) left_slot: bool,
}

impl Ticket {
    /// Returns a ticket of the empty tenant with a cost of 1 and without a deadline.
    #[must_use]
    #[inline]
    pub fn new(priority: Priority, arrival: Instant) -> Self {
        let arrival = Some(arrival);
        Self {
            arrival,
            ..Self::from(priority)
        }
    }

    /// Sets the deadline to `timeout` after the arrival. A ticket without an arrival gets the present instant of
    /// Tokio's clock as its arrival. A timeout beyond the range of the clock removes the deadline.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let arrival = *self.arrival.get_or_insert_with(now);
        self.deadline = arrival.checked_add(timeout);
        self
    }

    setters! {
        tenant: Tenant,
        cost: u32,
        id: u64,
    }

    /// Marks the request as one that comes back after it had a slot and failed. It goes before all requests of its
    /// level that arrived later, and under [`Fair`](super::Discipline::Fair) before those of its own tenant. Its
    /// `arrival` has to be the first one, because a request without an arrival goes last.
    ///
    /// It was admitted before, so a room in front of slots refuses it neither because the room, its partition or its
    /// tenant has no place left, nor by a prediction. It enters above these bounds, and takes the place of the next
    /// arrival. While it waits, it may be displaced like others, after all later ones of its level and flow. A full
    /// [`RequestQueue`](crate::RequestQueue) or [`WaitQueue`](crate::admit::WaitQueue) rejects it like any other.
    #[must_use]
    pub fn requeued(mut self) -> Self {
        self.requeued = true;
        self
    }

    /// Marks the request as sent again by its client, so that it goes behind the first attempts of its level.
    /// Clients that retry at once gain nothing by it.
    #[must_use]
    pub fn client_retry(mut self) -> Self {
        self.client_retry = true;
        self
    }

    /// Exempts the request from the bounds of the waiting room. This is for work that is stored elsewhere and may
    /// wait for hours.
    ///
    /// Neither the bounds of the room, of its partition and of its tenant nor `target_wait` refuse, displace or
    /// evict such a request, and its wait goes on after `max_wait`. It does not count towards these bounds, and its
    /// wait is not measured. Its own deadline still holds, and so do its tenant's limit of slots and
    /// [`no_wait`](Self::no_wait).
    ///
    /// Use it with [`Gate::acquire`](crate::Gate::acquire), and with a ticket that the work [keeps up to
    /// date](crate::gate::Acquire::set_ticket). A layer whose waiting room is full rejects requests before it reads
    /// their tickets.
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

    /// Returns the part of its tenant's share that the request takes up when it gets its slot; at least 1.
    pub(crate) fn share_cost(&self) -> u32 {
        self.cost.max(self.least_cost).max(1)
    }

    /// Makes the waiting room reject the request if every slot is busy.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = false;
        self
    }
}

/// Returns the ticket of a request that arrives when it is handed in, with the defaults of [`Ticket::new`].
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
            least_cost: 0,
            has_place: false,
            left_slot: false,
        }
    }
}
