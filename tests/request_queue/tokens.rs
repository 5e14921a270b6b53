//! Tests of items that are removed when their token is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tower_triage::RejectReason;
use tower_triage::batch::RequestQueue;

use super::support::{
    Dropped, WakeCounter, config, dequeue_all, max_size, poll, queue, ticket, ticket_of,
    with_rejections,
};

#[test]
fn cancelling_a_token_removes_its_item_at_once() {
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
fn an_item_with_a_cancelled_token_is_dropped() {
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
fn a_rejected_item_leaves_nothing_at_its_token() {
    let queue = max_size(0);
    let token = CancellationToken::new();
    let rejected = queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap_err();
    assert_eq!(
        (rejected.item, rejected.reason),
        ("a", RejectReason::Disabled)
    );
    token.cancel();
}

#[test]
fn cancelling_after_a_dequeue_removes_nothing() {
    let queue = max_size(1);
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a", ticket(1), token.clone())
        .unwrap();
    assert_eq!(queue.try_dequeue(), Ok("a"));
    // In the place of the first.
    queue.enqueue("b", ticket(1)).unwrap();
    token.cancel();
    assert_eq!(dequeue_all(&queue), ["b"]);
    assert_eq!(queue.stats().cancelled, 0);
}

#[test]
fn a_token_removes_all_of_its_items_only() {
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
    assert_eq!(dequeue_all(&queue), others);
}

#[test]
fn a_child_token_is_cancelled_alone() {
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
fn an_items_destructor_may_use_its_tokens() {
    struct UsesTokens(CancellationToken, CancellationToken);
    impl Drop for UsesTokens {
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
        let item = UsesTokens(parent.clone(), child.clone());
        queue.enqueue_with_token(item, ticket(1), child).unwrap();
    }
    parent.cancel();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_item_that_leaves_unregisters_its_token() {
    type Leave = (&'static str, fn(&RequestQueue<u8>, &CancellationToken));
    let hour = Duration::from_secs(3600);
    let enqueue = |queue: &RequestQueue<u8>, token: &CancellationToken, is_timed| {
        let ticket = match is_timed {
            true => ticket(1).timeout(hour),
            false => ticket(1),
        };
        queue.enqueue_with_token(0, ticket, token.clone()).unwrap()
    };
    let cases: &[Leave] = &[
        ("dequeue", |queue, _| assert!(queue.try_dequeue().is_ok())),
        ("batch", |queue, _| drop(queue.take_batch(1, 1))),
        ("clear", |queue, _| drop(queue.clear())),
        ("close", |queue, _| queue.close()),
        ("smaller max_size", |queue, _| {
            queue.reconfigure(config(|config| config.max_size = 0));
        }),
        ("shorter max_wait", |queue, _| {
            queue.reconfigure(config(|config| config.max_wait = Some(Duration::ZERO)));
        }),
        ("displaced", |queue, _| {
            queue.reconfigure(config(|config| {
                (config.max_size, config.displace) = (1, true)
            }));
            queue.enqueue(1, ticket(0)).unwrap();
            queue.try_dequeue().unwrap();
        }),
    ];
    let token = CancellationToken::new();
    let witness = Arc::new(());
    // Kept, because a dropped queue would drop its registrations.
    let mut queues = Vec::new();
    for ((name, leave), is_timed) in cases.iter().flat_map(|case| [(case, true), (case, false)]) {
        let queue = RequestQueue::builder(config(|config| config.max_size = 1))
            .on_rejected({
                let witness = witness.clone();
                move |_, _| drop(witness.clone())
            })
            .build();
        let id = enqueue(&queue, &token, is_timed);
        leave(&queue, &token);
        assert!(!queue.contains(id), "{name}");
        queues.push(queue);
    }
    for by_guard in [true, false] {
        let queue = max_size(1);
        let id = enqueue(&queue, &token, true);
        match by_guard {
            true => drop(queue.guard(id)),
            false => drop(queue.remove(id).unwrap()),
        }
        queues.push(queue);
    }
    // Nothing is registered any more, so that cancelling frees no memory.
    let freed = allocation_counter::measure(|| token.cancel());
    assert_eq!(freed.count_current, 0);
    drop(queues);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_token_used_100_000_times_keeps_no_memory() {
    let queue = queue();
    let token = CancellationToken::new();
    let run = |times| {
        for item in 0..times {
            queue
                .enqueue_with_token(item, ticket(1), token.clone())
                .unwrap();
            assert_eq!(queue.try_dequeue(), Ok(item));
        }
    };
    run(100);
    let kept = allocation_counter::measure(|| run(100_000));
    assert_eq!((kept.count_current, kept.bytes_current), (0, 0));
    queue.enqueue(1, ticket(1)).unwrap();
    token.cancel();
    assert_eq!(queue.len(), 1);
}

#[test]
fn child_tokens_are_not_kept() {
    let queue = queue();
    let parent = CancellationToken::new();
    let run = |times| {
        for item in 0..times {
            let child = parent.child_token();
            queue.enqueue_with_token(item, ticket(1), child).unwrap();
            queue.try_dequeue().unwrap();
        }
    };
    run(100);
    let kept = allocation_counter::measure(|| run(10_000));
    assert_eq!(kept.count_current, 0);
}

#[test]
fn a_token_keeps_neither_queue_nor_items_alive() {
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
fn an_item_outlives_its_dropped_token() {
    let queue = queue();
    queue
        .enqueue_with_token("a", ticket(1), CancellationToken::new())
        .unwrap();
    assert_eq!(dequeue_all(&queue), ["a"]);
}

#[test]
fn a_consumer_woken_for_a_cancelled_item_waits_on() {
    let queue = queue();
    let ((first, waker), (second, other)) = (WakeCounter::new(), WakeCounter::new());
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
    assert_eq!((first.wakes(), second.wakes()), (2, 1));
}

#[test]
fn cancelling_the_last_item_ends_a_drained_queue() {
    let queue = queue();
    let (counter, waker) = WakeCounter::new();
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
    assert_eq!(counter.wakes(), 0);
}

#[test]
fn a_cancelled_item_is_not_charged_to_its_tenant() {
    let (queue, _) = with_rejections(config(|config| {
        config.discipline = tower_triage::Discipline::Fair
    }));
    let token = CancellationToken::new();
    queue
        .enqueue_with_token("a1", ticket_of("a"), token.clone())
        .unwrap();
    for (item, tenant) in [("a2", "a"), ("b1", "b"), ("a3", "a")] {
        queue.enqueue(item, ticket_of(tenant)).unwrap();
    }
    token.cancel();
    assert_eq!(dequeue_all(&queue), ["a2", "b1", "a3"]);
}

#[test]
fn a_cancel_racing_a_dequeue_ends_the_item_once() {
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
fn a_cancel_racing_an_enqueue_removes_the_item() {
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
