//! Requests that would wait for too long, and those that cannot be answered in time, through the HTTP layer.

use std::convert::Infallible;

use tower_triage::queue::{Classify, Http, QueueTime};

use super::*;

type Answered = Result<Response<tower_triage::queue::QueueResponseBody<Full<Bytes>>>, Infallible>;

/// A service of one slot that takes a second for each request.
fn slow<K>(
    layer: QueueLayer<Http<K>>,
) -> (
    impl Fn(Option<u32>) -> tokio::task::JoinHandle<Answered>,
    QueueHandle,
)
where
    K: Classify<Request<Full<Bytes>>> + Clone + Send + 'static,
{
    let handle = layer.handle();
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    let send = move |timeout: Option<u32>| {
        let request = Request::builder();
        let request = match timeout {
            Some(seconds) => request.header("x-request-timeout", seconds),
            None => request,
        };
        let request = request.body(Full::default()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    (send, handle)
}

async fn seconds(n: u64) {
    settle().await;
    for _ in 0..n {
        advance(Duration::from_secs(1)).await;
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_for_too_long_is_told_at_once() {
    let (send, handle) = slow(QueueLayer::new(QueueConfig::new(1)));
    let mut sent: Vec<_> = (0..12).map(|_| send(None)).collect();
    // Five have had a slot, one after the other: now it is known how long that takes.
    seconds(5).await;
    assert_eq!(handle.status().depth, 6);
    // Six are before it, so it would be answered after eight seconds.
    let lasting = send(Some(20));
    let hasty = send(Some(4));
    settle().await;
    assert!(hasty.is_finished() && !lasting.is_finished());
    let hasty = hasty.await.unwrap().unwrap();
    assert_eq!(hasty.status(), 503);
    let reason = hasty.body().reason();
    assert!(
        matches!(reason, Some(RejectReason::Overloaded { .. })),
        "{reason:?}"
    );
    let retry_after = hasty.headers()["retry-after"].to_str().unwrap();
    assert!(
        (3..=10).contains(&retry_after.parse().unwrap()),
        "{retry_after}"
    );
    assert_eq!(handle.status().stats.overloaded, 1);
    seconds(10).await;
    sent.push(lasting);
    for request in sent {
        assert_eq!(request.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_answered_in_time_gets_no_slot() {
    let (send, handle) = slow(QueueLayer::new(
        QueueConfig::new(1).target_wait(TargetWait::Off),
    ));
    let warm_up: Vec<_> = (0..25).map(|_| send(None)).collect();
    seconds(24).await;
    // One runs, and ends in a second: half a second is left then.
    advance(Duration::from_millis(500)).await;
    let hopeless = send(Some(1));
    let next = send(None);
    seconds(1).await;
    let hopeless = hopeless.await.unwrap().unwrap();
    assert_eq!(hopeless.status(), 504);
    let reason = hopeless.body().reason();
    assert_eq!(reason, Some(&RejectReason::DeadlinePassed));
    assert_eq!(handle.status().running, 1);
    seconds(1).await;
    assert_eq!(next.await.unwrap().unwrap().status(), 200);
    for request in warm_up {
        assert_eq!(request.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_alone_refuses_none_though_callers_hang_up() {
    let (send, handle) = slow(QueueLayer::limit(1));
    for _ in 0..20 {
        let sent: Vec<_> = (0..5).map(|_| send(None)).collect();
        seconds(2).await;
        sent.iter().for_each(|request| request.abort());
    }
    let sent: Vec<_> = (0..30).map(|_| send(None)).collect();
    seconds(31).await;
    for request in sent {
        assert_eq!(request.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(handle.status().stats.rejected(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_room_rejects_no_request_that_has_a_kept_slot() {
    let config = QueueConfig::new(2).max_size(1).displace(false);
    let reserve = tower_triage::admit::ReservedSlots::Slots(1);
    let layer = QueueLayer::new(config.reserve("high", reserve));
    let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    let send = |level: &'static str| {
        tokio::spawn(service.clone().oneshot(request(&[("x-priority", level)])))
    };
    let _low = [send("low"), send("low")];
    settle().await;
    let status = layer.handle().status();
    assert_eq!((status.running, status.depth), (1, 1));
    let high = send("high").await.unwrap().unwrap();
    assert_eq!(high.status(), 200);
}

/// A service that takes a second, and answers with how long its request had waited, in milliseconds.
async fn tell_wait<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let QueueTime(waited) = request.extensions().get().expect("a wait");
    let waited = waited.as_millis().to_string();
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(Response::builder()
        .header("x-waited", waited)
        .body(Full::default())
        .unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_how_long_its_request_waited() {
    let queue = QueueLayer::new(QueueConfig::new(1)).queue_time_extension();
    let service = queue.layer(service_fn(tell_wait));
    let requests = [(); 3].map(|()| {
        let request = Request::new(Full::<Bytes>::default());
        tokio::spawn(service.clone().oneshot(request))
    });
    for (request, waited) in requests.into_iter().zip(["0", "1000", "2000"]) {
        let response = request.await.unwrap().unwrap();
        assert_eq!(response.headers()["x-waited"], waited);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_keeps_the_deadline_of_the_headers() {
    let layer = QueueLayer::new(QueueConfig::new(1).target_wait(TargetWait::Off));
    let (send, _) = slow(layer.classify(|request, context| {
        let mut ticket = context.ticket_from_headers(request.headers());
        ticket.priority = Priority::HIGHEST;
        ticket
    }));
    let _running = [send(None), send(None), send(None)];
    settle().await;
    let hasty = send(Some(2));
    seconds(2).await;
    assert_eq!(hasty.await.unwrap().unwrap().status(), 504);
}
