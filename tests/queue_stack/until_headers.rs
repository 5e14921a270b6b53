//! Slots that are free as soon as the response's head is there.

use std::convert::Infallible;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_slot_is_free_while_the_body_is_read() {
    let layer = QueueLayer::until_headers(QueueConfig::new(1));
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::from("large")))
    }));
    let first: Response<Full<Bytes>> = service.clone().oneshot(request(&[])).await.unwrap();
    nothing_is_left(&layer.handle());
    let second = service.oneshot(request(&[])).await.unwrap();
    assert_eq!(text(first).await, text(second).await);
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_held_until_the_head_is_there() {
    let layer = QueueLayer::until_headers(QueueConfig::new(1).max_size(1).max_wait(secs(2.0)));
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        tokio::time::sleep(secs(1.0)).await;
        Ok::<_, Infallible>(Response::new(Full::from("served")))
    }));
    let send = || tokio::spawn(service.clone().oneshot(request(&[])));
    let (served, waits) = (send(), send());
    settle().await;
    let rejected = send().await.unwrap().unwrap();
    assert_eq!(rejected.status(), 503);
    assert_eq!(
        rejected.extensions().get(),
        Some(&RejectReason::<Infallible>::Full)
    );
    assert_eq!(rejected.headers()["content-type"], "application/json");
    assert!(text(rejected).await.contains("queue_full"));
    assert!(
        !served
            .await
            .unwrap()
            .unwrap()
            .headers()
            .contains_key("server-timing")
    );
    let waited = waits.await.unwrap().unwrap();
    let timing = waited.headers()["server-timing"].to_str().unwrap();
    assert!(timing.starts_with("queue;dur=100"), "{timing}");
    assert_eq!(text(waited).await, "served");
    nothing_is_left(&layer.handle());
}
