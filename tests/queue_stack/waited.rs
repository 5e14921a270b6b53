//! The wait of a request, as its response reports it.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::Notify;
use tower_triage::queue::{QueueResponseBody, QueueTime};

use super::*;

/// The responses to two requests, of which the second one waits for so long.
async fn second_waits(
    config: QueueConfig,
    wait: Duration,
) -> [Response<QueueResponseBody<Full<Bytes>>>; 2] {
    let queue =
        QueueLayer::new(config).layer(service_fn(move |_: Request<Full<Bytes>>| async move {
            tokio::time::sleep(wait).await;
            Ok::<_, Infallible>(Response::<Full<Bytes>>::default())
        }));
    let [first, second] = [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&[]))));
    [
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_response_tells_how_long_its_request_waited() {
    let [first, second] = second_waits(QueueConfig::new(1), secs(1.0)).await;
    assert_eq!(first.body().queue_time(), Duration::ZERO);
    assert!(!first.headers().contains_key("server-timing"));
    assert_eq!(second.body().queue_time().as_secs(), 1);
    let timing = second.headers()["server-timing"].to_str().unwrap();
    assert!(timing.starts_with("queue;dur=100"), "{timing}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_below_a_millisecond_is_not_told() {
    for (micros, is_told) in [(999, false), (1_000, true)] {
        let go_on = Arc::new(Notify::new());
        let service = service_fn({
            let go_on = Arc::clone(&go_on);
            move |_: Request<Full<Bytes>>| {
                let go_on = Arc::clone(&go_on);
                async move {
                    go_on.notified().await;
                    Ok::<_, Infallible>(Response::<Full<Bytes>>::default())
                }
            }
        });
        let queue = QueueLayer::new(QueueConfig::new(1)).layer(service);
        let [first, second] = [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&[]))));
        settle().await;
        advance(Duration::from_micros(micros)).await;
        go_on.notify_one();
        first.await.unwrap().unwrap();
        go_on.notify_one();
        let second = second.await.unwrap().unwrap();
        assert_eq!(second.body().queue_time(), Duration::from_micros(micros));
        assert_eq!(
            second.headers().contains_key("server-timing"),
            is_told,
            "{micros}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_knows_the_reason_and_extensions_are_added_on_request() {
    let config = QueueConfig::new(1).max_wait(secs(0.5));
    let responses = second_waits(config, secs(1.0)).await;
    assert!(
        responses
            .iter()
            .all(|response| response.extensions().is_empty())
    );
    let [served, late] = responses;
    assert_eq!(served.body().reason(), None);
    assert_eq!(
        late.body().reason(),
        Some(&RejectReason::<Infallible>::TimedOut)
    );
    let waited = late.body().queue_time();
    assert_eq!(waited.as_millis() / 10, 50);

    let served = QueueResponseBody::with_extensions(served);
    assert!(served.extensions().is_empty());
    let late = QueueResponseBody::with_extensions(late);
    assert_eq!(late.extensions().get(), Some(&QueueTime(waited)));
    assert_eq!(
        late.extensions().get(),
        Some(&RejectReason::<Infallible>::TimedOut)
    );
}
