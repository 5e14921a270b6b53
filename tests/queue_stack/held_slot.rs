//! Slots that go along with the work of a request.

use std::convert::Infallible;

use http_body_util::BodyExt;
use tower_triage::gate::HeldSlot;

use super::*;

type Kept = Arc<Mutex<Option<HeldSlot>>>;

/// Keeps the slot of each request beyond its response.
fn keeper(
    kept: &Kept,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let kept = Arc::clone(kept);
    service_fn(move |request: Request<Full<Bytes>>| {
        *kept.lock().unwrap() = request.extensions().get().cloned();
        async { Ok(Response::new(Full::from("ok"))) }
    })
}

#[tokio::test(start_paused = true)]
async fn work_keeps_its_slot_after_the_response() {
    let kept = Kept::default();
    let layer = QueueLayer::limit(1).held_slot_extension();
    let (queue, handle) = (layer.layer(keeper(&kept)), layer.handle());
    let response = queue.clone().oneshot(request(&[])).await.unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!(handle.status().running, 1);
    let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    drop(kept.lock().unwrap().take());
    drop(waiting.await.unwrap().unwrap());
    assert_eq!(handle.status().running, 1);
    drop(kept.lock().unwrap().take());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_a_request_that_is_dropped() {
    let kept = Kept::default();
    let layer = QueueLayer::limit(1).held_slot_extension();
    let holds = Arc::clone(&kept);
    let endless = service_fn(move |request: Request<Full<Bytes>>| {
        *holds.lock().unwrap() = request.extensions().get().cloned();
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let (queue, handle) = (layer.layer(endless), layer.handle());
    let running = tokio::spawn(queue.oneshot(request(&[])));
    settle().await;
    running.abort();
    settle().await;
    assert_eq!(handle.status().running, 1);
    drop(kept.lock().unwrap().take());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_s_limit_counts_held_slots() {
    let kept = Kept::default();
    let config = QueueConfig::new(2).max_concurrent_per_tenant(1);
    let layer = QueueLayer::new(config).held_slot_extension();
    let (queue, handle) = (layer.layer(keeper(&kept)), layer.handle());
    let tenant = || request(&[("x-tenant-id", "team-a")]);
    let response = queue.clone().oneshot(tenant()).await.unwrap();
    response.into_body().collect().await.unwrap();
    let waiting = tokio::spawn(queue.clone().oneshot(tenant()));
    settle().await;
    assert_eq!((handle.status().running, handle.status().depth), (1, 1));
    drop(kept.lock().unwrap().take());
    drop(waiting.await.unwrap().unwrap());
    drop(kept.lock().unwrap().take());
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_hold_keeps_the_slots_of_all_queues() {
    let kept = Kept::default();
    let [outer, inner] = [2, 1].map(|slots| QueueLayer::limit(slots).held_slot_extension());
    let (inner_handle, handle) = (inner.handle(), outer.handle());
    let service = ServiceBuilder::new().layer(inner).service(keeper(&kept));
    let queue = outer.layer(service);
    let response = queue.oneshot(request(&[])).await.unwrap();
    drop(response);
    assert_eq!(
        (handle.status().running, inner_handle.status().running),
        (1, 1)
    );
    drop(kept.lock().unwrap().take());
    nothing_is_left(&handle);
    nothing_is_left(&inner_handle);
}
