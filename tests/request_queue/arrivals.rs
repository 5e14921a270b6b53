//! Tests of arrival times: the ticket's, or the time of `enqueue`.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};
use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use super::support::{config, dequeue_all, now, queue, ticket, with_rejections};

const SECOND: Duration = Duration::from_secs(1);
const NORMAL: Priority = Priority(1);

#[test]
fn a_priority_serves_as_a_ticket() {
    let queue = queue();
    queue.enqueue("normal", NORMAL).unwrap();
    queue.enqueue("high", Priority::HIGHEST).unwrap();
    queue.enqueue("after", NORMAL).unwrap();
    assert_eq!(dequeue_all(&queue), ["high", "normal", "after"]);
}

#[tokio::test(start_paused = true)]
async fn without_an_arrival_the_wait_starts_at_enqueue() {
    let (queue, rejected) = with_rejections(config(|config| config.max_wait = Some(10 * SECOND)));
    advance(SECOND).await;
    queue.enqueue("undated", NORMAL).unwrap();
    sleep(9 * SECOND).await;
    assert_eq!(queue.len(), 1);
    sleep(2 * SECOND).await;
    assert_eq!(
        *rejected.lock().unwrap(),
        [("undated", RejectReason::TimedOut)]
    );
}

#[tokio::test(start_paused = true)]
async fn an_arrival_in_the_future_counts_as_now() {
    let (queue, rejected) = with_rejections(config(|config| config.max_wait = Some(10 * SECOND)));
    let mut tomorrow = ticket(1);
    tomorrow.arrival = Some(now() + 86_400 * SECOND);
    queue.enqueue("tomorrow", tomorrow).unwrap();
    sleep(9 * SECOND).await;
    assert_eq!(queue.len(), 1);
    sleep(2 * SECOND).await;
    assert_eq!(
        *rejected.lock().unwrap(),
        [("tomorrow", RejectReason::TimedOut)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_max_wait_counts_from_the_arrival() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let (queue, rejected) = with_rejections(config(|config| config.discipline = discipline));
        queue.enqueue("undated", NORMAL).unwrap();
        advance(8 * SECOND).await;
        queue.reconfigure(config(|config| {
            config.discipline = discipline;
            config.max_wait = Some(10 * SECOND);
        }));
        sleep(SECOND).await;
        assert_eq!(queue.len(), 1);
        sleep(2 * SECOND).await;
        assert_eq!(
            *rejected.lock().unwrap(),
            [("undated", RejectReason::TimedOut)]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn items_without_arrival_are_ordered_by_enqueue_time() {
    let queue = queue();
    queue.enqueue("dated", ticket(1)).unwrap();
    queue.enqueue("undated", NORMAL).unwrap();
    advance(SECOND).await;
    queue.enqueue("later", ticket(1)).unwrap();
    let requeued = Ticket::from(NORMAL).requeued();
    queue.enqueue("requeued without arrival", requeued).unwrap();
    queue.enqueue("last", NORMAL).unwrap();
    queue.reconfigure(config(|config| {
        config.discipline = Discipline::Deadline;
        config.max_wait = None;
    }));
    assert_eq!(
        dequeue_all(&queue),
        [
            "dated",
            "undated",
            "later",
            "requeued without arrival",
            "last"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_own_deadline_ends_the_wait() {
    let (queue, rejected) = with_rejections(config(|_| ()));
    let timeout = Ticket::from(NORMAL).timeout(5 * SECOND);
    let mut deadline = Ticket::from(NORMAL);
    deadline.deadline = Some(now() + 6 * SECOND);
    queue.enqueue("timeout", timeout).unwrap();
    queue.enqueue("deadline", deadline.clone()).unwrap();
    queue.enqueue("none", NORMAL).unwrap();
    sleep(7 * SECOND).await;
    let ended = ["timeout", "deadline"].map(|item| (item, RejectReason::DeadlinePassed));
    assert_eq!(*rejected.lock().unwrap(), ended);
    let late = queue.enqueue("late", deadline).unwrap_err();
    assert_eq!(late.reason, RejectReason::DeadlinePassed);
    assert_eq!(dequeue_all(&queue), ["none"]);
}

#[tokio::test(start_paused = true)]
async fn promotions_count_from_the_arrival() {
    let levels = |config: &mut WaitingRoomConfig| {
        config.levels = PriorityLevels::new(["high", "low"], "low").unwrap();
    };
    let queue = RequestQueue::new(config(levels));
    queue.enqueue("low", NORMAL).unwrap();
    advance(8 * SECOND).await;
    queue.reconfigure(config(|config| {
        levels(config);
        config.promote_after = Some(10 * SECOND);
    }));
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("high"));
    advance(3 * SECOND).await;
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(dequeue_all(&queue), ["low", "high"]);
}

#[tokio::test(start_paused = true)]
async fn a_max_wait_ends_waits_beside_far_future_arrivals() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let max_wait = |max_wait| {
            config(|config| (config.discipline, config.max_wait) = (discipline, max_wait))
        };
        let (queue, rejected) = with_rejections(max_wait(None));
        let mut far = ticket(1);
        far.arrival = Some(now() + Duration::from_secs(1 << 40));
        queue.enqueue("far", far).unwrap();
        for item in ["a", "b"] {
            queue.enqueue(item, NORMAL).unwrap();
        }
        queue.reconfigure(max_wait(Some(SECOND)));
        sleep(2 * SECOND).await;
        let rejected: Vec<_> = rejected
            .lock()
            .unwrap()
            .iter()
            .map(|(item, _)| *item)
            .collect();
        assert_eq!(rejected, ["far", "a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_arrival_200_years_ago_is_accepted() {
    let queue = RequestQueue::new(config(|config| config.max_size_per_tenant = Some(9)));
    queue.enqueue("b", ticket(1)).unwrap();
    let mut old = ticket(1);
    old.arrival = now().checked_sub(Duration::from_secs(200 * 366 * 86_400));
    queue.enqueue("a", old.requeued()).unwrap();
    assert_eq!(dequeue_all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn enqueue_without_arrival_rejects_expired_items_first() {
    let (queue, rejected) = with_rejections(config(|_| ()));
    queue.enqueue("expired", ticket(1).timeout(SECOND)).unwrap();
    yield_now().await;
    // The clock is advanced, but the timer is not polled.
    assert_eq!(advance(2 * SECOND).now_or_never(), None);
    queue.enqueue("undated", NORMAL).unwrap();
    assert_eq!(
        rejected.lock().unwrap()[..],
        [("expired", RejectReason::DeadlinePassed)]
    );
}
