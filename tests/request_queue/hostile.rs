//! Tests with items, costs, callbacks and wakers that panic or use the queue themselves.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower_triage::WaitingRoomConfig;
use tower_triage::batch::RequestQueue;

use super::support::{WakeCounter, config, dequeue_all, now, poll, queue, ticket};

const SECOND: Duration = Duration::from_secs(1);

/// Panics without a message from the panic hook.
fn panic() {
    resume_unwind(Box::new("on purpose"));
}

#[test]
fn a_panic_in_cost_enqueues_nothing() {
    let queue = RequestQueue::builder(config(|_| ()))
        .cost(10, |item: &u64| {
            if *item == 0 {
                panic();
            }
            *item
        })
        .build();
    queue.enqueue(1, ticket(1)).unwrap();
    let enqueued = catch_unwind(AssertUnwindSafe(|| queue.enqueue(0, ticket(1))));
    assert!(enqueued.is_err());
    queue.enqueue(2, ticket(1)).unwrap();
    assert_eq!(dequeue_all(&queue), [1, 2]);
}

/// A queue whose `on_rejected` records the item and panics.
fn panicking(
    config: WaitingRoomConfig,
) -> (RequestQueue<&'static str>, Arc<Mutex<Vec<&'static str>>>) {
    let rejected = Arc::new(Mutex::new(Vec::new()));
    let queue = RequestQueue::builder(config).on_rejected({
        let rejected = rejected.clone();
        move |item, _| {
            rejected.lock().unwrap().push(item);
            panic();
        }
    });
    (queue.build(), rejected)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_on_rejected_does_not_stop_the_timer() {
    let (queue, rejected) = panicking(config(|_| ()));
    for (item, seconds) in [("a", 1), ("b", 1), ("c", 2)] {
        queue
            .enqueue(item, ticket(1).timeout(seconds * SECOND))
            .unwrap();
    }
    sleep(5 * SECOND).await;
    assert_eq!(*rejected.lock().unwrap(), ["a", "b", "c"]);
    assert!(queue.is_empty());
}

#[test]
fn a_panic_in_on_rejected_loses_no_other_item() {
    let (queue, rejected) = panicking(config(|_| ()));
    let soon = Duration::from_millis(2);
    for round in 0..3 {
        queue.enqueue("expired", ticket(0).timeout(soon)).unwrap();
        queue.enqueue("alive", ticket(1)).unwrap();
        std::thread::sleep(2 * soon);
        let taken = catch_unwind(AssertUnwindSafe(|| match round {
            0 => queue.try_dequeue().ok(),
            1 => queue.take_batch(1, 9).pop(),
            _ => super::support::block_on(queue.dequeue()),
        }));
        let left = dequeue_all(&queue);
        assert_eq!(
            taken.ok().flatten().or(left.first().copied()),
            Some("alive")
        );
    }
    assert_eq!(*rejected.lock().unwrap(), ["expired"; 3]);
}

#[test]
fn a_panic_in_on_rejected_leaves_the_queue_consistent() {
    let (queue, rejected) = panicking(config(|config| {
        (config.max_size, config.displace) = (1, true)
    }));
    queue.enqueue("low", ticket(1)).unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| queue.enqueue("high", ticket(0))));
    assert_eq!(*rejected.lock().unwrap(), ["low"]);
    assert_eq!(dequeue_all(&queue), ["high"]);
    for item in ["x", "y"] {
        queue.reconfigure(config(|_| ()));
        queue.enqueue(item, ticket(0)).unwrap();
    }
    let _ = catch_unwind(AssertUnwindSafe(|| queue.close()));
    assert_eq!(rejected.lock().unwrap().len(), 3);
    assert!(queue.is_closed() && queue.is_empty());
}

/// An item whose destructor uses its queue in every way.
struct Reentrant {
    queue: Arc<OnceLock<RequestQueue<Reentrant>>>,
    /// How many generations of items its destructor enqueues.
    generations: usize,
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        let generations = self.generations;
        if generations == 0 {
            return;
        }
        let child = || Reentrant {
            queue: self.queue.clone(),
            generations: generations - 1,
        };
        let _ = (queue.len(), queue.stats(), format!("{queue:?}"));
        if let Ok(id) = queue.enqueue_with_token(child(), ticket(0), CancellationToken::new()) {
            let _ = (queue.position(id), queue.contains(id));
            drop(queue.remove(id));
        }
        let token = CancellationToken::new();
        drop(queue.enqueue_with_token(child(), ticket(0), token.clone()));
        token.cancel();
        drop(queue.take_batch(1, 1));
        queue.reconfigure(config(|_| ()));
        drop(queue.clear());
    }
}

