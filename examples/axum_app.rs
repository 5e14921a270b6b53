//! An axum app that serves two requests at a time and lets twenty more wait, by priority.
//!
//! ```sh
//! cargo run --example axum_app
//! # in another terminal: ten requests, and an urgent one
//! for i in $(seq 10); do curl -s 127.0.0.1:3000 & done; curl -s -H 'x-priority: high' 127.0.0.1:3000
//! ```

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tower_triage::{QueueConfig, QueueLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let shutdown = CancellationToken::new();
    let config = QueueConfig::new(2)
        .max_size(20)
        .max_wait(Duration::from_secs(30));
    let queue = QueueLayer::new(config).shutdown(shutdown.clone());
    let handle = queue.handle();

    let slow = || async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "done\n"
    };
    let status = move || async move { format!("{:#?}\n", handle.status()) };
    let app = Router::new()
        .route("/", get(slow))
        .layer(queue)
        .route("/status", get(status));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            let _ = tokio::signal::ctrl_c().await;
            shutdown.cancel();
        })
        .await
}
