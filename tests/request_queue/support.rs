//! What the tests of the queue share.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use tower_triage::batch::{RequestId, RequestQueue, TooLarge};
use tower_triage::{Priority, RejectReason, Ticket, WaitingRoomConfig};

/// What a queue rejected, in order.
pub(crate) type Told<T> = Arc<Mutex<Vec<(T, RejectReason<TooLarge>)>>>;

pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(crate) fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), now())
}

pub(crate) fn of(tenant: &'static str) -> Ticket {
    ticket(0).tenant(tenant.into())
}

/// As many chairs and as much patience as it takes, but for what is changed.
pub(crate) fn room(change: impl FnOnce(&mut WaitingRoomConfig)) -> WaitingRoomConfig {
    let mut room = WaitingRoomConfig::default();
    (room.max_size, room.max_wait) = (usize::MAX, None);
    change(&mut room);
    room
}

pub(crate) fn queue<T: Send + 'static>() -> RequestQueue<T> {
    RequestQueue::new(room(|_| ()))
}

pub(crate) fn max_size<T: Send + 'static>(max_size: usize) -> RequestQueue<T> {
    RequestQueue::new(room(|room| room.max_size = max_size))
}

/// A queue, and whom it rejects.
pub(crate) fn telling<T: Send + 'static>(room: WaitingRoomConfig) -> (RequestQueue<T>, Told<T>) {
    let told = Told::default();
    let queue = RequestQueue::builder(room).on_rejected({
        let told = told.clone();
        move |item, why| told.lock().unwrap().push((item, why))
    });
    (queue.build(), told)
}

/// All come, at one priority. Their names, in order.
pub(crate) fn all_come<T: Send + 'static>(
    queue: &RequestQueue<T>,
    items: impl IntoIterator<Item = T>,
) -> Vec<RequestId> {
    let come = |item| queue.enqueue(item, ticket(1)).unwrap();
    items.into_iter().map(come).collect()
}

/// Everything that waits, as one consumer gets it.
pub(crate) fn drained<T: Send + 'static>(queue: &RequestQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_dequeue().ok()).collect()
}

/// RoomStats how often it is rung.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Bell {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (bell.clone(), bell.into())
    }

    pub(crate) fn rung(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// RoomStats how many of its kind were dropped.
#[derive(Debug)]
pub(crate) struct Dropped(pub(crate) Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Runs a future on this thread, without a runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
