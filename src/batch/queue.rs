//! A bounded, ordered queue of requests, from which consumers take them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::builder::RequestQueueBuilder;
use super::shared::Shared;
use super::{Dequeue, DequeueError, EnqueueError, RequestGuard, WaitNonEmpty};
use crate::admit::{RoomStats, Ticket, WaiterId, WaitingRoomConfig};
use crate::gate::with_lock::WithLock;
use crate::on_cancel::OnCancel;

/// A bounded, ordered queue of requests, from which consumers take them. Clones are handles of the same queue.
///
/// Items wait by their tickets in a waiting room of the same kind as that of a [`Gate`](crate::Gate). It has strict
/// priorities with a discipline within each of them, deadlines, a bound per tenant, aging, and displacement. Any number
/// of producers and consumers may use the queue, on any threads.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::batch::RequestQueue;
/// use tower_triage::{Priority, WaitingRoomConfig, Ticket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_triage::batch::EnqueueError<&'static str>> {
/// let queue = RequestQueue::new(WaitingRoomConfig::default());
/// queue.enqueue("normal", Priority(1))?;
/// let id = queue.enqueue("changed my mind", Priority(1))?;
/// let in_time = Ticket::from(Priority(0)).timeout(Duration::from_secs(5));
/// queue.enqueue("high", in_time)?;
///
/// assert_eq!(queue.remove(id), Some("changed my mind"));
/// assert_eq!(queue.dequeue().await, Some("high"));
/// assert_eq!(queue.take_batch(8, u64::MAX), ["normal"]);
/// # Ok(())
/// # }
/// ```
///
/// # Time
///
/// A request arrives when it is enqueued, unless its ticket gives an earlier arrival. A consumer reads the clock only
/// if a wait can end or a waiter can be promoted.
///
/// Waits end by Tokio's clock, and a ticket's arrival is read from it: `tokio::time::Instant::now().into_std()`, which
/// is `Instant::now()` unless a test has paused it. If an item is enqueued inside a Tokio runtime, a timer rejects it
/// when its wait has ended, as long as that runtime runs. Outside a runtime, the item counts as waiting until the queue
/// is next used, and is rejected then. In any case, consumers only get items that have not expired.
///
/// # When it is dropped
///
/// Items that still wait when the last clone is dropped are dropped too, without a call of
/// [`on_rejected`](RequestQueueBuilder::on_rejected). A [`RequestGuard`] counts as a clone.
pub struct RequestQueue<T> {
    pub(super) shared: Arc<Shared<T>>,
}

/// The id of a request. It is unique over all queues of the process, and it is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    queue: u32,
    waiter: WaiterId,
}

impl<T> RequestQueue<T> {
    /// Creates an empty queue, in which every item costs 1.
    #[must_use]
    pub fn new(config: WaitingRoomConfig) -> Self {
        Self::builder(config).build()
    }

    /// Returns a builder for a queue with costs, or with a callback for rejections.
    pub fn builder(config: WaitingRoomConfig) -> RequestQueueBuilder<T> {
        RequestQueueBuilder::new(config)
    }
}

