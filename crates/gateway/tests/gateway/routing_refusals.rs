//! Tests of backends that are too full for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::Response;
use tokio::time::sleep;

use crate::backend::Backend;
use crate::process::Setup;

/// A backend with so many places. It refuses what comes beyond.
async fn with_places(places: usize, refusal: fn() -> Response<String>) -> Backend {
    let running = Arc::new(AtomicUsize::new(0));
    Backend::answering(move |arrived| {
        if running.fetch_add(1, SeqCst) >= places {
            running.fetch_sub(1, SeqCst);
            return arrived.respond(refusal());
        }
        let running = Arc::clone(&running);
        tokio::spawn(async move {
            sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, SeqCst);
            arrived.answer("ok");
        });
    })
    .await
}

fn refused(code: u16, body: &str) -> Response<String> {
    let response = Response::builder().status(code);
    let response = response.header("content-type", "application/json");
    response.body(body.to_owned()).unwrap()
}

fn later() -> Response<String> {
    let mut response = refused(503, "{}");
    let second = "1".parse().unwrap();
    response.headers_mut().insert("retry-after", second);
    response
}

#[tokio::test]
async fn full_backends_cost_no_client_its_answer() {
    for refusal in [
        later,
        || refused(429, "{}"),
        || refused(529, "{}"),
        || refused(503, r#"{"error":{"code":"overloaded"}}"#),
    ] {
        let backends = [with_places(2, refusal).await, with_places(2, refusal).await];
        let gateway = Setup::new()
            .backend("a", &backends[0], 4, &["m"])
            .backend("b", &backends[1], 4, &["m"])
            .start()
            .await;
        let clients = (0..12).map(|_| async {
            for _ in 0..8 {
                gateway.ask("m").answer().await.assert_ok("ok");
            }
        });
        futures_util::future::join_all(clients).await;
        let state = gateway.state().await;
        assert_eq!(state.healthy(), [true, true]);
        assert_eq!(gateway.logged("out of service"), 0);
        gateway.idle().await;
    }
}