#[test]
fn an_items_destructor_may_use_the_queue() {
    type Leave = fn(&RequestQueue<Reentrant>);
    let cases: [Leave; 8] = [
        |queue| drop(queue.try_dequeue()),
        |queue| drop(queue.take_batch(9, 9)),
        |queue| drop(queue.clear()),
        |queue| queue.close(),
        |queue| queue.reconfigure(config(|config| config.max_size = 0)),
        |queue| {
            queue.reconfigure(config(|config| {
                config.max_wait = Some(Duration::from_nanos(1))
            }));
            drop(queue.try_dequeue());
        },
        |queue| {
            queue.reconfigure(config(|config| {
                (config.max_size, config.displace) = (1, true)
            }));
            let harmless = Reentrant {
                queue: Arc::default(),
                generations: 0,
            };
            drop(queue.enqueue(harmless, ticket(0)));
        },
        |queue| drop(queue.dequeue()),
    ];
    for leave in cases {
        let known = Arc::new(OnceLock::new());
        let queue = queue();
        assert!(known.set(queue.clone()).is_ok());
        let item = || Reentrant {
            queue: known.clone(),
            generations: 2,
        };
        let token = CancellationToken::new();
        queue.enqueue(item(), ticket(1)).ok();
        queue
            .enqueue_with_token(item(), ticket(1), token.clone())
            .ok();
        queue.enqueue(item(), ticket(1)).ok();
        leave(&queue);
        token.cancel();
        drop(queue.clear());
        assert!(queue.is_empty());
    }
}

#[test]
fn an_items_destructor_may_cancel_other_tokens() {
    struct Cancels(Vec<CancellationToken>);
    impl Drop for Cancels {
        fn drop(&mut self) {
            self.0.iter().for_each(CancellationToken::cancel);
        }
    }
    let tokens: Vec<_> = (0..40).map(|_| CancellationToken::new()).collect();
    for first in [0, 17, 39] {
        let queue = queue();
        let tokens: Vec<_> = tokens.iter().map(|_| CancellationToken::new()).collect();
        for idx in 0..tokens.len() {
            // Its neighbours' tokens, and its own.
            let others = [idx, (idx + 1) % 40, (idx + 39) % 40].map(|idx| tokens[idx].clone());
            let item = Cancels(others.into());
            queue
                .enqueue_with_token(item, ticket(1), tokens[idx].clone())
                .ok()
                .unwrap();
        }
        tokens[first].cancel();
        assert!(queue.is_empty());
    }
}

#[test]
fn a_waker_may_use_the_queue() {
    struct Uses(RequestQueue<u8>);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            let _ = (
                self.0.len(),
                self.0.take_batch(1, 0),
                self.0.enqueue(9, ticket(1)),
            );
        }
    }
    impl Drop for Uses {
        fn drop(&mut self) {
            let _ = self.0.enqueue(8, ticket(1));
        }
    }
    let queue = queue();
    let uses = || Waker::from(Arc::new(Uses(queue.clone())));
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &uses()).is_pending());
    // The waker that is replaced enqueues something.
    assert!(poll(&mut one, &uses()).is_pending());
    assert!(poll(&mut one, &uses()).is_ready());
    drop(dequeue_all(&queue));
    assert!(poll(&mut two, &uses()).is_pending());
    queue.enqueue(1, ticket(1)).unwrap();
    drop(two);
    assert!(queue.len() > 1);
}

#[test]
fn on_rejected_may_use_the_queue() {
    let again = Arc::new(OnceLock::<RequestQueue<u8>>::new());
    let queue = RequestQueue::builder(config(|config| {
        (config.max_size, config.displace) = (1, true)
    }))
    .on_rejected({
        let again = again.clone();
        move |item: u8, _| {
            let queue = again.get().unwrap();
            assert!(queue.enqueue(item, ticket(1)).is_err());
        }
    })
    .build();
    assert!(again.set(queue.clone()).is_ok());
    queue.enqueue(1, ticket(1)).unwrap();
    queue.enqueue(0, ticket(0)).unwrap();
    assert_eq!(dequeue_all(&queue), [0]);
}

