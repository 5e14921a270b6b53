//! Tests of waits that end across runtimes: one that is not driven, and none at all.

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_triage::{Priority, RejectReason, RequestQueue, WaitingRoomConfig};

use super::support::{config, ticket, with_rejections};

/// Ends a test that hangs.
const GUARD: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn waits_end_beside_a_runtime_that_is_not_driven() {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = Some(Duration::from_millis(50));
    let (ended, waits) = mpsc::channel();
    let queue = RequestQueue::builder(config)
        .on_rejected(move |item: u32, why| ended.send((item, why)).unwrap())
        .build();
    let first = runtime();
    first.block_on(async {
        queue.enqueue(1, Priority::HIGHEST).unwrap();
        tokio::task::yield_now().await;
    });
    let second = runtime();
    let all: Vec<_> = second.block_on(async {
        queue.enqueue(2, Priority::HIGHEST).unwrap();
        let next = move || waits.recv_timeout(GUARD).expect("it ends");
        let all = tokio::task::spawn_blocking(move || [next(), next()]);
        all.await.unwrap().into()
    });
    assert_eq!(
        all,
        [(1, RejectReason::TimedOut), (2, RejectReason::TimedOut)]
    );
}

#[test]
fn a_timer_kept_for_trimming_still_ends_waits() {
    const BURST: u32 = 3_000;
    let mut config = WaitingRoomConfig::default();
    config.max_wait = Some(Duration::from_millis(50));
    config.max_size = 100_000;
    let (ended, waits) = mpsc::channel();
    let queue = RequestQueue::builder(config)
        .on_rejected(move |item: u32, _| ended.send(item).unwrap())
        .build();
    let runtime = runtime();
    let wait_for = |count: u32| {
        let end = std::time::Instant::now() + GUARD;
        runtime.block_on(async {
            for _ in 0..count {
                while waits.try_recv().is_err() {
                    assert!(std::time::Instant::now() < end, "a wait does not end");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    };
    runtime.block_on(async {
        (0..BURST).for_each(|item| _ = queue.enqueue(item, Priority::HIGHEST).unwrap());
    });
    wait_for(BURST);
    // Outside of a runtime no timer is armed.
    queue.enqueue(1, Priority::HIGHEST).unwrap();
    runtime.block_on(async { _ = queue.enqueue(2, Priority::HIGHEST).unwrap() });
    wait_for(2);
}

#[test]
fn a_timer_ends_waits_that_began_outside_a_runtime() {
    let max_wait = Some(Duration::from_secs(10));
    let (queue, rejections) = with_rejections(config(|config| config.max_wait = max_wait));
    queue.enqueue("outside", ticket(1)).unwrap();
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        queue.enqueue("inside", ticket(1)).unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
    });
    let rejections = rejections.lock().unwrap();
    let items: Vec<_> = rejections.iter().map(|(item, _)| *item).collect();
    assert_eq!(items, ["outside", "inside"]);
}
