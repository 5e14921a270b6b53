//! 64 tasks on 4 slots: nearly every request waits.

mod support;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use support::median;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueLayer};

const TASKS: u64 = 64;
const SLOTS: usize = 4;

/// The time of one request, in nanoseconds, of `TASKS` tasks that call as fast as they are answered.
fn pass<S>(runtime: &tokio::runtime::Runtime, service: &S, calls: u64) -> f64
where
    S: Service<http::Request<()>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug,
{
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let mut service = service.clone();
                tokio::spawn(async move {
                    for _ in 0..calls {
                        let mut request = http::Request::new(());
                        *request.method_mut() = match task % 2 {
                            0 => http::Method::GET,
                            _ => http::Method::PUT,
                        };
                        let service = service.ready().await.unwrap();
                        drop(service.call(request).await.unwrap());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    start.elapsed().as_nanos() as f64 / (TASKS * calls) as f64
}

fn main() {
    let inner = || {
        service_fn(|_: http::Request<()>| async {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(http::Response::new(
                http_body_util::Empty::<bytes::Bytes>::new(),
            ))
        })
    };
    let priority = |request: &http::Request<()>, arrival: Instant| {
        let priority = u8::from(request.method() == http::Method::PUT);
        tower_triage::Ticket::new(tower_triage::Priority(priority), arrival)
    };
    let config = QueueConfig::new(SLOTS)
        .max_wait(Duration::from_secs(30))
        .max_size(1_000);
    println!("\n64 tasks on 4 slots, max_wait on, two priorities  (goal: ≤ 0.9× ConcurrencyLimit)");
    for threads in [1, 2] {
        let runtime = match threads {
            1 => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build(),
            _ => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build(),
        }
        .unwrap();
        let limit = ConcurrencyLimitLayer::new(SLOTS).layer(inner());
        let queue = QueueLayer::new(config.clone().server_timing(false))
            .classify(priority)
            .layer(inner());
        let bare = inner();
        let (mut base, mut theirs, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..61 {
            base.push(pass(&runtime, &bare, 100));
            theirs.push(pass(&runtime, &limit, 100));
            ours.push(pass(&runtime, &queue, 100));
        }
        let base = median(base);
        let (theirs, ours) = (median(theirs) - base, median(ours) - base);
        println!("  {threads} thread(s): inner alone {base:.0} ns");
        println!("    tower ConcurrencyLimit {theirs:>8.0} ns   1.00×");
        println!(
            "    QueueLayer             {ours:>8.0} ns   {:.2}×",
            ours / theirs
        );
    }
}
