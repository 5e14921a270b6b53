//! The subjects, and the rows of the table.

use std::convert::Infallible;
use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{Empty, Full};
use tokio::sync::mpsc;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::admit::TargetWait;
use tower_triage::batch::RequestQueue;
use tower_triage::queue::{Observer, RequestEnd, RequestHead};
use tower_triage::{Priority, QueueConfig, QueueLayer, WaitingRoomConfig};

use crate::report::Row;
use crate::support::{
    Echo, Handle, LimitToBodyEnd, PrioritySemaphoreLimit, SmallBody, calls, client_headers, crowd,
    now, request,
};

const LIMIT: &str = "ConcurrencyLimit";
const LIMIT_TO_BODY_END: &str = "ConcurrencyLimit with its permit in the body";

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, subject, base, peers| Row {
        name,
        subject,
        base,
        peers,
    };
    vec![
        row(
            "free slot, a kept handle",
            "kept/queue",
            Some("kept/inner"),
            &[(LIMIT_TO_BODY_END, "kept/to-body-end")],
        ),
        row(
            "free slot, clone + oneshot",
            "cloned/queue",
            Some("cloned/inner"),
            &[(LIMIT_TO_BODY_END, "cloned/to-body-end")],
        ),
        row(
            "free slot, a kept handle, an observer that counts",
            "kept/observed",
            Some("kept/inner"),
            &[],
        ),
        row(
            "free slot, a kept handle, hold = \"headers\"",
            "kept/headers",
            Some("kept/small"),
            &[(LIMIT, "kept/to-headers")],
        ),
        row(
            "free slot, clone + oneshot, hold = \"headers\"",
            "cloned/headers",
            Some("cloned/small"),
            &[(LIMIT, "cloned/to-headers")],
        ),
        row(
            "64 tasks on 4 slots, kept handles",
            "kept-crowd/queue",
            Some("kept-crowd/inner"),
            &[
                (LIMIT, "kept-crowd/limit"),
                ("priority-semaphore", "kept-crowd/priority-semaphore"),
            ],
        ),
        row(
            "64 tasks on 4 slots, clone + oneshot",
            "crowd/queue",
            Some("crowd/inner"),
            &[
                (LIMIT, "crowd/limit"),
                ("priority-semaphore", "crowd/priority-semaphore"),
            ],
        ),
        row(
            "the same with 14 ordinary headers",
            "crowd-14/queue",
            Some("crowd-14/inner"),
            &[],
        ),
        row(
            "rejection, the room is full",
            "rejection/full",
            Some("rejection/request"),
            &[("an answer through the layer", "rejection/idle")],
        ),
        row(
            "rejection, requests are shed",
            "rejection/shed",
            Some("rejection/request"),
            &[],
        ),
        row(
            "RequestQueue, in and out, 100 wait",
            "in-out/queue",
            Some("in-out/none"),
            &[("mpsc", "in-out/mpsc")],
        ),
        row(
            "the same without max_wait and target_wait",
            "in-out/smallest",
            Some("in-out/none"),
            &[],
        ),
    ]
}

/// Runs `n` requests of a subject.
pub(crate) fn run(subject: &str, n: u64) {
    let (group, way) = subject.split_once('/').expect("a group and a way");
    match group {
        "kept" => free_slot(Handle::Kept, way)(n),
        "cloned" => free_slot(Handle::Cloned, way)(n),
        "kept-crowd" => crowded(Handle::Kept, HeaderMap::new(), way)(n),
        "crowd" => crowded(Handle::Cloned, HeaderMap::new(), way)(n),
        "crowd-14" => crowded(Handle::Cloned, ordinary_headers(), way)(n),
        "rejection" => rejection(way, n),
        "in-out" => in_and_out(way, n),
        _ => panic!("there is no subject {subject}"),
    }
}

type Run = Box<dyn FnMut(u64)>;

fn free_slot(handle: Handle, way: &str) -> Run {
    const SLOTS: usize = 64;
    let config = QueueConfig::new(SLOTS);
    match way {
        "inner" => Box::new(calls::<_, Empty<Bytes>, _>(handle, Echo)),
        "to-body-end" => {
            let service = LimitToBodyEnd::new(Echo, SLOTS);
            Box::new(calls::<_, Empty<Bytes>, _>(handle, service))
        }
        "queue" => {
            let service = QueueLayer::new(config).layer(Echo);
            Box::new(calls::<_, Empty<Bytes>, _>(handle, service))
        }
        "observed" => {
            let service = QueueLayer::new(config)
                .observe(Count(Arc::default()))
                .layer(Echo);
            Box::new(calls::<_, Empty<Bytes>, _>(handle, service))
        }
        // The body has to be one that a rejection may have, too.
        "small" => Box::new(calls::<_, SmallBody, _>(handle, Echo)),
        "to-headers" => {
            let service = ConcurrencyLimitLayer::new(SLOTS).layer(Echo);
            Box::new(calls::<_, SmallBody, _>(handle, service))
        }
        "headers" => {
            let service = QueueLayer::until_headers(config).layer(Echo);
            Box::new(calls::<_, SmallBody, _>(handle, service))
        }
        _ => panic!("there is no way {way}"),
    }
}

