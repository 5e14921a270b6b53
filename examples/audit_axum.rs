use axum::{Router, extract::Request, routing::get};
use bytes::Bytes;
use std::time::{Duration, Instant};
use tower_triage::{Levels, Priority, QueueConfig, QueueLayer, Rejection, Ticket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = QueueLayer::new(QueueConfig::new(1).max_size(1).fair())
        .classify(|request: &Request, arrival: Instant| {
            let paid = request.headers().get("x-plan").is_some_and(|v| v == "paid");
            let who = request
                .headers()
                .get("authorization")
                .map(|v| Bytes::copy_from_slice(v.as_bytes()));
            let t = Ticket::new(if paid { Priority::HIGHEST } else { Priority(1) }, arrival)
                .timeout(Duration::from_secs(3))
                .cost(2);
            match who {
                Some(w) => t.tenant(w.into()),
                None => t.tenant("anon".into()),
            }
        })
        .on_reject(|why: &Rejection, _headers| {
            let mut r = http::Response::new(Bytes::from(format!("sorry: {}\n", why.message())));
            *r.status_mut() = why.status();
            if let Some(after) = why.retry_after() {
                r.headers_mut()
                    .insert("retry-after", after.as_secs().into());
            }
            r
        });
    let handle = queue.handle();
    let app = Router::new()
        .route(
            "/",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "ok"
            }),
        )
        .layer(queue);
    let l = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let a = l.local_addr()?;
    tokio::spawn(async move { axum::serve(l, app).await });
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..4 {
        set.spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut s = tokio::net::TcpStream::connect(a).await.unwrap();
            s.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .await
                .unwrap();
            let mut o = String::new();
            s.read_to_string(&mut o).await.unwrap();
            o
        });
    }
    while let Some(o) = set.join_next().await {
        println!("{}\n---", o?);
    }
    println!("{:#?}", handle.status());
    let _ = Levels::default();
    Ok(())
}
