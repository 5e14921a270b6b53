//! Tasks that share few slots, so that nearly every request waits.

use std::fmt::Debug;

use http::{HeaderMap, HeaderValue, Request};
use tokio::runtime::Runtime;
use tower::{Service, ServiceExt};

use super::Handle;

/// The number of tasks.
pub const TASKS: usize = 64;

/// Returns a request with these headers. Half of the tasks have the higher priority.
fn request(task: usize, headers: &HeaderMap) -> Request<()> {
    let priority = ["high", "normal"][task % 2];
    let mut request = Request::new(());
    *request.headers_mut() = headers.clone();
    let headers = request.headers_mut();
    headers.insert("x-priority", HeaderValue::from_static(priority));
    request
}

async fn task<S>(handle: Handle, task: usize, mut service: S, headers: HeaderMap, calls: u64)
where
    S: Service<Request<()>> + Clone,
    S::Error: Debug,
{
    for _ in 0..calls {
        let request = request(task, &headers);
        // The response is dropped, and with it what it holds.
        let _ = match handle {
            Handle::Kept => service.ready().await.unwrap().call(request).await.unwrap(),
            Handle::Cloned => service.clone().oneshot(request).await.unwrap(),
        };
    }
}

/// Runs requests of all tasks at a time on a runtime. `headers`: those of each request, beside its priority.
///
/// # Panics
///
/// If a request fails.
pub fn crowd<S>(runtime: Runtime, handle: Handle, headers: HeaderMap, service: S) -> impl FnMut(u64)
where
    S: Service<Request<()>> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
    S::Error: Debug,
{
    move |n| {
        runtime.block_on(async {
            let calls = n / TASKS as u64;
            let tasks =
                (0..TASKS).map(|nth| task(handle, nth, service.clone(), headers.clone(), calls));
            let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}