/// An observer that counts the requests that end well.
#[derive(Clone)]
struct Count(Arc<AtomicU64>);

impl Observer for Count {
    type Request = ();

    fn on_arrived(&self, _: &RequestHead<'_>) {}

    fn on_finished(&self, _: &mut (), _: RequestEnd, _: Duration) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The time by which each request of a crowd moves the clock. So 60 waiters wait for 60 ms.
const SERVICE_TIME: Duration = Duration::from_millis(1);

fn crowded(handle: Handle, headers: HeaderMap, way: &str) -> Run {
    const SLOTS: usize = 4;
    let inner = service_fn(|_: Request<()>| async {
        tokio::time::advance(SERVICE_TIME).await; // lets the other tasks run, too
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    match way {
        "inner" => Box::new(crowd(runtime(), handle, headers, inner)),
        "limit" => Box::new(crowd(
            runtime(),
            handle,
            headers,
            ConcurrencyLimitLayer::new(SLOTS).layer(inner),
        )),
        "priority-semaphore" => Box::new(crowd(
            runtime(),
            handle,
            headers,
            PrioritySemaphoreLimit::new(inner, SLOTS),
        )),
        "queue" => {
            let layer = QueueLayer::new(QueueConfig::new(SLOTS));
            let queue = layer.handle();
            let mut serve = crowd(runtime(), handle, headers, layer.layer(inner));
            Box::new(move |n| {
                serve(n);
                assert_eq!(queue.status().served, n, "none is rejected");
            })
        }
        _ => panic!("there is no way {way}"),
    }
}

/// Headers that a client of an HTTP API sends, and no layer here reads.
fn ordinary_headers() -> HeaderMap {
    let names = [
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "accept-language",
        "authorization",
        "content-type",
        "content-length",
        "connection",
        "cache-control",
        "cookie",
        "origin",
        "referer",
        "x-request-id",
    ];
    let headers = names.map(|name| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static("an ordinary value"),
        )
    });
    HeaderMap::from_iter(headers)
}

fn rejection(way: &str, n: u64) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let handler = service_fn(|_: Request<Empty<Bytes>>| async {
        let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        Ok::<_, Infallible>(response)
    });
    let layer = match way {
        "shed" => QueueLayer::shed(1),
        _ => QueueLayer::new(QueueConfig::new(1).max_size(1)),
    };
    let forever = layer.layer(service_fn(|_: Request<Empty<Bytes>>| {
        pending::<Result<Response<Full<Bytes>>, Infallible>>()
    }));
    // The only slot and the only place are taken, by requests as urgent as those that are rejected.
    let (inside, status) = match way {
        "full" => (2, 503),
        "shed" => (1, 503),
        _ => (0, 200),
    };
    let mut waiting = Vec::new();
    for _ in 0..inside {
        let mut request = Box::pin(forever.clone().oneshot(request(client_headers())));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut cx).is_pending());
        waiting.push(request);
    }
    let (service, headers) = (layer.layer(handler), client_headers());
    for _ in 0..n {
        let request = black_box(request(headers.clone()));
        if way != "request" {
            let Ok(response) = now(service.clone().oneshot(request));
            assert_eq!(response.status().as_u16(), status);
            drop(black_box(response));
        }
    }
}

/// An item as large as a request's head, the channel of its answer and the handle of its body.
type Item = [u64; 32];

fn in_and_out(way: &str, n: u64) {
    const WAITING: u64 = 100;
    let runtime = runtime();
    let mut random = fastrand::Rng::with_seed(7);
    let mut items = (0..).map(|i| ([i; 32], Priority(random.u8(..2))));
    let mut next = || black_box(items.next().expect("they never end"));
    runtime.block_on(async {
        if way == "none" {
            return (0..n).for_each(|_| _ = next());
        }
        if way == "mpsc" {
            let (sender, mut receiver) = mpsc::channel::<Item>(2 * WAITING as usize);
            for i in 0..WAITING + n {
                sender.send(next().0).await.expect("it is open");
                if i >= WAITING {
                    black_box(receiver.recv().await);
                }
            }
            return;
        }
        let mut config = WaitingRoomConfig::default().max_size(2 * WAITING as usize);
        if way == "smallest" {
            config = config.max_wait(None).target_wait(TargetWait::Off);
        }
        let queue = RequestQueue::new(config);
        for i in 0..WAITING + n {
            let (item, priority) = next();
            assert!(queue.enqueue(item, priority).is_ok(), "there is a place");
            if i >= WAITING {
                black_box(queue.dequeue().await);
            }
        }
    });
}

/// Returns a runtime whose clock stands still.
fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}
