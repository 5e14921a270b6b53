//! The cost of a request under contention: 64 tasks share 4 slots, so that nearly every request waits.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Empty;
use support::{Bench, Handle, PrioritySemaphoreLimit, TASKS, crowd};
use tokio::runtime::{Builder, Runtime};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, service_fn};
use tower_triage::{QueueConfig, QueueLayer};

const SLOTS: usize = 4;
const LIMIT: &str = "ConcurrencyLimit, no priorities";
const PRIORITY_SEMAPHORE: &str = "priority-semaphore";

fn main() {
    let inner = service_fn(|_: Request<()>| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new()))
    });
    let config = || QueueConfig::new(SLOTS);
    for (title, handle, goal) in [
        ("kept handles", Handle::Kept, "≤ 1.2×"),
        ("clone + oneshot", Handle::Cloned, "≤ 1.0×"),
    ] {
        let none = HeaderMap::new;
        let queue = |config| {
            crowd(
                runtime(),
                handle,
                none(),
                QueueLayer::new(config).layer(inner),
            )
        };
        Bench::new(
            format!("64 tasks on 4 slots: {title}"),
            401,
            TASKS as u64 * 10,
        )
        .base(
            "the inner service alone",
            crowd(runtime(), handle, none(), inner),
        )
        .subject(
            LIMIT,
            crowd(
                runtime(),
                handle,
                none(),
                ConcurrencyLimitLayer::new(SLOTS).layer(inner),
            ),
        )
        .subject(
            PRIORITY_SEMAPHORE,
            crowd(
                runtime(),
                handle,
                none(),
                PrioritySemaphoreLimit::new(inner, SLOTS),
            ),
        )
        .against(LIMIT, "")
        .subject("QueueLayer, default configuration", queue(config()))
        .against(LIMIT, goal)
        .against(PRIORITY_SEMAPHORE, goal)
        .subject(
            "QueueLayer, no server-timing",
            queue(config().server_timing(false)),
        )
        .against(LIMIT, goal)
        .against(PRIORITY_SEMAPHORE, goal)
        .run();
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}
