//! `DurableLayer` with `Prefer: wait`, a store, and a `Worker` with 64 slots.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueLayer};
use tower_triage_durable::{DurableLayer, Store, Worker};

use crate::{CLIENTS, Subject};

/// Returns a subject with a front on one store and a worker on another, or on the same one. Two stores are to Redis as two
/// processes.
pub(crate) fn subject(
    name: &'static str,
    front: Arc<dyn Store>,
    worker: Arc<dyn Store>,
) -> Subject {
    let echo = service_fn(async |request: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let queue = QueueLayer::new(QueueConfig::new(CLIENTS));
    let gate = queue.handle().gate().expect("its own").clone();
    let worker = Worker::new(worker, queue.layer(echo));
    tokio::spawn(worker.slots(gate).run());
    let front = DurableLayer::new(front).layer(echo);
    Subject::new(name, move |body| {
        let front = front.clone();
        async move {
            let request = Request::post("/")
                .header("prefer", "wait=60")
                .body(Full::new(body.clone()))
                .unwrap();
            let response = front.oneshot(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let answer = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(answer, body);
        }
    })
}
