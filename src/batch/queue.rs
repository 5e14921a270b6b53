//! The waiting room from the pull side.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::builder::Builder;
use super::cancel::remove_on_cancel;
use super::shared::Shared;
use super::{Dequeue, DequeueError, EnqueueError, RequestGuard, WaitNonEmpty};
use crate::admit::{RoomStats, Ticket, WaiterId, WaitingRoomConfig};
use crate::gate::with_lock::WithLock;

/// A bounded, ordered queue of requests that somebody comes and fetches. Clones are the same queue.
///
/// Items wait by their tickets in a waiting room of the same kind as that of a [`Gate`](crate::Gate): strict
/// priorities, within one the discipline, deadlines, chairs per tenant, aging, displacement. Any number of
/// producers and consumers, on any threads.
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
/// A request arrives when it is enqueued, unless its ticket says that it arrived before. Where nothing in the room
/// depends on how long anybody waits, the clock is not read for it.
///
/// Waits end by Tokio's clock, and an arrival is to be told by it: `tokio::time::Instant::now().into_std()`, which is
/// `Instant::now()` unless a test has paused it. Where an item is enqueued inside a Tokio runtime, a timer answers it
/// when its wait has ended, as long as that runtime runs; elsewhere it is answered when somebody next comes to fetch,
/// and counts as waiting until then. Whoever comes to fetch is never given an item whose wait has ended.
///
/// # When it is dropped
///
/// What still waits when the last clone is dropped is dropped with it, and no rejection is told. A [`RequestGuard`]
/// counts as a clone.
pub struct RequestQueue<T> {
    pub(super) shared: Arc<Shared<T>>,
}

/// Names a request in the queue that gave it the name. It is never given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    queue: u32,
    key: WaiterId,
}

impl<T> RequestQueue<T> {
    /// An empty queue, in which every item costs 1.
    #[must_use]
    pub fn new(room: WaitingRoomConfig) -> Self {
        Self::builder(room).build()
    }

    /// Makes a queue with costs, or with ears for rejections.
    pub fn builder(room: WaitingRoomConfig) -> Builder<T> {
        Builder::new(room)
    }
}

impl<T: Send + 'static> RequestQueue<T> {
    /// Lets the item wait. With [`WaitingRoomConfig::displace`], perhaps on the chair of another, who is rejected.
    ///
    /// Where no more is to be said of it than how urgent it is, its [`Priority`](crate::Priority) will do for a ticket:
    /// one without an [arrival](Ticket::arrival).
    ///
    /// # Errors
    ///
    /// The item, with the reason why it may not wait: every chair is taken, its tenant's are, its deadline has
    /// passed, it costs more than the whole budget, or the queue is closed.
    #[inline]
    pub fn enqueue(
        &self,
        item: T,
        ticket: impl Into<Ticket>,
    ) -> Result<RequestId, EnqueueError<T>> {
        self.enqueue_on(false, item, ticket.into())
    }

    /// As [`enqueue`](Self::enqueue), perhaps on a chair that was reserved before.
    #[inline(always)]
    pub(super) fn enqueue_on(
        &self,
        has_chair: bool,
        item: T,
        ticket: Ticket,
    ) -> Result<RequestId, EnqueueError<T>> {
        let key = self.shared.enqueue(item, ticket, has_chair)?;
        Ok(self.id(key))
    }

    /// Lets the item wait until `token` is cancelled. Then it is dropped before
    /// [`cancel`](CancellationToken::cancel) returns, by whoever calls that; its chair is free at that instant. An
    /// item that leaves in any other way leaves nothing behind at the token.
    ///
    /// If the token has been cancelled before, the item takes a chair and leaves it at once.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue`](Self::enqueue).
    pub fn enqueue_with_token(
        &self,
        item: T,
        ticket: impl Into<Ticket>,
        token: CancellationToken,
    ) -> Result<RequestId, EnqueueError<T>> {
        let key = self.shared.enqueue(item, ticket.into(), false)?;
        match remove_on_cancel(&self.shared, key, token) {
            Some(registration) => self.shared.register(key, registration),
            None => drop(self.shared.remove(key)),
        }
        Ok(self.id(key))
    }

    /// As [`dequeue`](Self::dequeue), but for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`DequeueError::Empty`] if nothing came in time, [`DequeueError::Closed`] if nothing ever will.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with a timer.
    pub async fn dequeue_timeout(&self, timeout: Duration) -> Result<T, DequeueError> {
        match tokio::time::timeout(timeout, self.dequeue()).await {
            Ok(found) => found.ok_or(DequeueError::Closed),
            Err(_) => Err(DequeueError::Empty),
        }
    }

    /// Furnishes the waiting room anew. Everyone moves over in order; those who no longer fit are rejected, the
    /// latest of the lowest level first.
    ///
    /// If waits had no end before, those of requests that wait already end by the timer of the Tokio runtime in which
    /// this is called, or else when the queue is next used.
    pub fn reconfigure(&self, room: WaitingRoomConfig) {
        self.shared.reconfigure(room);
    }
}

