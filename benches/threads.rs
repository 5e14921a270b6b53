//! The cost of a limit that the threads of a server share: 64 tasks on a multi-threaded runtime.

use std::convert::Infallible;
use std::thread::available_parallelism;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Empty;
use support::{Bench, Handle, LimitToBodyEnd, PrioritySemaphoreLimit, TASKS, crowd};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, service_fn};
use tower_triage::{QueueConfig, QueueLayer};

const LIMIT: &str = "ConcurrencyLimit, permit in its body";
const PRIORITY_SEMAPHORE: &str = "priority-semaphore";

fn compare(title: &str, threads: usize, slots: usize) {
    let inner = service_fn(|_: Request<()>| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new()))
    });
    let none = HeaderMap::new;
    let cloned = Handle::Cloned;
    Bench::new(
        format!("64 tasks on {threads} threads, {slots} slots: {title}"),
        101,
        TASKS as u64 * 100,
    )
    .base(
        "the inner service alone",
        crowd(runtime(threads), cloned, none(), inner),
    )
    .subject(
        LIMIT,
        crowd(
            runtime(threads),
            cloned,
            none(),
            LimitToBodyEnd::new(inner, slots),
        ),
    )
    .subject(
        PRIORITY_SEMAPHORE,
        crowd(
            runtime(threads),
            cloned,
            none(),
            PrioritySemaphoreLimit::new(inner, slots),
        ),
    )
    .subject(
        "QueueLayer, default configuration",
        crowd(
            runtime(threads),
            cloned,
            none(),
            QueueLayer::new(QueueConfig::new(slots)).layer(inner),
        ),
    )
    .against(LIMIT, "≤ 1.0×")
    .against(PRIORITY_SEMAPHORE, "≤ 1.0×")
    .run();
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_time()
        .build()
        .unwrap()
}

fn main() {
    let cores = available_parallelism().map_or(1, usize::from);
    for threads in [2, 4, 8, 16].into_iter().filter(|&n| n <= cores.max(2)) {
        compare("none waits", threads, TASKS);
        compare("most wait", threads, 4);
    }
}
