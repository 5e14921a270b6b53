//! The queue under every interleaving of a few threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --features batch --lib batch::loom`, bounded by
//! `LOOM_MAX_PREEMPTIONS` (3 unless it is set). A wake-up that is lost shows as a deadlock.

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
fn who_waits_gets_what_comes() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| come(&queue, 1));
        assert_eq!(block_on(queue.dequeue()), Some(1));
        producer.join().unwrap();
        assert!(queue.is_empty());
    });
}

#[test]
fn two_producers_and_two_consumers_lose_nothing() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| come(&queue, 1));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()).unwrap());
        come(&queue, 2);
        let mine = block_on(queue.dequeue()).unwrap();
        producer.join().unwrap();
        let other = consumer.join().unwrap();
        assert_eq!(mine + other, 3);
        assert!(queue.is_empty());
    });
}

#[test]
fn two_that_come_at_once_wake_two_who_wait() {
    model(|| {
        let queue = queue();
        let consumers = [0, 1].map(|_| with(&queue, |queue| block_on(queue.dequeue()).unwrap()));
        come(&queue, 1);
        come(&queue, 2);
        let taken: u8 = consumers.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(taken, 3);
    });
}

#[test]
fn a_consumer_that_goes_passes_its_wake_up_on() {
    model(|| {
        let queue = queue();
        let mut gone = queue.dequeue();
        assert!(poll(&mut gone).is_pending());
        let producer = with(&queue, |queue| come(&queue, 1));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        drop(gone);
        producer.join().unwrap();
        assert_eq!(consumer.join().unwrap(), Some(1));
    });
}

/// As one does whose time is over: it looks once more, and goes.
#[test]
fn a_consumer_that_looks_and_goes_takes_what_there_is_or_leaves_it_to_the_next() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| come(&queue, 1));
        let hasty = with(&queue, |queue| {
            let mut dequeue = queue.dequeue();
            let first = poll(&mut dequeue);
            match first.is_pending() {
                true => poll(&mut dequeue),
                false => first,
            }
        });
        let patient = with(&queue, |queue| block_on(queue.dequeue()));
        producer.join().unwrap();
        let hasty = hasty.join().unwrap();
        if hasty.is_ready() {
            queue.drain();
        }
        let patient = patient.join().unwrap();
        match hasty {
            Poll::Ready(taken) => assert_eq!((taken, patient), (Some(1), None)),
            Poll::Pending => assert_eq!(patient, Some(1)),
        }
    });
}

