//! `QueueLayer` among Tower's own layers and above services that are ready or not as a test wants.
#![cfg(not(loom))]

mod adaptive;
mod backpressure;
mod carried;
mod errors;
mod exempt;
mod fair;
mod grpc;
mod held_slot;
mod hold_limits;
mod inner_not_ready;
mod inner_ready;
mod inner_service;
mod levels;
mod limit_of_zero;
mod local;
mod observer;
mod order;
mod overload;
mod panics;
mod per_key;
mod per_service;
mod plain;
#[path = "../support/queue_service.rs"]
mod service;
mod shed;
mod shutdown;
mod stacks;
mod status;
mod streams;
mod until_headers;
mod waited;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use service::{
    Answer, ByHand, Flaky, Job, Sent, TestService, normal, send, settle, triage, urgent,
};
use tokio::time::advance;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::admit::{ReservedSlots, TargetWait};
use tower_triage::queue::{BoxedError, ClassifyContext, Overflow, Plain, Queue, Streaming};
use tower_triage::rejection::Rejection;
use tower_triage::{
    Priority, QueueConfig, QueueError, QueueHandle, QueueLayer, RejectReason, Ticket,
};

type Triage = Plain<fn(&Job, &ClassifyContext<'_>) -> Ticket>;

fn layer(config: QueueConfig) -> QueueLayer<Triage> {
    let triage: fn(&Job, &ClassifyContext<'_>) -> Ticket =
        |job, context| triage(job, context.arrival());
    QueueLayer::plain(config).classify(triage)
}

fn queue<S: Clone>(config: QueueConfig, inner: S) -> (Queue<S, Triage>, QueueHandle) {
    let layer = layer(config);
    (layer.layer(inner), layer.handle())
}

fn limited(inner: &TestService, limit: usize) -> ConcurrencyLimit<TestService> {
    ConcurrencyLimit::new(inner.clone(), limit)
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

async fn is_done<T>(sent: &tokio::task::JoinHandle<T>) -> bool {
    settle().await;
    sent.is_finished()
}

fn nothing_is_left(handle: &QueueHandle) {
    let status = handle.status();
    assert_eq!((status.depth, status.running), (0, 0), "{status:?}");
}

/// Ready when the first is, serves with the second.
#[derive(Clone)]
struct Both(Flaky, TestService);

impl Service<Job> for Both {
    type Response = &'static str;
    type Error = &'static str;
    type Future = <TestService as Service<Job>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, job: Job) -> Self::Future {
        drop(self.0.call(job));
        self.1.call(job)
    }
}

/// Panics in `call` when it is asked to.
fn explosive()
-> impl Service<Job, Response = &'static str, Error = &'static str, Future: Send> + Clone + Send {
    service_fn(|job: Job| {
        assert!(job.name != "boom", "the inner service panics");
        std::future::ready(Ok(job.name))
    })
}

fn request(headers: &[(&'static str, &'static str)]) -> Request<Full<Bytes>> {
    let mut request = Request::default();
    for (name, value) in headers {
        let value = http::HeaderValue::from_static(value);
        request.headers_mut().insert(*name, value);
    }
    request
}

async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    use http_body_util::BodyExt;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}
