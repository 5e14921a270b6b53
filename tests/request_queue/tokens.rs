//! Requests that leave when their token is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tower_triage::RejectReason;
use tower_triage::batch::RequestQueue;

use super::support::{Bell, Dropped, drained, max_size, of, poll, queue, room, telling, ticket};

#[test]
fn a_token_takes_its_request_out_when_it_is_cancelled() {
    let queue = max_size(1);
    let (token, item) = (CancellationToken::new(), Arc::new(()));
    let id = queue
        .enqueue_with_token(item.clone(), ticket(1), token.clone())
        .unwrap();
    assert!(queue.contains(id));
    token.cancel();
    assert_eq!((queue.contains(id), queue.len()), (false, 0));
    assert_eq!(Arc::strong_count(&item), 1);
    assert_eq!(queue.stats().cancelled, 1);
    assert!(queue.enqueue(item, ticket(1)).is_ok());
}

#[test]
fn who_was_cancelled_before_it_came_does_not_stay() {
    let queue = queue();
    let (token, item) = (CancellationToken::new(), Arc::new(()));
    token.cancel();
    let id = queue
        .enqueue_with_token(item.clone(), ticket(1), token)
        .unwrap();
    assert_eq!((queue.contains(id), queue.len()), (false, 0));
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn who_may_not_come_comes_back_and_its_token_with_it() {
    let queue = max_size(0);
    let token = CancellationToken::new();
    let refused = queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap_err();
    assert_eq!((refused.item, refused.why), ("a", RejectReason::Disabled));
    token.cancel();
}

#[test]
fn a_token_that_is_cancelled_too_late_touches_nobody() {
    let queue = max_size(1);
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    // On the same chair.
    queue.enqueue("b", ticket(1)).unwrap();
    token.cancel();
    assert_eq!(drained(&queue), ["b"]);
    assert_eq!(queue.stats().cancelled, 0);
}

#[test]
fn one_token_takes_out_all_of_its_own_and_nobody_else() {
    let queue = queue();
    let token = CancellationToken::new();
    for item in 0..1_000 {
        let child = match item % 4 {
            0 => token.clone(),
            1 => token.child_token(),
            2 => token.child_token().child_token(),
            _ => CancellationToken::new(),
        };
        queue.enqueue_with_token(item, ticket(1), child).unwrap();
    }
    token.cancel();
    let others: Vec<_> = (0..1_000).filter(|item| item % 4 == 3).collect();
    assert_eq!(drained(&queue), others);
}

#[test]
fn a_child_is_cancelled_alone() {
    let queue = queue();
    let parent = CancellationToken::new();
    let children = ["a", "b"].map(|item| {
        let child = parent.child_token();
        queue
            .enqueue_with_token(item, ticket(1), child.clone())
            .unwrap();
        child
    });
    children[0].cancel();
    assert_eq!(queue.len(), 1);
    parent.cancel();
    assert!(queue.is_empty());
}

#[test]
fn an_item_may_ask_its_tokens_while_they_are_cancelled() {
    struct Asks(CancellationToken, CancellationToken);
    impl Drop for Asks {
        fn drop(&mut self) {
            assert!(self.0.is_cancelled() && self.1.is_cancelled());
            drop((self.0.child_token(), self.1.child_token()));
            self.0.cancel();
            self.1.cancel();
        }
    }
    let queue = queue();
    let parent = CancellationToken::new();
    for _ in 0..3 {
        let child = parent.child_token();
        let item = Asks(parent.clone(), child.clone());
        queue.enqueue_with_token(item, ticket(1), child).unwrap();
    }
    parent.cancel();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_leaves_nothing_behind_at_the_token() {
    type Way = (&'static str, fn(&RequestQueue<u8>, &CancellationToken));
    let hour = Duration::from_secs(3600);
    let come = |queue: &RequestQueue<u8>, token: &CancellationToken, is_timed| {
        let ticket = match is_timed {
            true => ticket(1).timeout(hour),
            false => ticket(1),
        };
        queue.enqueue_with_token(0, ticket, token.clone()).unwrap()
    };
    let ways: &[Way] = &[
        ("dequeue", |queue, _| assert!(queue.try_dequeue().is_ok())),
        ("batch", |queue, _| drop(queue.take_batch(1, 1))),
        ("clear", |queue, _| drop(queue.clear())),
        ("close", |queue, _| queue.close()),
        ("fewer chairs", |queue, _| {
            queue.reconfigure(room(|room| room.max_size = 0));
        }),
        ("less patience", |queue, _| {
            queue.reconfigure(room(|room| room.max_wait = Some(Duration::ZERO)));
        }),
        ("displaced", |queue, _| {
            queue.reconfigure(room(|room| (room.max_size, room.displace) = (1, true)));
            queue.enqueue(1, ticket(0)).unwrap();
            queue.try_dequeue().unwrap();
        }),
    ];
    let token = CancellationToken::new();
    let witness = Arc::new(());
    // What is dropped with its queue shows nothing.
    let mut queues = Vec::new();
    for ((name, leave), is_timed) in ways.iter().flat_map(|way| [(way, true), (way, false)]) {
        let queue = RequestQueue::builder(room(|room| room.max_size = 1))
            .on_rejected({
                let witness = witness.clone();
                move |_, _| drop(witness.clone())
            })
            .build();
        // From now on there is a short way.
        queue.enqueue(0, ticket(1)).unwrap();
        queue.try_dequeue().unwrap();
        let id = come(&queue, &token, is_timed);
        leave(&queue, &token);
        assert!(!queue.contains(id), "{name}");
        queues.push(queue);
    }
    for by_guard in [true, false] {
        let queue = max_size(1);
        let id = come(&queue, &token, true);
        match by_guard {
            true => drop(queue.guard(id)),
            false => drop(queue.remove(id).unwrap()),
        }
        queues.push(queue);
    }
    // Nothing is registered any more: cancelling wakes nobody, and so frees nothing.
    let freed = allocation_counter::measure(|| token.cancel());
    assert_eq!(freed.count_current, 0);
    drop(queues);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_token_used_a_hundred_thousand_times_is_as_it_was() {
    let queue = queue();
    let token = CancellationToken::new();
    let pass = |times| {
        for item in 0..times {
            queue
                .enqueue_with_token(item, ticket(1), token.clone())
                .unwrap();
            assert_eq!(queue.try_dequeue(), Ok(item));
        }
    };
    pass(100);
    let kept = allocation_counter::measure(|| pass(100_000));
    assert_eq!((kept.count_current, kept.bytes_current), (0, 0));
    queue.enqueue(1, ticket(1)).unwrap();
    token.cancel();
    assert_eq!(queue.len(), 1);
}

#[test]
fn children_of_one_parent_are_not_kept() {
    let queue = queue();
    let parent = CancellationToken::new();
    let pass = |times| {
        for item in 0..times {
            let child = parent.child_token();
            queue.enqueue_with_token(item, ticket(1), child).unwrap();
            queue.try_dequeue().unwrap();
        }
    };
    pass(100);
    let kept = allocation_counter::measure(|| pass(10_000));
    assert_eq!(kept.count_current, 0);
}

#[test]
fn a_token_keeps_neither_queue_nor_items() {
    let (token, item) = (CancellationToken::new(), Arc::new(()));
    let queue = queue();
    for _ in 0..3 {
        queue
            .enqueue_with_token(item.clone(), ticket(1), token.clone())
            .unwrap();
    }
    drop(queue);
    assert_eq!(Arc::strong_count(&item), 1);
    token.cancel();
}

#[test]
fn who_loses_its_token_without_a_cancellation_waits_on() {
    let queue = queue();
    queue
        .enqueue_with_token("a", ticket(1), CancellationToken::new())
        .unwrap();
    assert_eq!(drained(&queue), ["a"]);
}

#[test]
fn a_consumer_woken_for_a_request_that_is_cancelled_waits_on() {
    let queue = queue();
    let ((first, waker), (second, other)) = (Bell::new(), Bell::new());
    let (mut one, mut two) = (queue.dequeue(), queue.dequeue());
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &other).is_pending());
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap();
    token.cancel();
    assert!(poll(&mut one, &waker).is_pending());
    queue.enqueue("b", ticket(1)).unwrap();
    queue.enqueue("c", ticket(1)).unwrap();
    assert_eq!((first.rung(), second.rung()), (2, 1));
}

#[test]
fn the_last_to_be_cancelled_of_a_draining_queue_ends_it() {
    let queue = queue();
    let (bell, waker) = Bell::new();
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap();
    queue.drain();
    let batch = queue.take_batch(1, 0);
    assert!(batch.is_empty());
    let mut consumer = queue.dequeue();
    token.cancel();
    assert!(poll(&mut consumer, &waker).is_ready());
    assert_eq!(bell.rung(), 0);
}

#[test]
fn what_a_cancelled_one_cost_is_no_longer_counted() {
    let (queue, _) = telling(room(|room| {
        room.discipline = tower_triage::Discipline::Fair
    }));
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a1", of("a"), token.clone())
        .unwrap();
    for (item, tenant) in [("a2", "a"), ("b1", "b"), ("a3", "a")] {
        queue.enqueue(item, of(tenant)).unwrap();
    }
    token.cancel();
    assert_eq!(drained(&queue), ["a2", "b1", "a3"]);
}

#[test]
fn a_cancellation_that_meets_a_consumer_leaves_one_of_them_the_item() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for _ in 0..2_000 {
        dropped.store(0, SeqCst);
        let queue = queue();
        let token = CancellationToken::new();
        let item = Dropped(dropped.clone());
        queue
            .enqueue_with_token(item, ticket(1), token.clone())
            .unwrap();
        let canceller = std::thread::spawn(move || token.cancel());
        let taken = queue.try_dequeue();
        canceller.join().unwrap();
        assert_eq!(dropped.load(SeqCst), usize::from(taken.is_err()));
        assert_eq!(queue.stats().cancelled, u64::from(taken.is_err()));
        assert!(queue.is_empty());
    }
}

#[test]
fn a_cancellation_that_meets_the_enqueueing_takes_the_request_out() {
    for _ in 0..2_000 {
        let queue = queue();
        let token = CancellationToken::new();
        let canceller = std::thread::spawn({
            let token = token.clone();
            move || token.cancel()
        });
        queue.enqueue_with_token("a", ticket(1), token).unwrap();
        canceller.join().unwrap();
        assert!(queue.is_empty());
    }
}