impl<T: Send + 'static> RequestQueue<T> {
    /// Adds the item. With [`WaitingRoomConfig::displace`], it may displace another item of a full queue, which is then
    /// rejected.
    ///
    /// A [`Priority`](crate::Priority) can be passed as the ticket, and means a ticket without an
    /// [arrival](Ticket::arrival).
    ///
    /// # Errors
    ///
    /// Returns the item with the reason why it may not wait. The queue is full, the share of its tenant is full, its
    /// deadline has passed, it costs more than the whole budget, or the queue is closed.
    #[inline]
    pub fn enqueue(
        &self,
        item: T,
        ticket: impl Into<Ticket>,
    ) -> Result<RequestId, EnqueueError<T>> {
        self.enqueue_on(false, item, ticket.into())
    }

    /// Adds the item like [`enqueue`](Self::enqueue). With `has_reservation`, it takes a place that was reserved
    /// before.
    #[inline]
    pub(super) fn enqueue_on(
        &self,
        has_reservation: bool,
        item: T,
        ticket: Ticket,
    ) -> Result<RequestId, EnqueueError<T>> {
        let waiter = self.shared.enqueue(item, ticket, has_reservation)?;
        Ok(self.request_id(waiter))
    }

    /// Adds the item until `token` is cancelled. Then [`cancel`](CancellationToken::cancel) removes and drops the item
    /// before it returns, and its place is free. If the item leaves in any other way, its registration is removed from
    /// the token.
    ///
    /// If the token was cancelled before the call, the item is added and removed at once.
    ///
    /// # Deadlocks
    ///
    /// Before tokio-util 0.7.20, a token that is cancelled stays locked while the items of its child tokens are dropped.
    /// An item that holds a clone of the parent of `token` needs tokio-util 0.7.20 or later, because the drop of that
    /// clone takes the same lock.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`enqueue`](Self::enqueue).
    pub fn enqueue_with_token(
        &self,
        item: T,
        ticket: impl Into<Ticket>,
        token: CancellationToken,
    ) -> Result<RequestId, EnqueueError<T>> {
        let waiter = self.shared.enqueue(item, ticket.into(), false)?;
        match remove_on_cancel(&self.shared, waiter, token) {
            // The token may be cancelled, or the item taken, before this call. In both cases `register` drops the
            // registration.
            Some(registration) => self.shared.register(waiter, registration),
            None => drop(self.shared.remove(waiter)),
        }
        Ok(self.request_id(waiter))
    }

    /// Waits for a request and takes it like [`dequeue`](Self::dequeue), but for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Returns [`DequeueError::Empty`] if the timeout passed without a request, and [`DequeueError::Closed`] if the
    /// queue is closed and empty.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with a timer.
    pub async fn dequeue_timeout(&self, timeout: Duration) -> Result<T, DequeueError> {
        // `timeout` polls `dequeue` before the timer, so a waiting request is taken even with a timeout of 0.
        match tokio::time::timeout(timeout, self.dequeue()).await {
            Ok(found) => found.ok_or(DequeueError::Closed),
            Err(_) => Err(DequeueError::Empty),
        }
    }

    /// Replaces the configuration of the waiting room. Waiting requests keep their order. Those that have become too
    /// many are rejected, the latest of the lowest level first.
    ///
    /// If waits were without an end before, the timer of the Tokio runtime in which this is called ends the waits of
    /// requests that wait already. Outside a runtime, they end when the queue is next used.
    pub fn reconfigure(&self, config: WaitingRoomConfig) {
        self.shared.reconfigure(config);
    }
}

impl<T> RequestQueue<T> {
    /// Returns a guard that removes a request from the queue when the guard is dropped.
    pub fn guard(&self, id: RequestId) -> RequestGuard<T> {
        RequestGuard::new(self.clone(), id)
    }

