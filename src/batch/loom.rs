//! Loom models of the queue: every interleaving of two to four threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --features batch --lib batch::loom`, bounded by
//! `LOOM_MAX_PREEMPTIONS` (3 unless it is set). A lost wake-up shows as a deadlock.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{JoinHandle, spawn};

use tokio_util::sync::CancellationToken;

use super::{DequeueError, OnOversize, RequestQueue};
use crate::admit::{Priority, Ticket, WaitingRoomConfig};
use crate::gate::now;
use crate::gate::with_lock::WithLock;

#[test]
fn a_waiting_consumer_gets_a_new_item() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| enqueue(&queue, 1));
        assert_eq!(block_on(queue.dequeue()), Some(1));
        producer.join().unwrap();
        assert!(queue.is_empty());
    });
}

#[test]
fn two_producers_and_two_consumers_lose_nothing() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| enqueue(&queue, 1));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()).unwrap());
        enqueue(&queue, 2);
        let mine = block_on(queue.dequeue()).unwrap();
        producer.join().unwrap();
        let other = consumer.join().unwrap();
        assert_eq!(mine + other, 3);
        assert!(queue.is_empty());
    });
}

#[test]
fn two_items_wake_two_waiting_consumers() {
    model(|| {
        let queue = queue();
        let consumers = [0, 1].map(|_| with(&queue, |queue| block_on(queue.dequeue()).unwrap()));
        enqueue(&queue, 1);
        enqueue(&queue, 2);
        let taken: u8 = consumers.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(taken, 3);
    });
}

#[test]
fn a_dropped_consumer_passes_its_wake_up_on() {
    model(|| {
        let queue = queue();
        let mut gone = queue.dequeue();
        assert!(poll(&mut gone).is_pending());
        let producer = with(&queue, |queue| enqueue(&queue, 1));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        drop(gone);
        producer.join().unwrap();
        assert_eq!(consumer.join().unwrap(), Some(1));
    });
}

/// As a timeout does: it polls once more, and drops the future.
#[test]
fn a_consumer_that_times_out_takes_an_item_or_leaves_it() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| enqueue(&queue, 1));
        let hasty = with(&queue, |queue| {
            let mut dequeue = queue.dequeue();
            let first = poll(&mut dequeue);
            match first.is_pending() {
                true => poll(&mut dequeue),
                false => first,
            }
        });
        let other = with(&queue, |queue| block_on(queue.dequeue()));
        producer.join().unwrap();
        let hasty = hasty.join().unwrap();
        if hasty.is_ready() {
            queue.drain();
        }
        let other = other.join().unwrap();
        match hasty {
            Poll::Ready(taken) => assert_eq!((taken, other), (Some(1), None)),
            Poll::Pending => assert_eq!(other, Some(1)),
        }
    });
}

#[test]
fn a_remove_and_a_dequeue_share_one_item() {
    model(|| {
        let queue = queue();
        let id = queue.enqueue(1, ticket()).unwrap();
        let remover = with(&queue, move |queue| queue.remove(id));
        let taken = queue.try_dequeue().ok();
        let removed = remover.join().unwrap();
        assert!(taken.is_some() != removed.is_some());
        assert!(queue.is_empty());
    });
}

#[test]
fn a_guard_dropped_during_a_dequeue_removes_or_leaves_the_item() {
    model(|| {
        let queue = queue();
        let guard = queue.guard(queue.enqueue(1, ticket()).unwrap());
        let caller = spawn(move || drop(guard));
        let taken = queue.try_dequeue().is_ok();
        caller.join().unwrap();
        assert_eq!(queue.stats().cancelled, u64::from(!taken));
        assert!(queue.is_empty());
    });
}

