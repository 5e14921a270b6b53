//! Items, costs, callbacks and wakers that panic, or that come back to the queue from within.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower_triage::WaitingRoomConfig;
use tower_triage::batch::RequestQueue;

use super::support::{Bell, drained, now, poll, queue, room, ticket};

const SECOND: Duration = Duration::from_secs(1);

/// A panic that prints nothing.
fn panic() {
    resume_unwind(Box::new("on purpose"));
}

#[test]
fn what_has_no_cost_was_not_enqueued() {
    let queue = RequestQueue::builder(room(|_| ()))
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
    assert_eq!(drained(&queue), [1, 2]);
}

/// A queue that panics at each rejection, after it was told.
fn panicking(
    room: WaitingRoomConfig,
) -> (RequestQueue<&'static str>, Arc<Mutex<Vec<&'static str>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let queue = RequestQueue::builder(room).on_rejected({
        let told = told.clone();
        move |item, _| {
            told.lock().unwrap().push(item);
            panic();
        }
    });
    (queue.build(), told)
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_panics_does_not_keep_the_clock_from_the_others() {
    let (queue, told) = panicking(room(|_| ()));
    for (item, seconds) in [("a", 1), ("b", 1), ("c", 2)] {
        queue
            .enqueue(item, ticket(1).timeout(seconds * SECOND))
            .unwrap();
    }
    sleep(5 * SECOND).await;
    assert_eq!(*told.lock().unwrap(), ["a", "b", "c"]);
    assert!(queue.is_empty());
}

#[test]
fn a_rejection_that_panics_costs_nobody_else_an_item() {
    let (queue, told) = panicking(room(|_| ()));
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
        let left = drained(&queue);
        assert_eq!(
            taken.ok().flatten().or(left.first().copied()),
            Some("alive")
        );
    }
    assert_eq!(*told.lock().unwrap(), ["expired"; 3]);
}

#[test]
fn a_rejection_that_panics_leaves_the_queue_as_it_should_be() {
    let (queue, told) = panicking(room(|room| (room.max_size, room.displace) = (1, true)));
    queue.enqueue("low", ticket(1)).unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| queue.enqueue("high", ticket(0))));
    assert_eq!(*told.lock().unwrap(), ["low"]);
    assert_eq!(drained(&queue), ["high"]);
    for item in ["x", "y"] {
        queue.reconfigure(room(|_| ()));
        queue.enqueue(item, ticket(0)).unwrap();
    }
    let _ = catch_unwind(AssertUnwindSafe(|| queue.close()));
    assert_eq!(told.lock().unwrap().len(), 3);
    assert!(queue.is_closed() && queue.is_empty());
}

/// When it is dropped it uses its queue in every way that there is, once.
struct Nosy {
    queue: Arc<OnceLock<RequestQueue<Nosy>>>,
    /// How many more come of its dropping.
    offspring: usize,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        let offspring = self.offspring;
        if offspring == 0 {
            return;
        }
        let child = || Nosy {
            queue: self.queue.clone(),
            offspring: offspring - 1,
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
        queue.reconfigure(room(|_| ()));
        drop(queue.clear());
    }
}

#[test]
fn an_item_may_use_its_queue_while_it_is_dropped() {
    type Way = fn(&RequestQueue<Nosy>);
    let ways: [Way; 8] = [
        |queue| drop(queue.try_dequeue()),
        |queue| drop(queue.take_batch(9, 9)),
        |queue| drop(queue.clear()),
        |queue| queue.close(),
        |queue| queue.reconfigure(room(|room| room.max_size = 0)),
        |queue| {
            queue.reconfigure(room(|room| room.max_wait = Some(Duration::from_nanos(1))));
            drop(queue.try_dequeue());
        },
        |queue| {
            queue.reconfigure(room(|room| (room.max_size, room.displace) = (1, true)));
            let nobody = Nosy {
                queue: Arc::default(),
                offspring: 0,
            };
            drop(queue.enqueue(nobody, ticket(0)));
        },
        |queue| drop(queue.dequeue()),
    ];
    for way in ways {
        let known = Arc::new(OnceLock::new());
        let queue = queue();
        assert!(known.set(queue.clone()).is_ok());
        let nosy = || Nosy {
            queue: known.clone(),
            offspring: 2,
        };
        let token = CancellationToken::new();
        queue.enqueue(nosy(), ticket(1)).ok();
        queue
            .enqueue_with_token(nosy(), ticket(1), token.clone())
            .ok();
        queue.enqueue(nosy(), ticket(1)).ok();
        way(&queue);
        token.cancel();
        drop(queue.clear());
        assert!(queue.is_empty());
    }
}

