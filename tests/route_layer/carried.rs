//! Slots of endpoints that were acquired ahead, and ride in their requests.

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tower_triage::endpoints::{Endpoints, Model, Requirements};
use tower_triage::gate::{Permit, PermitExtension};
use tower_triage::route::RoutingConfig;
use tower_triage::{Discipline, Priority, QueueConfig, Ticket};

use super::support::{TestRouter, endpoint, settle, status, two};

async fn ahead(router: &TestRouter, model: &'static str) -> Permit<Endpoints> {
    let gate = router.handle.gate();
    let demand = gate.capacity().demand(&Requirements::new(model));
    let ticket = Ticket::from(Priority(1)).patient();
    gate.acquire(ticket, demand).await.unwrap()
}

fn asking(model: &str, permit: &PermitExtension<Endpoints>) -> Request<Full<Bytes>> {
    let body = serde_json::json!({ "model": model }).to_string();
    let mut request = Request::new(Full::from(body));
    request.extensions_mut().insert(permit.clone());
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_to_the_endpoint_of_the_slot_that_it_brings_along() {
    let queue = QueueConfig::default().max_size(0);
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let permit = ahead(&router, "m").await;
    let name = permit.lease().endpoint().name().to_owned();
    let permit = permit.into_extension();
    router.ask("m");
    let other = router.call().await;
    assert_ne!(other.endpoint(), name);
    assert_eq!(router.ask("m").await.unwrap().status(), 503);

    let sent = router.send(asking("m", &permit));
    let call = router.call().await;
    assert_eq!((call.endpoint(), call.decision.retries), (&*name, 0));
    assert_eq!(router.handle.status().running, 2);
    assert!(permit.take().is_none());
    call.ok();
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(router.in_flight()[&name], 1, "until the body ends");
    drop(response);
    assert_eq!(router.in_flight()[&name], 0);
    other.ok();
}

/// A slot of `try_acquire` has no tenant until a request brings it along.
#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_slot_without_a_ticket_are_charged_to_the_tenant_of_its_request() {
    let queue = QueueConfig::default().discipline(Discipline::Fair);
    let endpoints = [endpoint("a", 1, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let of_tenant = |mut request: Request<Full<Bytes>>, tenant: &'static str| {
        let tenant = HeaderValue::from_static(tenant);
        request.headers_mut().insert("x-tenant-id", tenant);
        request
    };
    let gate = router.handle.gate();
    let demand = gate.capacity().demand(&Requirements::new("m"));
    let permit = gate.try_acquire(&demand).unwrap().into_extension();
    let first = router.send(of_tenant(asking("m", &permit), "one"));
    let first_call = router.call().await;
    let mut waiters = Vec::new();
    for tenant in ["one", "two"] {
        let body = Full::from(r#"{"model":"m"}"#);
        waiters.push(router.send(of_tenant(Request::new(body), tenant)));
        settle().await;
    }
    let mut answer = Response::new(Full::from(r#"{"usage":{"completion_tokens":500}}"#));
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert("content-type", json);
    first_call.answer(answer);
    first.await.unwrap().into_body().collect().await.unwrap();
    for tenant in ["two", "one"] {
        let call = router.call().await;
        assert_eq!(call.headers["x-tenant-id"], tenant);
        call.ok();
        settle().await;
        drop(
            waiters
                .remove(if tenant == "two" { 1 } else { 0 })
                .await
                .unwrap(),
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_another_model_goes_back() {
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    let permit = ahead(&router, "m").await.into_extension();
    let sent = router.send(asking("n", &permit));
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b");
    assert_eq!(router.in_flight()["a"], 0);
    assert!(permit.take().is_none());
    call.ok();
    assert_eq!(sent.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_slot_goes_back_if_its_endpoint_cannot_serve_the_request() {
    let endpoints = [
        endpoint("a", 1, &[]).model(Model::new("m").context_length(10)),
        endpoint("b", 1, &["m"]),
    ];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    let first = ahead(&router, "m").await;
    assert_eq!(first.lease().endpoint().name(), "a");
    let permit = first.into_extension();
    let prompt = "many words ".repeat(100);
    let body =
        serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": prompt }] });
    let mut request = Request::new(Full::from(body.to_string()));
    request.extensions_mut().insert(permit);
    let sent = router.send(request);
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b");
    assert_eq!(router.in_flight()["a"], 0);
    call.ok();
    assert_eq!(sent.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_an_endpoint_that_left_service_goes_back() {
    let mut router = two();
    let permit = ahead(&router, "m").await;
    let name = permit.lease().endpoint().name().to_owned();
    let permit = permit.into_extension();
    router.handle.set_draining(&router.endpoint(&name), true);
    let sent = router.send(asking("m", &permit));
    let call = router.call().await;
    assert_ne!(call.endpoint(), name);
    assert_eq!(router.in_flight()[&name], 0);
    call.ok();
    assert_eq!(sent.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_gives_the_slot_back_and_is_retried_elsewhere() {
    let mut router = two();
    let permit = ahead(&router, "m").await;
    let name = permit.lease().endpoint().name().to_owned();
    let sent = router.send(asking("m", &permit.into_extension()));
    router.call().await.answer(status(503));
    let again = router.call().await;
    assert_ne!(again.endpoint(), name);
    assert_eq!(again.decision.retries, 1);
    assert_eq!(router.handle.status().running, 1);
    again.ok();
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    settle().await;
    assert_eq!(router.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_another_router_stays_where_it_is() {
    let (mut router, other) = (two(), two());
    drop(ahead(&router, "m").await.into_extension());
    let permit = ahead(&other, "m").await.into_extension();
    let sent = router.send(asking("m", &permit));
    let call = router.call().await;
    assert_eq!(router.handle.status().running, 1);
    assert!(permit.take().is_some());
    call.ok();
    assert_eq!(sent.await.unwrap().status(), 200);
    assert_eq!(other.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_one_model_may_turn_to_another() {
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    router.ask("m");
    let running = router.call().await;
    let gate = router.handle.gate();
    let demand = |model| gate.capacity().demand(&Requirements::new(model));
    let ticket = || Ticket::from(Priority(1)).patient();
    let mut waiting = gate.acquire(ticket(), demand("m"));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert!(waiting.set_ticket(ticket(), demand("n")));
    let permit = waiting.await.unwrap();
    assert_eq!(permit.lease().endpoint().name(), "b");
    running.ok();
}