#[test]
fn a_token_cancelled_during_a_dequeue_removes_or_leaves_the_item() {
    model(|| {
        let queue = queue();
        let token = CancellationToken::new();
        (queue.enqueue_with_token(1, ticket(), token.clone())).unwrap();
        let caller = spawn(move || token.cancel());
        let taken = queue.try_dequeue().is_ok();
        caller.join().unwrap();
        assert_eq!(queue.stats().cancelled, u64::from(!taken));
        assert!(queue.is_empty());
    });
}

#[test]
fn a_token_cancelled_during_an_enqueue_removes_the_item() {
    model(|| {
        let queue = queue();
        let token = CancellationToken::new();
        let caller = spawn({
            let token = token.clone();
            move || token.cancel()
        });
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let id = queue.enqueue_with_token(1, ticket(), token).unwrap();
        caller.join().unwrap();
        assert!(!queue.contains(id));
        queue.drain();
        let taken = consumer.join().unwrap();
        assert_eq!(queue.stats().cancelled, u64::from(taken.is_none()));
    });
}

#[test]
fn a_consumer_woken_for_a_removed_item_gets_the_next() {
    model(|| {
        let queue = queue();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let id = queue.enqueue(1, ticket()).unwrap();
        let remover = with(&queue, move |queue| queue.remove(id));
        enqueue(&queue, 2);
        let removed = remover.join().unwrap();
        let taken = consumer.join().unwrap();
        assert_eq!(taken, Some(if removed.is_some() { 2 } else { 1 }));
        assert_eq!(queue.len(), usize::from(removed.is_none()));
    });
}

#[test]
fn a_closed_queue_hands_out_or_rejects_each_item() {
    model(|| {
        let rejected = Arc::new(AtomicUsize::new(0));
        let queue = RequestQueue::builder(WaitingRoomConfig::default())
            .on_rejected({
                let rejected = rejected.clone();
                move |_: u8, _| {
                    rejected.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let producer = with(&queue, |queue| queue.enqueue(1, ticket()).is_ok());
        queue.close();
        let accepted = producer.join().unwrap();
        let taken = consumer.join().unwrap().is_some();
        let rejected = rejected.load(Ordering::Relaxed);
        assert_eq!(usize::from(taken) + rejected, usize::from(accepted));
    });
}

#[test]
fn a_drained_queue_hands_out_its_items_then_ends() {
    model(|| {
        let queue = queue();
        let consumers = [0, 1].map(|_| with(&queue, |queue| block_on(queue.dequeue())));
        let accepted = queue.enqueue(1, ticket()).is_ok();
        queue.drain();
        let taken = consumers.map(|one| one.join().unwrap());
        assert_eq!(taken.iter().flatten().count(), usize::from(accepted));
    });
}

#[test]
fn an_item_enqueued_during_drain_is_rejected_or_taken() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| queue.enqueue(1, ticket()).is_ok());
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        queue.drain();
        let accepted = producer.join().unwrap();
        assert_eq!(consumer.join().unwrap().is_some(), accepted);
        assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    });
}

#[test]
fn the_last_item_of_a_drained_queue_wakes_all_consumers() {
    model(|| {
        let queue = queue();
        let id = queue.enqueue(1, ticket()).unwrap();
        queue.drain();
        let remover = with(&queue, move |queue| queue.remove(id).is_some());
        let consumer = with(&queue, |queue| block_on(queue.dequeue()).is_some());
        let third = block_on(queue.dequeue()).is_some();
        let got = [remover, consumer].map(|one| one.join().unwrap());
        assert_eq!(got.into_iter().chain([third]).filter(|&got| got).count(), 1);
    });
}

#[test]
fn a_batch_and_a_consumer_share_the_items() {
    model(|| {
        let queue = queue();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let producer = with(&queue, |queue| {
            enqueue(&queue, 1);
            enqueue(&queue, 2);
        });
        let batch = queue.take_batch(1, 1);
        producer.join().unwrap();
        assert!(consumer.join().unwrap().is_some());
        assert_eq!(queue.len(), 1 - batch.len());
    });
}

