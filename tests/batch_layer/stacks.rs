//! Tests of `BatchLayer` with Tower's layers, axum, and the bounds that users expect of a service.

use super::*;
use std::convert::Infallible;
use tower::{BoxError, Service as _, ServiceBuilder};
use tower_triage::queue::BoxedError;
use tower_triage::queue::FromHeaders;
use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};

type Lengths = Result<Vec<usize>, Infallible>;

async fn lengths(texts: Vec<String>) -> Lengths {
    Ok(texts.iter().map(String::len).collect())
}

fn is_shared<T: Clone + Send + Sync + 'static>(_: &T) {}

fn is_sent<T: Send + 'static>(value: T) -> T {
    value
}

#[tokio::test(start_paused = true)]
async fn closures_need_only_the_request_type() {
    let service = ServiceBuilder::new()
        .layer(
            BatchLayer::new(8, millis(5))
                .classify(|_, context| Ticket::new(Priority::HIGHEST, context.arrival()))
                .cost(1000, |text: &String| text.len() as u64),
        )
        .service_fn(lengths);
    is_shared(&service);
    let answer = is_sent(service.oneshot("hello".to_owned()));
    assert_eq!(answer.await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_batch_service_can_be_boxed_and_buffered() {
    let service = BatchLayer::new(2, millis(5)).layer(service_fn(lengths));
    let boxed = service.clone().boxed_clone();
    let buffered = tower::buffer::Buffer::new(service.clone().boxed(), 8);
    let one = tokio::spawn(boxed.oneshot("one".to_owned()));
    let three = tokio::spawn(buffered.oneshot("three".to_owned()));
    assert_eq!(one.await.unwrap().unwrap(), 3);
    assert_eq!(three.await.unwrap().unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn works_under_a_timeout_and_a_queue_layer() {
    let engine = Engine::manual();
    let queue = QueueLayer::plain(QueueConfig::new(2));
    let handle = queue.handle();
    let service = ServiceBuilder::new()
        .timeout(millis(100))
        .layer(queue)
        .layer(layer(8, millis(5)))
        .map_err(|error: &'static str| BoxedError(error.into()))
        .service(engine.service());
    let sent: Vec<_> = (0..3)
        .map(|n| tokio::spawn(service.clone().oneshot(job(n))))
        .collect();
    settle().await;
    assert_eq!((handle.status().running, handle.status().depth), (2, 1));
    advance(millis(5)).await;
    settle().await;
    engine.finish();
    let mut answers = Vec::new();
    for sent in sent {
        answers.push(
            sent.await
                .unwrap()
                .map_err(|error: BoxError| error.to_string()),
        );
    }
    assert_eq!(answers[..2], [Ok(0), Ok(2)]);
    assert_eq!(answers[2], Err("request timed out".to_owned()));
    assert_eq!((engine.running(), handle.status().running), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn works_over_a_concurrency_limit() {
    let engine = Engine::manual();
    let service = ServiceBuilder::new()
        .layer(layer(2, millis(5)))
        .concurrency_limit(2)
        .service(engine.service());
    let sent: Vec<_> = (0..6)
        .map(|n| tokio::spawn(service.clone().oneshot(job(n))))
        .collect();
    settle().await;
    assert_eq!(engine.batches(), [[0, 1], [2, 3]]);
    engine.finish();
    settle().await;
    assert_eq!(engine.batches().last().unwrap(), &[4, 5]);
    engine.finish();
    engine.finish();
    for (number, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap().unwrap(), 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn works_over_a_rate_limit() {
    let engine = Engine::new();
    let service = ServiceBuilder::new()
        .layer(layer(2, millis(5)))
        .rate_limit(1, Duration::from_secs(1))
        .service(engine.service());
    let sent: Vec<_> = (0..5)
        .map(|n| tokio::spawn(service.clone().oneshot(job(n))))
        .collect();
    for (number, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap().unwrap(), 2 * number);
    }
    let expected = [(0, vec![0, 1]), (1000, vec![2, 3]), (2000, vec![4])];
    assert_eq!(engine.calls(), expected);
}

#[tokio::test(start_paused = true)]
async fn works_over_a_buffer() {
    let engine = Engine::new();
    let service = ServiceBuilder::new()
        .layer(layer(2, millis(5)))
        .buffer(1)
        .service(engine.service());
    let sent: Vec<_> = (0..5)
        .map(|n| tokio::spawn(service.clone().oneshot(job(n))))
        .collect();
    for (number, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap().unwrap(), 2 * number);
    }
    assert_eq!(engine.batches(), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[tokio::test(start_paused = true)]
async fn an_inner_timeout_fails_the_whole_batch() {
    let engine = Engine::manual();
    let service = ServiceBuilder::new()
        .layer(layer(2, millis(5)))
        .map_err(BoxedError)
        .timeout(millis(100))
        .service(engine.service());
    let both = [0, 1].map(|n| tokio::spawn(service.clone().oneshot(job(n))));
    for sent in both {
        let error = sent.await.unwrap().unwrap_err();
        assert!(matches!(&error, BatchError::Inner(_)), "{error:?}");
        let error: BoxError = error.into();
        assert_eq!(error.to_string(), "request timed out");
        let inner = error.source().expect("the error of the batch");
        let inner = inner.source().expect("the one in the box");
        assert!(inner.is::<tower::timeout::error::Elapsed>());
    }
    assert_eq!(engine.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn http_requests_are_ordered_by_their_header() {
    let order = service_fn(|batch: Vec<http::Request<&'static str>>| async move {
        let bodies = batch.iter().map(|request| *request.body());
        let order = bodies.collect::<Vec<_>>().join(" ");
        Ok::<_, Infallible>(vec![order; batch.len()])
    });
    let service = BatchLayer::new(3, millis(5))
        .classify_with(FromHeaders)
        .layer(order);
    let request = |body, level| {
        let request = http::Request::builder().header("x-priority", level);
        request.body(body).unwrap()
    };
    let requests = [("a", "normal"), ("b", "high"), ("c", "unheard of")];
    let sent = requests.map(|(body, level)| {
        let request = request(body, level);
        tokio::spawn(service.clone().oneshot(request))
    });
    for sent in sent {
        assert_eq!(sent.await.unwrap().unwrap(), "b a c");
    }
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_nothing() {
    let (one, other) = (Engine::new(), Engine::new());
    let layer = layer(2, millis(5));
    let services = [&one, &other].map(|engine| layer.clone().layer(engine.service()));
    let sent = [0, 1].map(|n| tokio::spawn(services[n as usize].clone().oneshot(job(n))));
    for (number, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap().unwrap(), 2 * number);
    }
    assert_eq!(
        (one.calls(), other.calls()),
        (vec![(5, vec![0])], vec![(5, vec![1])])
    );
}

#[tokio::test(start_paused = true)]
async fn works_in_the_state_of_an_axum_router() {
    type Texts = tower_triage::batch::Batch<String, usize, Infallible, Infallible>;

    async fn length(
        axum::extract::State(mut texts): axum::extract::State<Texts>,
        text: String,
    ) -> Result<String, String> {
        let texts = texts.ready().await.map_err(|error| error.to_string())?;
        let answer = texts.call(text).await.map_err(|error| error.to_string())?;
        Ok(answer.to_string())
    }

    let texts: Texts = BatchLayer::new(2, millis(5)).layer(service_fn(lengths));
    let router: axum::Router = axum::Router::new()
        .route("/", axum::routing::post(length))
        .with_state(texts);
    let request = http::Request::post("/").body("hello".to_owned()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 8).await.unwrap();
    assert_eq!(body, "5");
}
