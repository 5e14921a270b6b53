//! Tickets that say nothing of their arrival, beside those that do.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};
use tower_triage::batch::RequestQueue;
use tower_triage::{Discipline, Priority, Rejected, Ticket};

use super::support::{drained, now, queue, room, telling, ticket};

const SECOND: Duration = Duration::from_secs(1);
const NORMAL: Priority = Priority(1);

#[tokio::test(start_paused = true)]
async fn who_comes_back_stands_where_it_stood_among_those_of_whom_nothing_is_known() {
    for is_special in [false, true] {
        let undated = || match is_special {
            true => Ticket::from(NORMAL).tenant("a".into()),
            false => NORMAL.into(),
        };
        let queue = queue();
        queue.enqueue("sooner", undated()).unwrap();
        let came = ticket(1);
        let first = queue.enqueue("first", came.clone()).unwrap();
        assert_eq!(queue.remove(first), Some("first"));
        queue.enqueue("later", undated()).unwrap();
        queue.enqueue("later still", ticket(1)).unwrap();
        queue.enqueue("last", undated()).unwrap();
        advance(SECOND).await;
        queue.enqueue("first", came.returning()).unwrap();
        let order = ["sooner", "first", "later", "later still", "last"];
        assert_eq!(drained(&queue), order);
    }
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
        assert_eq!(told, ["a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_measured_once_is_still_measured_from_then() {
    let bounded = || room(|room| room.max_wait = Some(10 * SECOND));
    let (queue, told) = telling(room(|_| ()));
    let ended = || -> Vec<_> { told.lock().unwrap().drain(..).collect() };
    queue.enqueue("a", NORMAL).unwrap();
    let mut hasty = Ticket::from(NORMAL).tenant("t".into());
    hasty.deadline = Some(now() + 25 * SECOND);
    queue.enqueue("b", hasty).unwrap();
    let back = Ticket::from(NORMAL).returning();
    queue.enqueue("c", back).unwrap();
    advance(20 * SECOND).await;
    queue.reconfigure(bounded());
    sleep(8 * SECOND).await;
    assert_eq!(ended(), [("b", Rejected::DeadlinePassed)]);
    queue.enqueue("d", NORMAL).unwrap();
    queue.reconfigure(room(|_| ()));
    sleep(SECOND).await;
    queue.enqueue("e", NORMAL).unwrap();
    assert_eq!(ended(), []);
    queue.reconfigure(bounded());
    sleep(2 * SECOND).await;
    assert_eq!(
        ended(),
        [("a", Rejected::TimedOut), ("c", Rejected::TimedOut)]
    );
    sleep(7 * SECOND + SECOND / 2).await;
    assert_eq!(ended(), [("d", Rejected::TimedOut)]);
    sleep(SECOND).await;
    assert_eq!(ended(), [("e", Rejected::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn an_arrival_before_all_that_can_be_measured_is_one() {
    let queue = RequestQueue::new(room(|room| room.chairs_per_tenant = Some(9)));
    queue.enqueue("b", ticket(1)).unwrap();
    let mut came = ticket(1);
    came.arrival = now().checked_sub(Duration::from_secs(200 * 366 * 86_400));
    queue.enqueue("a", came.returning()).unwrap();
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
        [("hasty", Rejected::DeadlinePassed)]
    );
}
