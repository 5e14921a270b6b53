//! Helpers of the queue's tests.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use tower_triage::batch::{RequestId, RequestQueue, TooLarge};
use tower_triage::{Priority, RejectReason, Ticket, WaitingRoomConfig};

/// The items that a queue rejected, with the reason, in order.
pub(crate) type Rejections<T> = Arc<Mutex<Vec<(T, RejectReason<TooLarge>)>>>;

pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(crate) fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), now())
}

/// A ticket of this tenant, at the highest priority.
pub(crate) fn ticket_of(tenant: &'static str) -> Ticket {
    ticket(0).tenant(tenant.into())
}

/// A configuration without any bound, changed by `change`.
pub(crate) fn config(change: impl FnOnce(&mut WaitingRoomConfig)) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    (config.max_size, config.max_wait) = (usize::MAX, None);
    change(&mut config);
    config
}

pub(crate) fn queue<T: Send + 'static>() -> RequestQueue<T> {
    RequestQueue::new(config(|_| ()))
}

pub(crate) fn max_size<T: Send + 'static>(max_size: usize) -> RequestQueue<T> {
    RequestQueue::new(config(|config| config.max_size = max_size))
}

/// A queue, and the items that it rejects.
pub(crate) fn with_rejections<T: Send + 'static>(
    config: WaitingRoomConfig,
) -> (RequestQueue<T>, Rejections<T>) {
    let rejections = Rejections::default();
    let queue = RequestQueue::builder(config).on_rejected({
        let rejections = rejections.clone();
        move |item, why| rejections.lock().unwrap().push((item, why))
    });
    (queue.build(), rejections)
}

/// Enqueues all items at one priority. Their ids, in order.
pub(crate) fn enqueue_all<T: Send + 'static>(
    queue: &RequestQueue<T>,
    items: impl IntoIterator<Item = T>,
) -> Vec<RequestId> {
    let enqueue = |item| queue.enqueue(item, ticket(1)).unwrap();
    items.into_iter().map(enqueue).collect()
}

/// Dequeues all items one by one.
pub(crate) fn dequeue_all<T: Send + 'static>(queue: &RequestQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_dequeue().ok()).collect()
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct WakeCounter(AtomicUsize);

impl WakeCounter {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self::default());
        (counter.clone(), counter.into())
    }

    pub(crate) fn wakes(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Counts how many of its kind were dropped.
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
