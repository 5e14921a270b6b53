//! Tests of what is visible only from inside: the cost of all waiting items, and reservations.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{OnOversize, RequestId, RequestQueue};
use crate::admit::{Priority, Ticket, WaitingRoomConfig};
use crate::gate::now;
use crate::gate::reserve::ReservationHost;
use crate::gate::with_lock::WithLock;

fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), now())
}

#[test]
fn an_item_that_leaves_subtracts_its_cost() {
    type Leave = (
        &'static str,
        fn(&RequestQueue<u64>, RequestId, &CancellationToken),
    );
    let cases: [Leave; 11] = [
        ("stays", |_, _, _| ()),
        ("another rejected", |queue, _, _| {
            assert!(queue.enqueue(5, ticket(1)).is_err());
        }),
        ("dequeued", |queue, _, _| {
            assert!(queue.try_dequeue().is_ok());
        }),
        ("taken in a batch", |queue, _, _| {
            assert_eq!(queue.take_batch(9, 7), [7]);
        }),
        ("removed", |queue, id, _| {
            assert_eq!(queue.remove(id), Some(7));
        }),
        ("guard dropped", |queue, id, _| drop(queue.guard(id))),
        ("cancelled", |_, _, token| token.cancel()),
        ("cleared", |queue, _, _| assert_eq!(queue.clear().len(), 2)),
        ("displaced", |queue, _, _| {
            assert!(queue.enqueue(5, ticket(0)).is_ok());
        }),
        ("expired", |queue, _, _| {
            let max_wait = Some(Duration::from_nanos(1));
            queue.reconfigure(WaitingRoomConfig {
                max_wait,
                ..WaitingRoomConfig::default()
            });
            assert!(queue.try_dequeue().is_err());
        }),
        ("closed", |queue, _, _| queue.close()),
    ];
    for (name, leave) in cases {
        let queue = RequestQueue::builder(WaitingRoomConfig {
            max_size: 2,
            displace: true,
            ..WaitingRoomConfig::default()
        })
        .cost(u64::MAX, |&cost: &u64| cost)
        .on_oversize(OnOversize::Backfill { max_overtakes: 9 })
        .build();
        let token = CancellationToken::new();
        queue.enqueue(u64::MAX, ticket(1)).unwrap();
        let id = queue
            .enqueue_with_token(7, ticket(1), token.clone())
            .unwrap();
        leave(&queue, id, &token);
        let cost = |queue: &RequestQueue<u64>| queue.shared.lock().cost;
        let before = cost(&queue);
        let rest = queue.clear().into_iter().map(u128::from);
        assert_eq!(before, rest.sum::<u128>(), "{name}");
        assert_eq!(cost(&queue), 0, "{name}");
    }
}

#[test]
fn an_arrival_uses_up_its_reservation() {
    let queue = RequestQueue::new(WaitingRoomConfig {
        max_size: 2,
        max_wait: None,
        ..WaitingRoomConfig::default()
    });
    queue.enqueue(1, ticket(1)).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(
        queue.shared.poll_reserve(&mut None, &mut cx),
        Poll::Ready(Some(()))
    );
    assert!(
        queue.enqueue(2, ticket(1)).is_err(),
        "the place is reserved"
    );
    queue.enqueue_on(true, 3, ticket(1)).unwrap();
    assert_eq!(queue.clear(), [1, 3]);
    for item in [4, 5] {
        assert!(queue.enqueue(item, ticket(1)).is_ok());
    }
}

#[test]
fn each_dequeued_item_subtracts_its_cost() {
    let config = WaitingRoomConfig {
        max_wait: None,
        ..WaitingRoomConfig::default()
    };
    let queue = RequestQueue::builder(config)
        .cost(9, |&cost: &u64| cost)
        .build();
    for cost in [2, 3, 4] {
        queue.enqueue(cost, ticket(1)).unwrap();
    }
    for rest in [7, 4, 0] {
        queue.try_dequeue().unwrap();
        assert_eq!(queue.shared.lock().cost, rest);
    }
}
