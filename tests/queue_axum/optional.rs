//! A queue that the configuration may leave out.

use axum::body::Body;
use axum::extract::Request;
use axum::routing::Route;
use tower::util::option_layer;
use tower::{Layer, Service};

use super::*;

/// Serves an app whose queue is there or not.
async fn serve_optional(jobs: &Jobs, config: Option<QueueConfig>) -> SocketAddr {
    let queue = config.map(|config| QueueLayer::new(config).map_response_body(Body::new));
    serve(router(jobs).layer(option_layer(queue))).await
}

/// The same with a stack of layers.
async fn serve_stack(jobs: &Jobs, config: Option<QueueConfig>) -> SocketAddr {
    let queue = config.map(|config| {
        QueueLayer::new(config)
            .status_stream()
            .map_response_body(Body::new)
    });
    let stack = ServiceBuilder::new().option_layer(queue);
    serve(router(jobs).layer(stack)).await
}

async fn two_run(jobs: &Jobs, addr: SocketAddr) {
    let both = [get(addr, "/").spawn(), get(addr, "/").spawn()];
    until("both run", || jobs.running() == 2).await;
    jobs.finish(2);
    for reply in both {
        assert_eq!(reply.await.unwrap().text().await, "served");
    }
}

async fn one_runs(jobs: &Jobs, addr: SocketAddr) {
    let running = get(addr, "/").spawn();
    until("it runs", || jobs.running() == 1).await;
    assert_eq!(get(addr, "/").send().await.code().await, "queue_disabled");
    jobs.finish(1);
    assert_eq!(running.await.unwrap().text().await, "served");
}

#[tokio::test]
async fn an_app_runs_with_and_without_its_queue() {
    let enabled = || Some(QueueConfig::new(1).max_size(0));
    let jobs = Jobs::new();
    one_runs(&jobs, serve_optional(&jobs, enabled()).await).await;
    two_run(&jobs, serve_optional(&jobs, None).await).await;
    one_runs(&jobs, serve_stack(&jobs, enabled()).await).await;
    two_run(&jobs, serve_stack(&jobs, None).await).await;
}

#[tokio::test]
async fn a_mapped_body_holds_its_slot_to_its_end() {
    let (parts, body) = mpsc::unbounded_channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let handler = || async move { stream(body.lock().unwrap().take().unwrap()) };
    let queue = QueueLayer::new(QueueConfig::new(1)).map_response_body(Body::new);
    let handle = queue.handle();
    let addr = serve(Router::new().route("/", on_get(handler)).layer(queue)).await;
    let mut reply = get(addr, "/").send().await;
    parts.send("part").unwrap();
    assert_eq!(reply.next().await.unwrap(), "part");
    assert_eq!(handle.status().running, 1);
    drop(parts);
    assert_eq!(reply.next().await, None);
    until("the slot is free", || handle.status().running == 0).await;
}

#[tokio::test]
async fn the_map_reads_the_reason_and_the_wait() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = Arc::clone(&seen);
    let map = move |body: QueueResponseBody<Body>| {
        let reason = body.reason().cloned();
        look.lock()
            .unwrap()
            .push((reason, body.queue_time() >= ms(50)));
        Body::new(body)
    };
    let config = QueueConfig::new(0).max_size(1).max_wait(ms(50));
    let queue = QueueLayer::new(config).map_response_body(map);
    let addr = serve(router(&Jobs::new()).layer(queue)).await;
    assert_eq!(get(addr, "/").send().await.code().await, "queue_timeout");
    assert_eq!(
        *seen.lock().unwrap(),
        [(Some(RejectReason::TimedOut), true)]
    );
}

/// Takes only layers that keep a route's type of response.
fn keeps_the_type<L>(_: &L)
where
    L: Layer<Route>,
    L::Service: Service<Request, Response = Response<Body>, Error = std::convert::Infallible>,
{
}

#[test]
fn a_mapped_response_has_the_type_of_the_inner_one() {
    let constructor: fn(QueueResponseBody<Body>) -> Body = Body::new;
    let queue = QueueLayer::new(QueueConfig::new(1)).map_response_body(constructor);
    keeps_the_type(&queue);
    keeps_the_type(&option_layer(Some(queue)));
    keeps_the_type(&QueueLayer::limit(1).map_response_body(Body::new));
}
