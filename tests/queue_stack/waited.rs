//! What the response to a request says of its wait.

use std::convert::Infallible;

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
    let yields = service_fn(|_: Request<Full<Bytes>>| async {
        tokio::task::yield_now().await; // takes no time on this clock
        Ok::<_, Infallible>(Response::<Full<Bytes>>::default())
    });
    let queue = QueueLayer::new(QueueConfig::new(1)).layer(yields);
    for sent in [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&[])))) {
        let response = sent.await.unwrap().unwrap();
        assert!(response.headers().is_empty() && response.extensions().is_empty());
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
        Some(&RejectReason::<std::convert::Infallible>::TimedOut)
    );
    let waited = late.body().queue_time();
    assert_eq!(waited.as_millis() / 10, 50);

    let served = QueueResponseBody::with_extensions(served);
    assert!(served.extensions().is_empty());
    let late = QueueResponseBody::with_extensions(late);
    assert_eq!(late.extensions().get(), Some(&QueueTime(waited)));
    assert_eq!(
        late.extensions().get(),
        Some(&RejectReason::<std::convert::Infallible>::TimedOut)
    );
}
