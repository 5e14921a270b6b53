//! `QueueLayer` among Tower's own layers and above services with moods of their own.
#![cfg(not(loom))]

mod backpressure;
mod errors;
mod grpc;
mod inner_not_ready;
mod inner_service;
mod order;
mod panics;
mod plain;
mod shutdown;
mod stacks;
mod streams;
mod turns;
#[path = "../support/queue_ward.rs"]
mod ward;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::advance;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::queue::{BoxedError, Overflow, Plain, Queue, Streaming};
use tower_triage::rejection::Rejection;
use tower_triage::{
    Priority, QueueConfig, QueueError, QueueHandle, QueueLayer, RejectReason, Ticket,
};
use ward::{Answer, ByHand, Moody, Patient, Sent, Ward, normal, send, settle, triage, urgent};

type Triage = Plain<fn(&Patient, Instant) -> Ticket>;

fn layer(config: QueueConfig) -> QueueLayer<Triage> {
    let triage: fn(&Patient, Instant) -> Ticket = triage;
    QueueLayer::plain(config).classify(triage)
}

fn queue<S: Clone>(config: QueueConfig, inner: S) -> (Queue<S, Triage>, QueueHandle) {
    let layer = layer(config);
    (layer.layer(inner), layer.handle())
}

fn limited(ward: &Ward, limit: usize) -> ConcurrencyLimit<Ward> {
    ConcurrencyLimit::new(ward.clone(), limit)
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
struct Both(Moody, Ward);

impl Service<Patient> for Both {
    type Response = &'static str;
    type Error = &'static str;
    type Future = <Ward as Service<Patient>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, patient: Patient) -> Self::Future {
        drop(self.0.call(patient));
        self.1.call(patient)
    }
}

/// Panics in `call` when it is asked to.
fn explosive()
-> impl Service<Patient, Response = &'static str, Error = &'static str, Future: Send> + Clone + Send
{
    service_fn(|patient: Patient| {
        assert!(patient.name != "boom", "the inner service panics");
        std::future::ready(Ok(patient.name))
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