#[test]
fn who_is_removed_while_it_is_dequeued_goes_one_way() {
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
fn a_guard_that_goes_while_its_request_is_dequeued_drops_it_or_leaves_it() {
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
fn a_token_that_is_cancelled_while_its_request_is_dequeued_drops_it_or_leaves_it() {
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
fn a_token_that_is_cancelled_while_its_request_comes_takes_it_out() {
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
fn a_consumer_woken_for_one_that_leaves_gets_the_next_one() {
    model(|| {
        let queue = queue();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let id = queue.enqueue(1, ticket()).unwrap();
        let remover = with(&queue, move |queue| queue.remove(id));
        come(&queue, 2);
        let removed = remover.join().unwrap();
        let taken = consumer.join().unwrap();
        assert_eq!(taken, Some(if removed.is_some() { 2 } else { 1 }));
        assert_eq!(queue.len(), usize::from(removed.is_none()));
    });
}

#[test]
fn a_closing_queue_answers_everyone() {
    model(|| {
        let told = Arc::new(AtomicUsize::new(0));
        let queue = RequestQueue::builder(WaitingRoomConfig::default())
            .on_rejected({
                let told = told.clone();
                move |_: u8, _| {
                    told.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let producer = with(&queue, |queue| queue.enqueue(1, ticket()).is_ok());
        queue.close();
        let came = producer.join().unwrap();
        let taken = consumer.join().unwrap().is_some();
        let told = told.load(Ordering::Relaxed);
        assert_eq!(usize::from(taken) + told, usize::from(came));
    });
}

#[test]
fn a_draining_queue_gives_out_what_it_has_and_then_ends() {
    model(|| {
        let queue = queue();
        let consumers = [0, 1].map(|_| with(&queue, |queue| block_on(queue.dequeue())));
        let came = queue.enqueue(1, ticket()).is_ok();
        queue.drain();
        let taken = consumers.map(|one| one.join().unwrap());
        assert_eq!(taken.iter().flatten().count(), usize::from(came));
    });
}

#[test]
fn who_comes_while_a_queue_drains_is_turned_away_or_taken() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| queue.enqueue(1, ticket()).is_ok());
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        queue.drain();
        let came = producer.join().unwrap();
        assert_eq!(consumer.join().unwrap().is_some(), came);
        assert_eq!(queue.try_dequeue(), Err(DequeueError::Closed));
    });
}

#[test]
fn the_last_to_leave_a_draining_queue_wakes_those_who_wait() {
    model(|| {
        let queue = queue();
        let id = queue.enqueue(1, ticket()).unwrap();
        queue.drain();
        let remover = with(&queue, move |queue| queue.remove(id).is_some());
        let consumer = with(&queue, |queue| block_on(queue.dequeue()).is_some());
        let third = block_on(queue.dequeue()).is_some();
        let went = [remover, consumer].map(|one| one.join().unwrap());
        assert_eq!(went.into_iter().chain([third]).filter(|&it| it).count(), 1);
    });
}

#[test]
fn a_batch_and_a_consumer_share_what_comes() {
    model(|| {
        let queue = queue();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        let producer = with(&queue, |queue| {
            come(&queue, 1);
            come(&queue, 2);
        });
        let batch = queue.take_batch(1, 1);
        producer.join().unwrap();
        assert!(consumer.join().unwrap().is_some());
        assert_eq!(queue.len(), 1 - batch.len());
    });
}

#[test]
fn a_batch_that_passes_one_leaves_it_to_a_consumer() {
    model(|| {
        let queue = RequestQueue::builder(WaitingRoomConfig::default())
            .cost(9, |&cost: &u8| u64::from(cost))
            .on_oversize(OnOversize::Backfill { max_overtakes: 1 })
            .build();
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        come(&queue, 9);
        come(&queue, 1);
        let batch = queue.take_batch(2, 1);
        let taken = consumer.join().unwrap().unwrap();
        let left = queue.clear();
        let sum = batch.iter().chain(&left).sum::<u8>() + taken;
        assert_eq!(sum, 10);
        assert!(batch.iter().all(|&cost| cost == 1));
    });
}

#[test]
fn who_only_looks_passes_its_wake_up_on() {
    model(|| {
        let queue = queue();
        let looker = with(&queue, |queue| block_on(queue.wait_nonempty()));
        let consumer = with(&queue, |queue| block_on(queue.dequeue()));
        come(&queue, 1);
        assert_eq!(consumer.join().unwrap(), Some(1));
        // It saw the first one, or sees this one.
        come(&queue, 2);
        assert!(looker.join().unwrap());
        assert_eq!(queue.try_dequeue(), Ok(2));
    });
}

#[test]
fn whoever_frees_a_chair_lets_another_come() {
    model(|| {
        let config = WaitingRoomConfig {
            max_size: 1,
            ..WaitingRoomConfig::default()
        };
        let queue = RequestQueue::new(config);
        come(&queue, 1);
        let consumer = with(&queue, |queue| queue.try_dequeue().unwrap());
        let refused = queue.enqueue(2, ticket()).err().map(|refused| refused.item);
        assert_eq!(consumer.join().unwrap(), 1);
        assert_eq!(queue.len(), usize::from(refused.is_none()));
        assert!(refused.is_none_or(|item| item == 2));
    });
}

#[test]
fn who_comes_while_the_room_begins_to_bound_waits_waits_from_then_on() {
    model(|| {
        let queue = queue();
        let producer = with(&queue, |queue| come(&queue, 1));
        queue.reconfigure(WaitingRoomConfig::default());
        producer.join().unwrap();
        let end = queue.shared.lock().queue.next_timeout();
        assert!(end.is_some_and(|end| end > now()));
    });
}

#[test]
fn one_from_the_future_who_meets_a_bound_on_waits_ends_nobodys() {
    model(|| {
        let queue = queue();
        let config = |max_wait| WaitingRoomConfig {
            max_wait,
            ..WaitingRoomConfig::default()
        };
        queue.reconfigure(config(None));
        come(&queue, 1);
        let bound = with(&queue, move |queue| {
            queue.reconfigure(config(Some(Duration::from_secs(1))));
        });
        let future = now() + Duration::from_secs(9);
        let ticket = Ticket::new(Priority::HIGHEST, future);
        queue.enqueue(2, ticket).unwrap();
        bound.join().unwrap();
        assert_eq!(queue.len(), 2);
    });
}

thread_local! {
    /// Whether those who come to a [`queue`] come by the short way.
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
}

/// Bounded by the environment, or by three preemptions. By the long way in, then by the short one.
fn model(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    for is_short in [false, true] {
        IS_SHORT.set(is_short);
        let scenario = Arc::clone(&scenario);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(move || scenario());
    }
}

fn queue() -> RequestQueue<u8> {
    if !IS_SHORT.get() {
        // Waits end, and there is never a timer here: everyone has to look for one.
        return RequestQueue::new(WaitingRoomConfig::default());
    }
    let config = WaitingRoomConfig {
        max_wait: None,
        ..WaitingRoomConfig::default()
    };
    let queue = RequestQueue::new(config);
    // The first to come makes the short way.
    come(&queue, 0);
    assert_eq!(queue.try_dequeue(), Ok(0));
    queue
}

fn ticket() -> Ticket {
    Priority::HIGHEST.into()
}

fn come(queue: &RequestQueue<u8>, item: u8) {
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
