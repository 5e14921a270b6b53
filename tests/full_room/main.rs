//! The rejections of a full waiting room.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::admit::ReservedSlots;
use tower_triage::rejection::RetryAfter;
use tower_triage::{Discipline, QueueConfig, QueueHandle, QueueLayer};

type Body = Empty<Bytes>;
type Answer = Pin<Box<dyn Future<Output = (u16, Response<Bytes>)>>>;

/// One slot and one place, both taken; a request that is served ends when `go` has a permit for it.
struct FullRoom {
    send: Box<dyn FnMut(Request<Body>) -> Answer>,
    handle: QueueHandle,
    go: Arc<Semaphore>,
    running: Answer,
    waiting: Answer,
}

impl FullRoom {
    fn full(config: QueueConfig) -> Self {
        Self::of(QueueLayer::new(config))
    }

    fn of(layer: QueueLayer) -> Self {
        let go = Arc::new(Semaphore::new(0));
        let handle = layer.handle();
        let service = layer.layer(service_fn({
            let go = go.clone();
            move |_: Request<Body>| {
                let go = go.clone();
                async move {
                    go.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            }
        }));
        let mut send: Box<dyn FnMut(Request<Body>) -> Answer> = Box::new(move |request| {
            let mut service = service.clone();
            assert!(
                service
                    .poll_ready(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
            );
            let answer = service.call(request);
            Box::pin(async move {
                let (head, body) = answer.await.unwrap().into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                (head.status.as_u16(), Response::from_parts(head, bytes))
            })
        });
        let (mut running, mut waiting) = (send(request()), send(request()));
        assert!(poll(&mut running).is_pending());
        assert!(poll(&mut waiting).is_pending());
        Self {
            send,
            handle,
            go,
            running,
            waiting,
        }
    }

    fn send(&mut self, request: Request<Body>) -> Poll<(u16, Response<Bytes>)> {
        poll(&mut (self.send)(request))
    }
}

fn poll(answer: &mut Answer) -> Poll<(u16, Response<Bytes>)> {
    answer
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn request() -> Request<Body> {
    Request::new(Empty::new())
}

fn with(name: &'static str, value: &'static str) -> Request<Body> {
    let mut request = request();
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn config() -> QueueConfig {
    QueueConfig::new(1)
        .max_size(1)
        .retry_after(RetryAfter::estimate().jitter(0.0))
}

#[tokio::test]
async fn a_full_room_rejects_at_once_and_counts() {
    let mut room = FullRoom::full(config());
    for rejected in 1..=3 {
        let Poll::Ready((status, response)) = room.send(request()) else {
            panic!("a full room answers at once");
        };
        assert_eq!(status, 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert!(!response.headers().contains_key("server-timing"));
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(response.body().ends_with(br#""code":"queue_full"}}"#));
        assert_eq!(room.handle.status().stats.full, rejected);
        assert_eq!(room.handle.status().depth, 1);
    }
}

#[tokio::test]
async fn grpc_requests_get_grpc_rejections() {
    let mut room = FullRoom::full(config().server_timing(false));
    let Poll::Ready((status, response)) = room.send(with("content-type", "application/grpc"))
    else {
        panic!("a full room answers at once");
    };
    assert_eq!(status, 200);
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1000");
    assert!(!response.headers().contains_key("server-timing"));
}

#[tokio::test]
async fn a_cancelled_waiters_place_is_free_at_once() {
    let mut room = FullRoom::full(config());
    assert!(room.send(request()).is_ready());
    room.waiting = Box::pin(std::future::pending());
    room.waiting = (room.send)(request());
    assert!(poll(&mut room.waiting).is_pending());
    assert!(room.send(request()).is_ready());
}

#[tokio::test]
async fn a_served_waiter_leaves_its_place_to_the_next() {
    let mut room = FullRoom::full(config());
    room.go.add_permits(1);
    assert!(poll(&mut room.running).is_ready());
    assert!(poll(&mut room.waiting).is_pending());
    let mut next = (room.send)(request());
    assert!(poll(&mut next).is_pending());
    assert_eq!(room.handle.status().depth, 1);
}

#[test]
fn an_expired_wait_takes_no_place_even_without_a_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let mut room = FullRoom::full(config().max_wait(Duration::from_millis(20)));
    assert!(room.send(request()).is_ready());
    std::thread::sleep(Duration::from_millis(30));
    let mut next = (room.send)(request());
    assert!(poll(&mut next).is_pending());
    assert_eq!(room.handle.status().stats.timed_out, 1);
}

#[tokio::test]
async fn a_closed_room_says_that_it_is_closed() {
    let mut room = FullRoom::full(config());
    room.handle.close();
    let Poll::Ready((_, response)) = room.send(request()) else {
        panic!("a closed room answers at once");
    };
    assert!(response.body().ends_with(br#""code":"shutting_down"}}"#));
    assert_eq!(room.handle.status().stats.full, 0);
}

#[tokio::test]
async fn a_higher_priority_displaces() {
    let mut room = FullRoom::full(config().displace(true));
    let mut urgent = (room.send)(with("x-priority", "high"));
    assert!(poll(&mut urgent).is_pending());
    assert!(poll(&mut room.waiting).is_ready());
    assert_eq!(room.handle.status().stats.displaced, 1);
}

#[tokio::test]
async fn a_tenant_below_its_share_displaces_the_greedy_one() {
    let fair = config().discipline(Discipline::Fair).max_size(2);
    let mut room = FullRoom::full(fair);
    let mut second = (room.send)(request());
    assert!(poll(&mut second).is_pending());
    assert!(room.send(request()).is_ready());
    let mut modest = (room.send)(with("x-tenant-id", "modest"));
    assert!(poll(&mut modest).is_pending());
    let Poll::Ready((status, response)) = poll(&mut second) else {
        panic!("a displaced waiter is answered");
    };
    assert_eq!(status, 503);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(response.body().ends_with(br#""code":"displaced"}}"#));
    // Both tenants have their shares now.
    for tenant in ["", "modest"] {
        assert!(room.send(with("x-tenant-id", tenant)).is_ready());
    }
    assert_eq!(room.handle.status().stats.full, 3);
}

#[tokio::test]
async fn a_larger_max_size_holds_at_once() {
    let mut room = FullRoom::full(config());
    assert!(room.send(request()).is_ready());
    room.handle.reconfigure(config().max_size(2)).unwrap();
    let mut next = (room.send)(request());
    assert!(poll(&mut next).is_pending());
    assert!(room.send(request()).is_ready());
}

#[tokio::test]
async fn on_reject_writes_the_rejection() {
    let layer = QueueLayer::new(config()).on_reject(|rejection, request| {
        assert_eq!(request.headers()["x-name"], "me");
        Response::new(rejection.code().to_owned())
    });
    let mut room = FullRoom::of(layer);
    let Poll::Ready((_, response)) = room.send(with("x-name", "me")) else {
        panic!("a full room answers at once");
    };
    assert_eq!(response.body(), "queue_full");
    assert_eq!(room.handle.status().stats.full, 1);
}

#[tokio::test]
async fn a_plain_queue_gives_an_error() {
    let layer = QueueLayer::plain(config());
    let handle = layer.handle();
    let service = layer.layer(service_fn(|()| {
        std::future::pending::<Result<(), Infallible>>()
    }));
    let mut cx = Context::from_waker(Waker::noop());
    let mut inside = [0, 1].map(|_| Box::pin(service.clone().oneshot(())));
    for one in &mut inside {
        assert!(one.as_mut().poll(&mut cx).is_pending());
    }
    let error = service.clone().oneshot(()).await.unwrap_err();
    assert!(error.to_string().contains("full"));
    assert_eq!(handle.status().stats.full, 1);
}

#[tokio::test]
async fn a_higher_level_displaces_the_waiter_and_its_equals_do_not() {
    let mut room = FullRoom::full(config());
    assert!(room.send(request()).is_ready());
    let mut high = (room.send)(with("x-priority", "high"));
    assert!(poll(&mut high).is_pending());
    let Poll::Ready((status, _)) = poll(&mut room.waiting) else {
        panic!("a displaced waiter is answered");
    };
    assert_eq!((status, room.handle.status().stats.displaced), (503, 1));
    // Now the room is full for high ones, too.
    for priority in ["high", "normal"] {
        assert!(room.send(with("x-priority", priority)).is_ready());
    }
    assert_eq!(room.handle.status().stats.full, 3);
    assert_eq!(room.handle.status().depth, 1);
}

#[tokio::test]
async fn a_full_room_gives_a_kept_slot_to_its_level() {
    let config = QueueConfig::new(2).max_size(1).displace(false);
    let mut room = FullRoom::full(config.reserve("high", ReservedSlots::Slots(1)));
    assert!(room.send(request()).is_ready());
    let mut high = (room.send)(with("x-priority", "high"));
    assert!(poll(&mut high).is_pending());
    assert_eq!(
        (room.handle.status().running, room.handle.status().depth),
        (2, 1)
    );
}