#[test]
fn an_item_skipped_by_a_batch_goes_to_a_consumer() {
    model(|| {
        let queue = RequestQueue::builder(WaitingRoomConfig::default())
            .cost(9, |&cost: &u8| u64::from(cost))
            .on_oversize(OnOversize::Backfill { max_overtakes: 1 })
            .build();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        enqueue(&queue, 9);
        enqueue(&queue, 1);
        let batch = queue.take_batch(2, 1);
        let taken = consumer.join().unwrap().unwrap();
        let left = queue.clear();
        let sum = batch.iter().chain(&left).sum::<u8>() + taken;
        assert_eq!(sum, 10);
        assert!(batch.iter().all(|&cost| cost == 1));
    });
}

#[test]
fn wait_nonempty_passes_its_wake_up_on() {
    model(|| {
        let queue = queue();
        let waiter = with(&queue, |queue| block_on(queue.wait_nonempty()));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        enqueue(&queue, 1);
        assert_eq!(consumer.join().unwrap(), Some(1));
        // It found the first item, or finds this one.
        enqueue(&queue, 2);
        assert!(waiter.join().unwrap());
        assert_eq!(queue.try_dequeue(), Ok(2));
    });
}

#[test]
fn a_dequeue_frees_a_place_for_an_arrival() {
    model(|| {
        let config = WaitingRoomConfig {
            max_size: 1,
            ..WaitingRoomConfig::default()
        };
        let queue = RequestQueue::new(config);
        enqueue(&queue, 1);
        let consumer = with(&queue, |queue| queue.try_dequeue().unwrap());
        let rejected = queue.enqueue(2, ticket()).err().map(|error| error.item);
        assert_eq!(consumer.join().unwrap(), 1);
        assert_eq!(queue.len(), usize::from(rejected.is_none()));
        assert!(rejected.is_none_or(|item| item == 2));
    });
}

#[test]
fn an_arrival_during_reconfigure_gets_the_new_max_wait() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| enqueue(&queue, 1));
        queue.reconfigure(WaitingRoomConfig::default());
        producer.join().unwrap();
        let end = queue.shared.lock().queue.next_timeout();
        assert!(end.is_some_and(|end| end > now()));
    });
}

#[test]
fn a_future_arrival_during_reconfigure_ends_no_wait() {
    model(|| {
        let queue = queue();
        let config = |max_wait| WaitingRoomConfig {
            max_wait,
            ..WaitingRoomConfig::default()
        };
        queue.reconfigure(config(None));
        enqueue(&queue, 1);
        let reconfigure = with(&queue, move |queue| {
            queue.reconfigure(config(Some(Duration::from_secs(1))));
        });
        let future = now() + Duration::from_secs(9);
        let ticket = Ticket::new(Priority::HIGHEST, future);
        queue.enqueue(2, ticket).unwrap();
        reconfigure.join().unwrap();
        assert_eq!(queue.len(), 2);
    });
}

thread_local! {
    /// Whether waits end in a [`queue`].
    static HAS_MAX_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Runs the scenario with waits that can end, and with waits that cannot: then consumers do not read the clock.
/// Bounded by the environment, or by three preemptions.
fn model(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    for has_max_wait in [true, false] {
        HAS_MAX_WAIT.set(has_max_wait);
        let scenario = Arc::clone(&scenario);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(move || scenario());
    }
}

fn queue() -> RequestQueue<u8> {
    let mut config = WaitingRoomConfig::default();
    if !HAS_MAX_WAIT.get() {
        config.max_wait = None;
    }
    RequestQueue::new(config)
}

fn ticket() -> Ticket {
    Priority::HIGHEST.into()
}

fn enqueue(queue: &RequestQueue<u8>, item: u8) {
    queue.enqueue(item, ticket()).unwrap();
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn with<R: 'static>(
    queue: &RequestQueue<u8>,
    act: impl FnOnce(RequestQueue<u8>) -> R + 'static,
) -> JoinHandle<R> {
    let queue = queue.clone();
    spawn(move || act(queue))
}
