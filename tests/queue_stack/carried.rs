//! Slots that were acquired ahead, and ride in their requests.

use std::convert::Infallible;

use http_body_util::BodyExt;
use tower_triage::gate::{Gate, PermitExtension};
use tower_triage::{SlotPool, admit::AdaptiveLimit};

use super::adaptive::aimd;
use super::*;

type Http = Request<Full<Bytes>>;

/// Answers at once, with a body, and says how many permits it found.
fn finder() -> impl Service<Http, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(|request: Http| async move {
        let carried = request.extensions().get::<PermitExtension<SlotPool>>();
        let permit = carried.and_then(PermitExtension::take);
        Ok(Response::new(Full::from(format!("{}", permit.is_some()))))
    })
}

fn ahead(gate: &Gate<SlotPool>) -> PermitExtension<SlotPool> {
    gate.try_acquire(&())
        .expect("a slot is free")
        .into_extension()
}

fn with(permit: &PermitExtension<SlotPool>) -> Http {
    let mut request = request(&[]);
    request.extensions_mut().insert(permit.clone());
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_uses_the_slot_that_it_brings_along() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0));
    let (queue, handle) = (layer.layer(finder()), layer.handle());
    let gate = handle.gate().unwrap();
    let permit = ahead(gate);
    let refused = queue.clone().oneshot(request(&[])).await.unwrap();
    assert_eq!(refused.status(), 503);
    let served = handle.status().served;
    let response = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(response.status(), 200);
    // It is the same slot, held until the body ends, and nothing said that it waited.
    assert_eq!(
        (handle.status().running, handle.status().served),
        (1, served)
    );
    assert!(!response.headers().contains_key("server-timing"));
    assert!(permit.take().is_none());
    assert_eq!(text(response).await, "false", "the layer has taken it");
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_slot_passes_those_that_wait() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(1));
    let (queue, handle) = (layer.layer(finder()), layer.handle());
    let permit = ahead(handle.gate().unwrap());
    let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    handle.close();
    let response = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 503);
    drop(response);
    handle.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_not_taken_goes_back_with_the_last_clone() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let handle = layer.handle();
    let gate = handle.gate().unwrap();
    let permit = ahead(gate);
    let unsent = with(&permit);
    let waiting = tokio::spawn(gate.acquire(Priority::HIGHEST, ()));
    settle().await;
    drop(permit);
    assert!(!is_done(&waiting).await);
    drop(unsent);
    assert!(waiting.await.unwrap().is_ok());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_request_bring_one_slot() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0));
    let (queue, handle) = (layer.layer(finder()), layer.handle());
    let permit = ahead(handle.gate().unwrap());
    let first = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(first.status(), 200);
    let second = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(second.status(), 503);
    drop(first);
    let third = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(third.status(), 200, "a slot of its own");
    drop(third);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_another_gate_stays_for_its_layer() {
    let [outer, inner] = [1, 1].map(|slots| QueueLayer::new(QueueConfig::new(slots).max_size(0)));
    let queue = outer.layer(inner.layer(finder()));
    let (outer, inner) = (outer.handle(), inner.handle());
    // So both look for permits.
    drop(ahead(outer.gate().unwrap()));
    let permit = ahead(inner.gate().unwrap());
    let response = queue.clone().oneshot(with(&permit)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!((outer.status().running, inner.status().running), (1, 1));
    assert_eq!(text(response).await, "false");
    let foreign = Gate::new(SlotPool::new(1), Default::default());
    let response = queue.oneshot(with(&ahead(&foreign))).await.unwrap();
    assert_eq!(text(response).await, "true", "no layer has taken it");
    assert_eq!(foreign.status().running, 0);
    nothing_is_left(&outer);
    nothing_is_left(&inner);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_inner_service_gives_the_slot_back() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let explosive = service_fn(|_: Http| async {
        panic!("the inner service panics");
        #[expect(unreachable_code, reason = "says what it would return")]
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let (queue, handle) = (layer.layer(explosive), layer.handle());
    let permit = ahead(handle.gate().unwrap());
    let sent = tokio::spawn(queue.oneshot(with(&permit)));
    assert!(sent.await.unwrap_err().is_panic());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_gives_the_slot_back() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let slow = service_fn(|_: Http| async {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let (queue, handle) = (layer.layer(slow), layer.handle());
    let permit = ahead(handle.gate().unwrap());
    let sent = tokio::spawn(queue.oneshot(with(&permit)));
    assert!(!is_done(&sent).await);
    assert_eq!(handle.status().running, 1);
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_carried_slot_teaches_a_limit_that_adapts() {
    let layer = QueueLayer::new(aimd(20));
    let busy = service_fn(|_: Http| async {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    let (queue, handle) = (layer.layer(busy), layer.handle());
    let permit = ahead(handle.gate().unwrap());
    let response = queue.oneshot(with(&permit)).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(handle.status().limit, 18);
    drop(response);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_carried_slot_waits_for_the_inner_service() {
    let layer = QueueLayer::new(QueueConfig::new(2).max_wait(secs(1.0)));
    let slots = Arc::new(tokio::sync::Semaphore::new(0));
    let finish = Arc::clone(&slots);
    let slow = service_fn(move |_: Http| {
        let slots = Arc::clone(&slots);
        async move {
            slots.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let queue = layer.layer(ConcurrencyLimit::new(slow, 1));
    let handle = layer.handle();
    let first = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    let permit = ahead(handle.gate().unwrap());
    let second = tokio::spawn(queue.clone().oneshot(with(&permit)));
    assert!(!is_done(&second).await);
    finish.add_permits(2);
    let first = first.await.unwrap().unwrap();
    drop(first.into_body().collect().await);
    assert_eq!(second.await.unwrap().unwrap().status(), 200);
    nothing_is_left(&handle);
}

#[test]
fn a_gate_whose_slots_come_from_the_inner_service_is_not_shown() {
    assert!(
        QueueLayer::new(QueueConfig::inner())
            .handle()
            .gate()
            .is_none()
    );
    let adaptive = QueueConfig::adaptive(AdaptiveLimit::default());
    assert!(QueueLayer::new(adaptive).handle().gate().is_some());
}
