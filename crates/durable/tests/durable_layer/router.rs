//! Stored requests behind a router: a queue for each model, and slots of its endpoints.

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use tower::util::MapRequestLayer;
use tower::{Layer, ServiceExt};
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::RouteBody;
use tower_triage::{RouteHandle, RouteLayer};
use tower_triage_durable::{
    NewRequest, RequestId, RequestStatus, Store, StoreConfig, Worker, encode_request,
};

use super::support::{Backend, a_while, store, until};

struct Routed {
    backend: Backend,
    store: std::sync::Arc<dyn Store>,
    router: RouteHandle,
}

impl Routed {
    /// A worker over one endpoint of one slot for each model.
    fn new(models: &[&str]) -> Self {
        let (backend, store) = (Backend::new(), store(StoreConfig::default()));
        let endpoint = |model: &&str| {
            let url = http::Uri::from_static("http://127.0.0.1:9");
            let endpoint = Endpoint::new(format!("of-{model}"), url);
            endpoint.max_concurrent(1).model(Model::new(*model))
        };
        let registry = Registry::new(models.iter().map(endpoint).collect()).unwrap();
        let layer = RouteLayer::builder(registry).build();
        let router = layer.handle();
        // The backend reads whole bodies.
        let whole = MapRequestLayer::new(|request: http::Request<RouteBody<Full<Bytes>>>| {
            request.map(|_| Full::from("{}"))
        });
        let service = layer.layer(whole.layer(backend.service()));
        let service =
            service.map_response(|response: Response<_>| response.map(BodyExt::boxed_unsync));
        let worker = Worker::new(store.clone(), service).slots(router.gate().clone());
        tokio::spawn(worker.run());
        Self {
            backend,
            store,
            router,
        }
    }

    async fn store(&self, model: &str, name: &str) -> RequestId {
        let request = http::Request::post("/v1/completions").header("x-name", name);
        let body = Bytes::from(format!(r#"{{"model": "{model}"}}"#));
        let request = encode_request(&request.body(body).unwrap());
        let id = RequestId::random().unwrap();
        let mut new = NewRequest::new(id, request);
        model.clone_into(&mut new.queue);
        self.store.enqueue(new).await.unwrap();
        id
    }

    async fn status(&self, id: RequestId) -> RequestStatus {
        self.store.get(id).await.unwrap().unwrap().status
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_model_holds_up_no_other() {
    let routed = Routed::new(&["m", "n"]);
    routed.store("m", "m-1").await;
    let waits = routed.store("m", "m-2").await;
    until("one runs", || routed.backend.running() == 1).await;
    routed.store("n", "n-1").await;
    until("both endpoints are busy", || routed.backend.running() == 2).await;
    a_while().await;
    assert_eq!(routed.status(waits).await, RequestStatus::Queued);
    routed.backend.finish(3);
    until("all are served", || routed.backend.started().len() == 3).await;
    assert_eq!(routed.backend.started(), ["m-1", "n-1", "m-2"]);
    until("all slots are free", || routed.router.status().running == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_healthy_endpoint() {
    let routed = Routed::new(&["m"]);
    let endpoint = &routed.router.endpoints()[0];
    routed.router.set_healthy(endpoint, false);
    let id = routed.store("m", "a").await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(routed.status(id).await, RequestStatus::Queued);
    routed.router.set_healthy(endpoint, true);
    until("it runs", || routed.backend.running() == 1).await;
}
