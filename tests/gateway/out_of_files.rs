//! Test of a gateway that has run out of file descriptors, which must not make its backends unhealthy.

use http::Response;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::backend::{Backend, BackendRequest};
use crate::process::{Setup, TIMEOUT};

/// A backend that closes the connection after each response.
async fn closing() -> Backend {
    let answer = |arrived: BackendRequest| {
        let response = Response::builder().header("connection", "close");
        arrived.respond(response.body("fine".to_owned()).unwrap());
    };
    Backend::answering(answer).await
}

#[tokio::test]
async fn file_descriptor_exhaustion_makes_no_backend_unhealthy() {
    for checked in [false, true] {
        run_out_of_files(checked).await;
    }
}

async fn run_out_of_files(checked: bool) {
    const FILES: usize = 64;
    let backends = [closing().await, closing().await];
    let interval = if checked { 0.01 } else { 3600.0 };
    let health = format!("interval_seconds = {interval}, unhealthy_after = 1");
    let setup = Setup::new()
        .routing("eject_after = 2\neject_seconds = 600")
        .open_files(FILES)
        .backend_checked("b1", &backends[0].url(), &health)
        .backend_checked("b2", &backends[1].url(), &health);
    let gateway = setup.start().await;
    gateway.ask("m").answer().await.assert_ok("fine");

    let mut idle = Vec::new();
    for _ in 0..FILES {
        idle.push(TcpStream::connect(gateway.addr()).await.unwrap());
    }
    let end = Instant::now() + TIMEOUT;
    let mut failures = 0;
    while failures < 20 {
        assert!(
            Instant::now() < end,
            "the gateway does not run out of files"
        );
        match gateway.ask("m").answer().await.status {
            200 => sleep(std::time::Duration::from_millis(1)).await,
            _ => failures += 1,
        }
    }
    if checked {
        gateway.logs(&["check", "Too many open files"]).await;
    }
    assert_eq!(gateway.state().await.healthy(), [true, true]);
    drop(idle);
    while gateway.ask("m").answer().await.status != 200 {
        assert!(Instant::now() < end, "the gateway does not recover");
        sleep(std::time::Duration::from_millis(1)).await;
    }
}
