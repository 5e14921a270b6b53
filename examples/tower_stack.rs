//! Priorities in front of a rate limit, for a service that is not HTTP.
//!
//! With `QueueConfig::inner()` the rate limit says when a request may go, and the queue which one.
//!
//! ```sh
//! cargo run --example tower_stack
//! ```

use std::time::{Duration, Instant};

use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};

#[derive(Debug)]
struct Job {
    name: String,
    urgent: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = QueueLayer::plain(QueueConfig::inner()).classify(|job: &Job, context| {
        Ticket::new(Priority(u8::from(!job.urgent)), context.arrival())
    });
    let service = ServiceBuilder::new()
        .layer(queue.share_inner()?)
        .rate_limit(2, Duration::from_secs(1))
        .service(service_fn(|job: Job| async move {
            Ok::<_, std::convert::Infallible>(job.name)
        }));

    let start = Instant::now();
    let mut jobs = tokio::task::JoinSet::new();
    for (name, urgent) in (1..=6).map(|n| (format!("job {n}"), n > 4)) {
        let mut service = service.clone();
        jobs.spawn(async move {
            let name = service.ready().await?.call(Job { name, urgent }).await?;
            println!("{:>4} ms  {name}", start.elapsed().as_millis());
            Ok::<_, tower_triage::QueueError<_>>(())
        });
    }
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    Ok(())
}
