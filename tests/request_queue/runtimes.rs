//! A queue between two runtimes, one of which is not driven.

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_triage::{Priority, RejectReason, RequestQueue, WaitingRoomConfig};

const GUARD: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn waits_end_though_the_first_producer_s_runtime_is_not_driven() {
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
fn waits_end_though_the_timer_has_only_looked_after_the_memory() {
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
    // Outside of all runtimes no timer is armed for it.
    queue.enqueue(1, Priority::HIGHEST).unwrap();
    runtime.block_on(async { _ = queue.enqueue(2, Priority::HIGHEST).unwrap() });
    wait_for(2);
}
