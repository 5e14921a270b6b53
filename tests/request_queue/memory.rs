//! Tests of the memory that a queue keeps after a burst.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::advance;
use tower_triage::Priority;
use tower_triage::batch::RequestQueue;

use super::support::config;

const BURST: u32 = 50_000;
/// Memory for 1,024 items is always kept: about 100 kB.
const SMALL: i64 = 400_000;
/// Longer than the 10 s between two attempts to trim.
const INTERVAL: Duration = Duration::from_secs(11);

/// The bytes that a queue keeps after a burst, then `intervals`, in each of which `items` wait.
fn bytes_after_burst(intervals: u32, items: u32) -> i64 {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let max_wait = Some(Duration::from_secs(1_000));
    let mut kept = None;
    let measured = allocation_counter::measure(|| {
        let queue = RequestQueue::new(config(|config| config.max_wait = max_wait));
        runtime.block_on(async {
            let enqueue = |item| _ = queue.enqueue(item, Priority::HIGHEST).unwrap();
            (0..BURST).for_each(enqueue);
            assert_eq!(queue.take_batch(usize::MAX, u64::MAX).len(), BURST as usize);
            for _ in 0..intervals {
                (0..items).for_each(enqueue);
                yield_now().await;
                advance(INTERVAL).await;
                yield_now().await;
                assert_eq!(queue.take_batch(usize::MAX, u64::MAX).len(), items as usize);
            }
        });
        kept = Some(queue);
    });
    drop(kept);
    measured.bytes_current
}

#[test]
fn an_idle_queue_trims_its_memory_after_a_burst() {
    assert!(bytes_after_burst(0, 0) > 4 * SMALL, "no burst");
    let kept = bytes_after_burst(4, 0);
    assert!(kept < SMALL, "{kept} bytes");
}

#[test]
fn a_small_queue_trims_its_memory_after_a_burst() {
    let kept = bytes_after_burst(4, 8);
    assert!(kept < SMALL, "{kept} bytes");
}