#[test]
fn an_item_may_hold_the_last_handle_of_its_queue() {
    struct Holds(#[expect(dead_code, reason = "held, not read")] Option<RequestQueue<Holds>>);
    let queue = queue();
    let held = queue.clone();
    queue.enqueue(Holds(Some(held)), ticket(1)).ok().unwrap();
    drop(queue.clear());
    let token = CancellationToken::new();
    let item = Holds(Some(queue.clone()));
    queue
        .enqueue_with_token(item, ticket(1), token.clone())
        .ok()
        .unwrap();
    drop(queue);
    token.cancel();
}

#[test]
fn past_and_future_arrivals_keep_enqueue_order() {
    let hour = Duration::from_secs(3600);
    let queue = queue();
    let mut far = ticket(1);
    far.arrival = Some(now() + hour);
    queue.enqueue("future", far).unwrap();
    let mut old = ticket(1);
    old.arrival = now().checked_sub(Duration::from_secs(60));
    queue.enqueue("past", old).unwrap();
    queue
        .enqueue("now", ticket(1).timeout(Duration::MAX))
        .unwrap();
    assert_eq!(dequeue_all(&queue), ["future", "past", "now"]);
}

#[test]
fn a_far_future_arrival_keeps_enqueue_order() {
    let queue = queue();
    let mut far = ticket(1);
    far.arrival = Some(now() + Duration::from_secs(1 << 40));
    queue.enqueue("far", far).unwrap();
    queue.enqueue("near", ticket(1)).unwrap();
    assert_eq!(dequeue_all(&queue), ["far", "near"]);
}

/// A waker that panics when it is woken.
fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic();
        }
    }
    Waker::from(Arc::new(Panics))
}

#[tokio::test(start_paused = true)]
async fn a_panicking_waker_does_not_stop_the_timer() {
    let queue = RequestQueue::new(config(|config| config.max_wait = Some(SECOND)));
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &panicking_waker()).is_pending());
    queue.enqueue(1, ticket(1)).unwrap();
    sleep(2 * SECOND).await;
    assert!(queue.is_empty());
}

#[test]
fn a_panicking_waker_loses_no_other_wake_up() {
    let queue = queue::<u8>();
    let (counter, waker) = WakeCounter::new();
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &panicking_waker()).is_pending());
    assert!(poll(&mut two, &waker).is_pending());
    // Both consumers are woken in one go.
    let closed = catch_unwind(AssertUnwindSafe(|| queue.close()));
    assert_eq!(counter.wakes(), 1);
    assert!(closed.is_ok());
}

#[test]
fn a_waker_that_panics_when_dropped_loses_no_item() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic();
        }
    }
    let queue = queue();
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, Waker::noop()).is_pending());
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(poll(&mut two, &bomb).is_pending());
    drop(bomb); // the queue has the last one
    queue.enqueue("a", ticket(1)).unwrap();
    // The first was woken, and the second is faster.
    let taken = catch_unwind(AssertUnwindSafe(|| poll(&mut two, Waker::noop())));
    assert_eq!(taken.ok(), Some(Poll::Ready(Some("a"))));
}

#[test]
fn a_panicking_item_does_not_stop_a_cancellation() {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 {
                panic();
            }
        }
    }
    let queue = queue();
    let token = CancellationToken::new();
    for armed in [true, false, true, false] {
        let item = Bomb(armed);
        let enqueued = queue.enqueue_with_token(item, ticket(1), token.clone());
        assert!(enqueued.is_ok());
    }
    let child = token.child_token();
    let (mut waits, mut child_waits) = (Box::pin(token.cancelled()), Box::pin(child.cancelled()));
    let (counter, waker) = WakeCounter::new();
    assert!(poll(&mut waits, &waker).is_pending());
    assert!(poll(&mut child_waits, &waker).is_pending());
    let cancelled = catch_unwind(AssertUnwindSafe(|| token.cancel()));
    assert_eq!(queue.len(), 0);
    assert_eq!(counter.wakes(), 2);
    assert!(cancelled.is_ok());
}
