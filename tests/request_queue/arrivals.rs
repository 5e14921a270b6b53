//! When a request arrived, by its ticket or when it was enqueued.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};
use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use super::support::{drained, now, queue, room, telling, ticket};

const SECOND: Duration = Duration::from_secs(1);
const NORMAL: Priority = Priority(1);

#[test]
fn a_priority_is_ticket_enough() {
    let queue = queue();
    queue.enqueue("normal", NORMAL).unwrap();
    queue.enqueue("high", Priority::HIGHEST).unwrap();
    queue.enqueue("after", NORMAL).unwrap();
    assert_eq!(drained(&queue), ["high", "normal", "after"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_say_when_it_came_waits_from_when_it_was_enqueued() {
    let (queue, told) = telling(room(|room| room.max_wait = Some(10 * SECOND)));
    advance(SECOND).await;
    queue.enqueue("undated", NORMAL).unwrap();
    sleep(9 * SECOND).await;
    assert_eq!(queue.len(), 1);
    sleep(2 * SECOND).await;
    assert_eq!(*told.lock().unwrap(), [("undated", RejectReason::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn an_arrival_in_the_future_counts_as_now() {
    let (queue, told) = telling(room(|room| room.max_wait = Some(10 * SECOND)));
    let mut tomorrow = ticket(1);
    tomorrow.arrival = Some(now() + 86_400 * SECOND);
    queue.enqueue("of tomorrow", tomorrow).unwrap();
    sleep(9 * SECOND).await;
    assert_eq!(queue.len(), 1);
    sleep(2 * SECOND).await;
    assert_eq!(
        *told.lock().unwrap(),
        [("of tomorrow", RejectReason::TimedOut)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_counts_from_its_arrival_also_after_a_reconfiguration() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let (queue, told) = telling(room(|room| room.discipline = discipline));
        queue.enqueue("undated", NORMAL).unwrap();
        advance(8 * SECOND).await;
        queue.reconfigure(room(|room| {
            room.discipline = discipline;
            room.max_wait = Some(10 * SECOND);
        }));
        sleep(SECOND).await;
        assert_eq!(queue.len(), 1);
        sleep(2 * SECOND).await;
        assert_eq!(*told.lock().unwrap(), [("undated", RejectReason::TimedOut)]);
    }
}

#[tokio::test(start_paused = true)]
async fn its_place_is_that_of_when_it_was_enqueued() {
    let queue = queue();
    queue.enqueue("dated", ticket(1)).unwrap();
    queue.enqueue("undated", NORMAL).unwrap();
    advance(SECOND).await;
    queue.enqueue("later", ticket(1)).unwrap();
    let back = Ticket::from(NORMAL).requeued();
    queue.enqueue("back, since who knows when", back).unwrap();
    queue.enqueue("last", NORMAL).unwrap();
    queue.reconfigure(room(|room| {
        room.discipline = Discipline::Deadline;
        room.max_wait = None;
    }));
    assert_eq!(
        drained(&queue),
        [
            "dated",
            "undated",
            "later",
            "back, since who knows when",
            "last"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn its_own_deadline_ends_its_wait() {
    let (queue, told) = telling(room(|_| ()));
    let timeout = Ticket::from(NORMAL).timeout(5 * SECOND);
    let mut deadline = Ticket::from(NORMAL);
    deadline.deadline = Some(now() + 6 * SECOND);
    queue.enqueue("timeout", timeout).unwrap();
    queue.enqueue("deadline", deadline.clone()).unwrap();
    queue.enqueue("none", NORMAL).unwrap();
    sleep(7 * SECOND).await;
    let ended = ["timeout", "deadline"].map(|item| (item, RejectReason::DeadlinePassed));
    assert_eq!(*told.lock().unwrap(), ended);
    let late = queue.enqueue("late", deadline).unwrap_err();
    assert_eq!(late.why, RejectReason::DeadlinePassed);
    assert_eq!(drained(&queue), ["none"]);
}

#[tokio::test(start_paused = true)]
async fn promotions_count_from_the_arrival() {
    let levels = |room: &mut WaitingRoomConfig| {
        room.levels = PriorityLevels::new(["high", "low"], "low").unwrap();
    };
    let queue = RequestQueue::new(room(levels));
    queue.enqueue("low", NORMAL).unwrap();
    advance(8 * SECOND).await;
    queue.reconfigure(room(|room| {
        levels(room);
        room.promote_after = Some(10 * SECOND);
    }));
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("high"));
    advance(3 * SECOND).await;
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(drained(&queue), ["low", "high"]);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_time_nobody_waits_for_ever() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let max_wait =
            |max_wait| room(|room| (room.discipline, room.max_wait) = (discipline, max_wait));
        let (queue, told) = telling(max_wait(None));
        let mut far = ticket(1);
        far.arrival = Some(now() + Duration::from_secs(1 << 40));
        queue.enqueue("far", far).unwrap();
        for who in ["a", "b"] {
            queue.enqueue(who, NORMAL).unwrap();
        }
        queue.reconfigure(max_wait(Some(SECOND)));
        sleep(2 * SECOND).await;
        let told: Vec<_> = told.lock().unwrap().iter().map(|(who, _)| *who).collect();
        assert_eq!(told, ["far", "a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_arrival_before_all_that_can_be_measured_is_one() {
    let queue = RequestQueue::new(room(|room| room.max_size_per_tenant = Some(9)));
    queue.enqueue("b", ticket(1)).unwrap();
    let mut came = ticket(1);
    came.arrival = now().checked_sub(Duration::from_secs(200 * 366 * 86_400));
    queue.enqueue("a", came.requeued()).unwrap();
    assert_eq!(drained(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn whose_wait_has_ended_is_told_before_one_comes_of_whom_nothing_is_known() {
    let (queue, told) = telling(room(|_| ()));
    queue.enqueue("hasty", ticket(1).timeout(SECOND)).unwrap();
    yield_now().await;
    // No timer runs before its second poll.
    assert_eq!(advance(2 * SECOND).now_or_never(), None);
    queue.enqueue("undated", NORMAL).unwrap();
    assert_eq!(
        told.lock().unwrap()[..],
        [("hasty", RejectReason::DeadlinePassed)]
    );
}
