//! Stress test: many callers on several threads.

use super::*;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tower::ServiceBuilder;

const CALLERS: u32 = 8;
const REQUESTS: u32 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_gets_its_own_response_under_load() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let running = Arc::new(AtomicUsize::new(0));
    let inner = {
        let (seen, running) = (Arc::clone(&seen), Arc::clone(&running));
        service_fn(move |batch: Vec<Job>| {
            assert!(!batch.is_empty() && batch.len() <= 16);
            assert!(batch.iter().map(|job| job.cost).sum::<u64>() <= 40);
            let mut seen = seen.lock().unwrap();
            assert!(
                batch.iter().all(|job| seen.insert(job.number)),
                "served twice"
            );
            let guard = Running::new(&running);
            async move {
                for _ in 0..fastrand::u8(..8) {
                    tokio::task::yield_now().await;
                }
                drop(guard);
                Ok::<_, std::convert::Infallible>(
                    batch.iter().map(|job| 2 * job.number).collect::<Vec<_>>(),
                )
            }
        })
    };
    let service = ServiceBuilder::new()
        .layer(
            layer(16, millis(1))
                .room(config(32))
                .cost(40, |job: &Job| job.cost),
        )
        .concurrency_limit(2)
        .service(inner);
    let callers = (0..CALLERS).map(|caller| {
        let service = service.clone();
        tokio::spawn(async move {
            let requests = (0..REQUESTS).map(|n| {
                let mut job = job(caller * REQUESTS + n).costs(fastrand::u64(..=12));
                if fastrand::bool() {
                    job = job.urgent();
                }
                let (number, call) = (job.number, service.clone().oneshot(job));
                let limit = match fastrand::u8(..4) {
                    0 => Duration::from_micros(fastrand::u64(..1500)),
                    _ => Duration::from_secs(60),
                };
                tokio::spawn(async move {
                    match tokio::time::timeout(limit, call).await {
                        Ok(answer) => assert_eq!(answer.unwrap(), 2 * number),
                        Err(_) => assert!(limit < Duration::from_secs(1), "lost"),
                    }
                })
            });
            for request in requests.collect::<Vec<_>>() {
                request.await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let mut service = service;
    for _ in 0..32 {
        service.ready().await.unwrap();
        drop(service.clone());
    }
    drop(service);
    while Arc::strong_count(&seen) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.load(SeqCst), 0);
}

/// Counts a running batch, of which there are at most two.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(running: &Arc<AtomicUsize>) -> Self {
        assert!(running.fetch_add(1, SeqCst) < 2, "over the limit");
        Self(Arc::clone(running))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
