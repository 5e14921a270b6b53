//! Tasks whose cooperative budget is used up, and tasks that do not take the slot that they are granted.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::{coop, yield_now};
use tokio::time::{sleep, timeout};
use tower_triage::{Gate, Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

#[tokio::test]
async fn a_task_without_budget_is_queued_by_its_first_poll() {
    let gate = gate(1, None);
    let held = gate.try_acquire(&()).unwrap();
    let mut first = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_without_budget(&mut first).await.is_pending());
    assert_eq!(gate.status().depth, 1);
    let mut second = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_once(&mut second).is_pending());
    yield_now().await;
    drop(held);
    assert!(poll_once(&mut second).is_pending());
    assert!(poll_once(&mut first).is_ready());
}

#[tokio::test]
async fn a_task_without_budget_takes_a_free_slot_and_yields() {
    let gate = gate(1, None);
    let mut first = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_without_budget(&mut first).await.is_pending());
    assert!(gate.try_acquire(&()).is_none());
    yield_now().await;
    assert!(first.await.is_ok());
    assert!(gate.try_acquire(&()).is_some());
}

#[tokio::test]
async fn a_future_dropped_without_budget_gives_its_slot_back() {
    let gate = gate(1, None);
    let mut first = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_without_budget(&mut first).await.is_pending());
    drop(first);
    assert!(gate.try_acquire(&()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_slot_nobody_takes_goes_on_after_max_wait() {
    let gate = gate(1, Some(Duration::from_secs(2)));
    let held = gate.try_acquire(&()).unwrap();
    let mut stuck = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_once(&mut stuck).is_pending());
    drop(held);
    let next = gate.acquire(Ticket::from(Priority::HIGHEST).patient(), ());
    let next = timeout(Duration::from_secs(4), next).await;
    assert!(next.expect("the slot went on").is_ok());
    assert_eq!(stuck.await.unwrap_err(), RejectReason::TimedOut);
    let status = gate.status();
    assert_eq!((status.running, status.depth), (0, 0));
    assert_eq!(status.stats.timed_out, 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_nobody_takes_is_freed_in_an_empty_room() {
    let gate = gate(1, Some(Duration::from_secs(2)));
    let held = gate.try_acquire(&()).unwrap();
    let mut stuck = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_once(&mut stuck).is_pending());
    drop(held);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(gate.status().running, 0);
    assert_eq!(stuck.await.unwrap_err(), RejectReason::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_patient_waiter_stays_granted() {
    let gate = gate(1, Some(Duration::from_secs(2)));
    let held = gate.try_acquire(&()).unwrap();
    let mut patient = gate.acquire(Ticket::from(Priority::HIGHEST).patient(), ());
    assert!(poll_once(&mut patient).is_pending());
    drop(held);
    sleep(Duration::from_secs(60)).await;
    assert!(patient.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_late_poll_within_the_grace_takes_the_slot() {
    let gate = gate(1, Some(Duration::from_secs(2)));
    let held = gate.try_acquire(&()).unwrap();
    let mut late = gate.acquire(Priority::HIGHEST, ());
    assert!(poll_once(&mut late).is_pending());
    sleep(Duration::from_millis(1_900)).await;
    drop(held); // 100 ms before the wait's end
    sleep(Duration::from_millis(500)).await;
    assert!(late.await.is_ok());
}

fn gate(slots: usize, max_wait: Option<Duration>) -> Gate<SlotPool> {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = max_wait;
    Gate::new(SlotPool::new(slots), config)
}

/// Polls a future outside of the task's budget.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut future = coop::unconstrained(future);
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Uses up the task's budget, and polls a future once in the same poll of the task.
async fn poll_without_budget<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| {
        while let Poll::Ready(budget) = coop::poll_proceed(cx) {
            budget.made_progress();
        }
        Poll::Ready(Pin::new(&mut *future).poll(cx))
    })
    .await
}