    /// Waits until there is a request, and takes the one that is next by then. Resolves to `None` if the queue is
    /// closed and empty.
    ///
    /// Consumers are woken in the order in which they began to wait, one consumer for each request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub fn dequeue(&self) -> Dequeue<'_, T> {
        Dequeue::new(self)
    }

    /// Takes the request that is next.
    ///
    /// # Errors
    ///
    /// Returns [`DequeueError::Closed`] if the queue is closed and empty, and [`DequeueError::Empty`] if it is only
    /// empty.
    pub fn try_dequeue(&self) -> Result<T, DequeueError> {
        let item = self.shared.dequeue(&mut None);
        item.ok_or_else(|| self.shared.atomic_state().dequeue_error())
    }

    /// Waits until a request waits, and leaves it in the queue. Resolves to `true` then, or to `false` if the queue is
    /// closed and empty. A batch scheduler waits here while it is idle.
    ///
    /// The queue may be empty again afterwards, if the only request was removed. As long as requests wait that do not
    /// fit into a batch, this resolves at once, so call it again only when there is more room.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves all requests in the queue.
    pub fn wait_nonempty(&self) -> WaitNonEmpty<'_, T> {
        WaitNonEmpty::new(self)
    }

    /// Takes the items of a batch in order. It takes at most `max_count` items, which together cost at most `budget`.
    ///
    /// The queue's [`OnOversize`](super::OnOversize) decides on an item that does not fit. This takes O(k log n) for k
    /// items that are taken or skipped.
    #[must_use = "the items have been taken out of the queue"]
    pub fn take_batch(&self, max_count: usize, budget: u64) -> Vec<T> {
        self.shared.take_batch(max_count, budget)
    }

    /// Removes a request from any position in the order, or returns `None` if it no longer waits. This takes O(1)
    /// amortised. It takes O(log n) if the order of the request is not that of arrival, or if a deadline ends its wait
    /// early.
    pub fn remove(&self, id: RequestId) -> Option<T> {
        let waiter = self.waiter(id)?;
        self.shared.remove(waiter)
    }

    /// Returns `true` if the request waits.
    #[must_use]
    pub fn contains(&self, id: RequestId) -> bool {
        let waiter = self.waiter(id);
        waiter.is_some_and(|waiter| self.shared.lock().queue.waits(waiter))
    }

    /// Returns the position of the request in the order in which all requests would be taken one by one. The next
    /// request has position 1. Returns `None` if the request no longer waits. Expired requests are rejected first. This
    /// takes O(n log n).
    #[must_use]
    pub fn position(&self, id: RequestId) -> Option<usize> {
        let waiter = self.waiter(id)?;
        let mut change = self.shared.change();
        let (state, deferred) = change.parts();
        state.advance_if_timed(deferred); // this may promote or reject the request
        state.queue.position(waiter)
    }

    /// Returns the number of waiting requests, without taking the lock.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.atomic_state().waiting()
    }

    /// Returns `true` if the queue is empty, without taking the lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// Returns the number of cancelled requests, and the number of rejected ones for each reason.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.shared.lock().queue.stats()
    }

    /// Removes all requests and returns them in the order in which they would have been taken one by one. Expired
    /// requests are rejected first.
    pub fn clear(&self) -> Vec<T> {
        self.shared.clear()
    }

    /// Closes the queue. Waiting requests are rejected at once as [`ShuttingDown`](crate::RejectReason::ShuttingDown),
    /// and so are later ones. All consumers are woken and get `None`.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Stops accepting requests. Waiting requests can still be taken. When the last one has left, all consumers are
    /// woken and get `None`.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Returns `true` if the queue has stopped accepting requests, after [`close`](Self::close) or
    /// [`drain`](Self::drain).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.atomic_state().is_closed()
    }

    fn request_id(&self, waiter: WaiterId) -> RequestId {
        let queue = self.shared.queue_id;
        RequestId { queue, waiter }
    }

    /// Returns the id of the request in this queue, or `None` if the request belongs to another queue.
    fn waiter(&self, id: RequestId) -> Option<WaiterId> {
        (id.queue == self.shared.queue_id).then_some(id.waiter)
    }
}

/// Returns an id that is unique among the queues of this process.
pub(super) fn next_queue_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed) // relaxed: the id only has to be unique, and orders no other memory
}

impl<T> Clone for RequestQueue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for RequestQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestQueue")
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Registers the removal of the request from the queue when `token` is cancelled, inside its `cancel`. The registration
/// does not keep the queue alive, and dropping it takes the action back.
///
/// Returns `None` if the token was cancelled before the call.
fn remove_on_cancel<T: Send + 'static>(
    shared: &Arc<Shared<T>>,
    id: WaiterId,
    token: CancellationToken,
) -> Option<OnCancel> {
    let shared = Arc::downgrade(shared); // weak, because the token may outlive the queue
    OnCancel::new(token, move || {
        if let Some(shared) = shared.upgrade() {
            // The item is dropped without the lock, because its destructor is the caller's code.
            drop(shared.remove(id));
        }
    })
}