#[test]
fn a_token_may_be_cancelled_by_an_item_that_is_dropped() {
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
        for at in 0..tokens.len() {
            // Its neighbours', and its own.
            let others = [at, (at + 1) % 40, (at + 39) % 40].map(|at| tokens[at].clone());
            let item = Cancels(others.into());
            queue
                .enqueue_with_token(item, ticket(1), tokens[at].clone())
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
    drop(drained(&queue));
    assert!(poll(&mut two, &uses()).is_pending());
    queue.enqueue(1, ticket(1)).unwrap();
    drop(two);
    assert!(queue.len() > 1);
}

#[test]
fn a_rejection_may_use_the_queue() {
    let again = Arc::new(OnceLock::<RequestQueue<u8>>::new());
    let queue = RequestQueue::builder(room(|room| (room.max_size, room.displace) = (1, true)))
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
    assert_eq!(drained(&queue), [0]);
}

#[test]
fn a_queue_may_be_dropped_by_what_it_rejects() {
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
fn a_ticket_from_another_time_is_harmless() {
    let hour = Duration::from_secs(3600);
    let queue = queue();
    let mut far = ticket(1);
    far.arrival = Some(now() + hour);
    queue.enqueue("from the future", far).unwrap();
    let mut old = ticket(1);
    old.arrival = now().checked_sub(Duration::from_secs(60));
    queue.enqueue("from the past", old).unwrap();
    queue
        .enqueue("now", ticket(1).timeout(Duration::MAX))
        .unwrap();
    assert_eq!(drained(&queue), ["from the future", "from the past", "now"]);
}

#[test]
fn a_ticket_from_the_end_of_time_is_harmless() {
    let queue = queue();
    let mut far = ticket(1);
    far.arrival = Some(now() + Duration::from_secs(1 << 40));
    queue.enqueue("far", far).unwrap();
    queue.enqueue("near", ticket(1)).unwrap();
    assert_eq!(drained(&queue), ["far", "near"]);
}

/// A waker that panics.
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
async fn a_waker_that_panics_does_not_stop_the_clock() {
    let queue = RequestQueue::new(room(|room| room.max_wait = Some(SECOND)));
    let mut consumer = queue.dequeue();
    assert!(poll(&mut consumer, &panicking_waker()).is_pending());
    queue.enqueue(1, ticket(1)).unwrap();
    sleep(2 * SECOND).await;
    assert!(queue.is_empty());
}

#[test]
fn a_waker_that_panics_costs_no_other_task_its_wake_up() {
    let queue = queue::<u8>();
    let (bell, waker) = Bell::new();
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &panicking_waker()).is_pending());
    assert!(poll(&mut two, &waker).is_pending());
    // Both consumers are woken in one go.
    let closed = catch_unwind(AssertUnwindSafe(|| queue.close()));
    assert_eq!(bell.rung(), 1);
    assert!(closed.is_ok());
}

#[test]
fn an_item_that_panics_when_its_token_drops_it_takes_no_other_along() {
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
    let (bell, waker) = Bell::new();
    assert!(poll(&mut waits, &waker).is_pending());
    assert!(poll(&mut child_waits, &waker).is_pending());
    let cancelled = catch_unwind(AssertUnwindSafe(|| token.cancel()));
    assert_eq!(queue.len(), 0);
    assert_eq!(bell.rung(), 2);
    assert!(cancelled.is_ok());
}
