//! The cost of a request under contention: 64 tasks share 4 slots, so that nearly every request waits.

use std::convert::Infallible;
use std::fmt::Debug;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Empty;
use support::{Bench, PrioritySemaphoreLimit};
use tokio::runtime::{Builder, Runtime};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueLayer};

const TASKS: usize = 64;
const SLOTS: usize = 4;
const LIMIT: &str = "ConcurrencyLimit, no priorities";
const PRIORITY_SEMAPHORE: &str = "priority-semaphore";

/// How the tasks use the service.
#[derive(Clone, Copy)]
enum Handle {
    /// Each task has one of its own.
    Kept,
    /// A clone for each request, as axum and tonic make it.
    Cloned,
}

/// Half of the tasks have the higher priority.
fn request(task: usize) -> Request<()> {
    let priority = ["high", "normal"][task % 2];
    let mut request = Request::new(());
    let headers = request.headers_mut();
    headers.insert("x-priority", HeaderValue::from_static(priority));
    request
}

async fn task<S>(handle: Handle, task: usize, mut service: S, calls: u64)
where
    S: Service<Request<()>> + Clone,
    S::Error: Debug,
{
    for _ in 0..calls {
        let request = request(task);
        // The response is dropped, and with it what it holds.
        let _ = match handle {
            Handle::Kept => service.ready().await.unwrap().call(request).await.unwrap(),
            Handle::Cloned => service.clone().oneshot(request).await.unwrap(),
        };
    }
}

/// Runs requests of all tasks at a time, on one thread.
fn crowd<S>(handle: Handle, service: S) -> impl FnMut(u64)
where
    S: Service<Request<()>> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
    S::Error: Debug,
{
    let runtime: Runtime = Builder::new_current_thread().enable_time().build().unwrap();
    move |n| {
        runtime.block_on(async {
            let calls = n / TASKS as u64;
            let tasks = (0..TASKS).map(|nth| task(handle, nth, service.clone(), calls));
            let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

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
        let queue = |config| crowd(handle, QueueLayer::new(config).layer(inner));
        Bench::new(
            format!("64 tasks on 4 slots: {title}"),
            401,
            TASKS as u64 * 10,
        )
        .base("the inner service alone", crowd(handle, inner))
        .subject(
            LIMIT,
            crowd(handle, ConcurrencyLimitLayer::new(SLOTS).layer(inner)),
        )
        .subject(
            PRIORITY_SEMAPHORE,
            crowd(handle, PrioritySemaphoreLimit::new(inner, SLOTS)),
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
