//! Tickets that do not say when their requests arrived.

use std::time::Duration;

use tokio::time::{advance, sleep};
use tower_triage::{Discipline, Priority, Rejected, Ticket};

use super::support::{drained, now, queue, room, telling, ticket};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_priority_is_ticket_enough() {
    let queue = queue();
    queue.enqueue("normal", Priority(1)).unwrap();
    queue.enqueue("high", Priority::HIGHEST).unwrap();
    queue.enqueue("after", Priority(1)).unwrap();
    assert_eq!(drained(&queue), ["high", "normal", "after"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_say_when_it_came_waits_from_when_it_was_enqueued() {
    let (queue, told) = telling(room(|room| room.max_wait = Some(10 * SECOND)));
    advance(SECOND).await;
    queue.enqueue("undated", Priority(1)).unwrap();
    sleep(9 * SECOND).await;
    assert_eq!(queue.len(), 1);
    sleep(2 * SECOND).await;
    assert_eq!(*told.lock().unwrap(), [("undated", Rejected::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn whoever_came_while_nobody_asked_waits_from_when_somebody_does() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let (queue, told) = telling(room(|room| room.discipline = discipline));
        queue.enqueue("undated", Priority(1)).unwrap();
        queue.enqueue("dated", ticket(1)).unwrap();
        advance(8 * SECOND).await;
        queue.reconfigure(room(|room| {
            room.discipline = discipline;
            room.max_wait = Some(10 * SECOND);
        }));
        sleep(3 * SECOND).await;
        assert_eq!(*told.lock().unwrap(), [("dated", Rejected::TimedOut)]);
        sleep(6 * SECOND).await;
        assert_eq!(queue.len(), 1);
        sleep(2 * SECOND).await;
        assert_eq!(told.lock().unwrap()[1], ("undated", Rejected::TimedOut));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_by_then_is_asked_once() {
    let (queue, told) = telling(room(|_| ()));
    let bounded = || room(|room| room.max_wait = Some(10 * SECOND));
    queue.enqueue("undated", Priority(1)).unwrap();
    queue.reconfigure(bounded());
    advance(4 * SECOND).await;
    queue.reconfigure(room(|_| ()));
    advance(4 * SECOND).await;
    queue.reconfigure(bounded());
    sleep(3 * SECOND).await;
    assert_eq!(*told.lock().unwrap(), [("undated", Rejected::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn its_place_is_that_of_when_it_was_enqueued() {
    let queue = queue();
    queue.enqueue("dated", ticket(1)).unwrap();
    queue.enqueue("undated", Priority(1)).unwrap();
    advance(SECOND).await;
    queue.enqueue("later", ticket(1)).unwrap();
    let back = Ticket::from(Priority(1)).returning();
    queue.enqueue("back, since who knows when", back).unwrap();
    queue.reconfigure(room(|room| {
        room.discipline = Discipline::Deadline;
        room.max_wait = None;
    }));
    assert_eq!(
        drained(&queue),
        ["dated", "undated", "later", "back, since who knows when"]
    );
}

#[tokio::test(start_paused = true)]
async fn its_own_deadline_ends_its_wait() {
    let (queue, told) = telling(room(|_| ()));
    let timeout = Ticket::from(Priority(1)).timeout(5 * SECOND);
    let mut deadline = Ticket::from(Priority(1));
    deadline.deadline = Some(now() + 6 * SECOND);
    queue.enqueue("timeout", timeout).unwrap();
    queue.enqueue("deadline", deadline.clone()).unwrap();
    queue.enqueue("none", Priority(1)).unwrap();
    sleep(7 * SECOND).await;
    let ended = ["timeout", "deadline"].map(|item| (item, Rejected::DeadlinePassed));
    assert_eq!(*told.lock().unwrap(), ended);
    let late = queue.enqueue("late", deadline).unwrap_err();
    assert_eq!(late.why, Rejected::DeadlinePassed);
    assert_eq!(drained(&queue), ["none"]);
}

#[tokio::test(start_paused = true)]
async fn it_rises_as_if_it_had_come_when_rising_began() {
    let levels = |room: &mut tower_triage::RoomConfig| {
        room.levels = tower_triage::Levels::new(["high", "low"], "low").unwrap();
    };
    let queue = tower_triage::RequestQueue::new(room(levels));
    queue.enqueue("low", Priority(1)).unwrap();
    advance(60 * SECOND).await;
    queue.reconfigure(room(|room| {
        levels(room);
        room.promote_after = Some(10 * SECOND);
    }));
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(queue.try_dequeue(), Ok("high"));
    advance(11 * SECOND).await;
    queue.enqueue("high", Priority(0)).unwrap();
    assert_eq!(drained(&queue), ["low", "high"]);
}
