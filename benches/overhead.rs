//! What the layer costs a request that finds a slot free, and one that finds the room full.

mod support;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Empty;
use support::{Subject, compare, now, subject};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_triage::{Discipline, QueueConfig, QueueLayer};

/// Gives the request's headers back, so that they can be used again.
#[derive(Clone)]
struct Echo;

impl Service<Request<Empty<Bytes>>> for Echo {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        let (head, body) = request.into_parts();
        let mut response = Response::new(body);
        *response.headers_mut() = head.headers;
        ready(Ok(response))
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-priority", "high"),
        ("x-tenant-id", "team-a"),
        ("x-request-timeout", "30"),
        ("content-type", "application/json"),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    headers
}

fn request(headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.headers_mut() = headers;
    request
}

fn headers_of<B>(response: Response<B>) -> HeaderMap {
    let mut headers = black_box(response).into_parts().0.headers;
    if headers.len() > 4 {
        headers.remove("server-timing");
    }
    headers
}

fn kept<'a, S, B>(name: &'a str, mut service: S) -> Subject<'a>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = Infallible> + 'a,
{
    let mut spare = headers();
    subject(name, move |n| {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..n {
            assert!(service.poll_ready(&mut cx).is_ready());
            let response = now(service.call(request(std::mem::take(&mut spare)))).unwrap();
            spare = headers_of(response);
        }
    })
}

fn oneshot<'a, S, B>(name: &'a str, service: S) -> Subject<'a>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = Infallible> + Clone + 'a,
{
    let mut spare = headers();
    subject(name, move |n| {
        for _ in 0..n {
            let request = request(std::mem::take(&mut spare));
            let response = now(service.clone().oneshot(request)).unwrap();
            spare = headers_of(response);
        }
    })
}

fn config() -> QueueConfig {
    QueueConfig::new(64)
        .max_wait(Duration::from_secs(30))
        .discipline(Discipline::Fair)
}

fn main() {
    let limit = || ConcurrencyLimitLayer::new(64).layer(Echo);
    let quiet = || QueueLayer::new(config().server_timing(false)).layer(Echo);
    let timed = || QueueLayer::new(config()).layer(Echo);
    let goal = "≤ 0.75× without server-timing";
    compare(
        "A slot is free, kept handle",
        goal,
        &mut [
            kept("inner service alone", Echo),
            kept("tower ConcurrencyLimit", limit()),
            kept("QueueLayer", quiet()),
            kept("QueueLayer, server-timing on", timed()),
        ],
        201,
        2_000,
    );
    compare(
        "A slot is free, clone + oneshot",
        goal,
        &mut [
            oneshot("inner service alone", Echo),
            oneshot("tower ConcurrencyLimit", limit()),
            oneshot("QueueLayer", quiet()),
            oneshot("QueueLayer, server-timing on", timed()),
        ],
        201,
        2_000,
    );
    against_buffer();
    rejection();
}

/// `Buffer` needs its worker task to run, so both sides run in a runtime.
fn against_buffer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let buffered = {
        let _guard = runtime.enter();
        tower::buffer::Buffer::new(ConcurrencyLimitLayer::new(64).layer(Echo), 128)
    };
    let in_runtime = |n: u64, call: &mut dyn FnMut() -> _| {
        runtime.block_on(async {
            for _ in 0..n {
                let future: std::pin::Pin<Box<dyn Future<Output = ()>>> = call();
                future.await;
            }
        });
    };
    let queue = QueueLayer::new(config()).layer(Echo);
    compare(
        "A slot is free, in a runtime",
        "far below Buffer + ConcurrencyLimit",
        &mut [
            subject("inner service alone", |n| {
                in_runtime(n, &mut || {
                    Box::pin(async { drop(Echo.oneshot(request(headers())).await) })
                })
            }),
            subject("tower Buffer + ConcurrencyLimit", |n| {
                in_runtime(n, &mut || {
                    let service = buffered.clone();
                    Box::pin(async { drop(service.oneshot(request(headers())).await) })
                })
            }),
            subject("QueueLayer", |n| {
                in_runtime(n, &mut || {
                    let service = queue.clone();
                    Box::pin(async { drop(service.oneshot(request(headers())).await) })
                })
            }),
        ],
        101,
        500,
    );
}

/// A full room against an idle echo service, both behind the same layer.
fn rejection() {
    let config = QueueConfig::new(1).max_size(1);
    let idle = QueueLayer::new(config.clone()).layer(Echo);
    let layer = QueueLayer::new(config);
    let busy = layer.layer(tower::service_fn(|_: Request<Empty<Bytes>>| {
        std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
    }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let mut cx = Context::from_waker(Waker::noop());
    let mut running = Box::pin(busy.clone().oneshot(request(HeaderMap::new())));
    assert!(running.as_mut().poll(&mut cx).is_pending());
    let mut waiting = Box::pin(busy.clone().oneshot(request(HeaderMap::new())));
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    assert_eq!(layer.handle().status().depth, 1);
    let one = |service: &mut dyn FnMut(Request<Empty<Bytes>>) -> u16, n: u64| {
        for _ in 0..n {
            black_box(service(request(headers())));
        }
    };
    compare(
        "The room is full: a rejection against an answer",
        "≤ 1.0×",
        &mut [
            subject("making the request", |n| {
                one(&mut |request| request.headers().len() as u16, n)
            }),
            subject("answer of an idle echo service", |n| {
                one(
                    &mut |request| {
                        now(idle.clone().oneshot(request))
                            .unwrap()
                            .status()
                            .as_u16()
                    },
                    n,
                )
            }),
            subject("rejection", |n| {
                one(
                    &mut |request| {
                        now(busy.clone().oneshot(request))
                            .unwrap()
                            .status()
                            .as_u16()
                    },
                    n,
                )
            }),
        ],
        201,
        1_000,
    );
}