impl<T> RequestQueue<T> {
    /// Ties a request to a guard: when that is dropped, it leaves.
    pub fn guard(&self, id: RequestId) -> RequestGuard<T> {
        RequestGuard::new(self.clone(), id)
    }

    /// Waits for a request and takes it: the best of those who wait at that instant. `None` if the queue is
    /// closed and nothing waits.
    ///
    /// Consumers are woken in the order in which they came, one for each request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub fn dequeue(&self) -> Dequeue<'_, T> {
        Dequeue::new(self)
    }

    /// Takes the best of those who wait.
    ///
    /// # Errors
    ///
    /// If nothing waits.
    pub fn try_dequeue(&self) -> Result<T, DequeueError> {
        self.shared.dequeue(&mut None)
    }

    /// Waits until there is a request, and leaves it to be taken: `true`. `false` if the queue is closed and
    /// nothing waits. What a batch scheduler waits for when it has nothing to do.
    ///
    /// Whoever takes afterwards may find nothing nevertheless: the only one who waited may have left. And as long as
    /// what waits does not fit, this is true at once: not to be asked again before there is more room.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub fn wait_nonempty(&self) -> WaitNonEmpty<'_, T> {
        WaitNonEmpty::new(self)
    }

    /// Takes those who join a batch now: the best first, at most `max_count`, which together cost at most `budget`.
    ///
    /// If the next one does not fit, what happens is what the queue's [`OnOversize`](super::OnOversize) says. O(k log n)
    /// for k items taken or passed.
    #[must_use = "the items have been taken out of the queue"]
    pub fn take_batch(&self, max_count: usize, budget: u64) -> Vec<T> {
        self.shared.take_batch(max_count, budget)
    }

    /// Takes a request out from wherever it waits, without a look at the others: in constant time, amortised, or in
    /// O(log n) where its order is not that of arrival. `None` if it no longer waits.
    pub fn remove(&self, id: RequestId) -> Option<T> {
        let key = self.key(id)?;
        Some(self.shared.remove(key)?.item)
    }

    /// Whether the request waits.
    #[must_use]
    pub fn contains(&self, id: RequestId) -> bool {
        let key = self.key(id);
        key.is_some_and(|key| self.shared.lock().queue.waits(key))
    }

    /// Where the request stands by now, in the order in which all would be taken one by one: 1 is next. `None` if it
    /// no longer waits. Requests whose wait has ended by now are rejected first. O(n log n).
    #[must_use]
    pub fn position(&self, id: RequestId) -> Option<usize> {
        let key = self.key(id)?;
        self.shared.with_lock(|_, state, deferred| {
            state.advance_if_timed(deferred);
            state.queue.position(key)
        })
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.summary().waiting()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// What became of those who were not taken.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.shared.lock().queue.stats()
    }

    /// Takes everyone out, in the order in which they would have been taken one by one.
    pub fn clear(&self) -> Vec<T> {
        let all = self.shared.clear();
        all.into_iter().map(|entry| entry.item).collect()
    }

    /// Closes the queue: who waits is rejected at once, as shutting down, and so is who comes. Consumers are told
    /// that nothing will ever come.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the queue to those who come. Who waits can still be taken; when the last has gone, consumers are
    /// told that nothing will ever come.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Whether nobody may come any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.summary().is_closed()
    }

    fn id(&self, key: WaiterId) -> RequestId {
        let queue = self.shared.number;
        RequestId { queue, key }
    }

    /// What the request is called in this queue. `None` if another one named it.
    fn key(&self, id: RequestId) -> Option<WaiterId> {
        (id.queue == self.shared.number).then_some(id.key)
    }
}

/// A number that no other queue of this process has.
pub(super) fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Relaxed)
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
