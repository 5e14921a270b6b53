//! Tests of the limit of file descriptors: clients leave some for backends and operators, and a gateway that has run out of
//! them does not make its backends unhealthy.

use std::process::Command;

use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, BackendRequest};
use crate::process::{ConfigFile, Setup, TIMEOUT, binary};

/// The most files that the gateway may have open.
const FILES: usize = 64;

const SECTIONS: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n[server]\nworkers = 2";

/// A backend that closes the connection after each response.
async fn closing() -> Backend {
    let answer = |arrived: BackendRequest| {
        let response = Response::builder().header("connection", "close");
        arrived.respond(response.body("fine".to_owned()).unwrap());
    };
    Backend::answering(answer).await
}

/// Sends a request over a connection that stays open. Returns `true` if it is served.
async fn is_served(client: &mut TcpStream) -> bool {
    let request = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = async {
        while !answer.ends_with(b"0\r\n\r\n") && !answer.ends_with(b"}}") {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
        }
    };
    let read = timeout(TIMEOUT, read).await;
    read.unwrap_or_else(|_| panic!("no whole answer: {}", String::from_utf8_lossy(&answer)));
    answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test]
async fn idle_clients_leave_descriptors_for_backends_and_the_admin_address() {
    let backend = closing().await;
    let setup = Setup::new()
        .top(SECTIONS)
        .open_files(FILES)
        .backend("gpu-1", &backend, 4, &["m"]);
    let gateway = setup.start().await;
    let words = ["serves 16 connections", "10000", "may open 64 files"];
    gateway.logs(&words).await;
    let mut first = TcpStream::connect(gateway.addr()).await.unwrap();
    assert!(is_served(&mut first).await);

    let mut idle = Vec::new();
    for _ in 0..FILES + 16 {
        idle.push(TcpStream::connect(gateway.addr()).await.unwrap());
    }
    for _ in 0..20 {
        assert!(is_served(&mut first).await);
        assert_eq!(gateway.state().await.healthy(), [true]); // asks the admin address
    }
}

#[test]
fn check_warns_of_a_limit_of_files_below_the_connections() {
    let check = |max_connections: u32| {
        let file = ConfigFile::new(&format!(
            "[server]\nworkers = 2\nmax_connections = {max_connections}\n[[backends]]\nname = \"a\"\n\
             url = \"http://127.0.0.1:1\"\nmax_concurrent = 1\nmodels = [{{ name = \"m\" }}]"
        ));
        let mut shell = Command::new("sh");
        let script = "ulimit -n 256 && exec \"$0\" check --config \"$1\"";
        let shell = shell.args(["-c", script]).arg(binary()).arg(file.path());
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    };
    let report = check(110);
    let warning = "warning: the main address serves 92 connections at a time and not the 110 of";
    assert!(report.contains(warning), "{report}");
    assert!(!check(100).contains("warning"));
}

#[tokio::test]
async fn file_descriptor_exhaustion_makes_no_backend_unhealthy() {
    for checked in [false, true] {
        run_out_of_files(checked).await;
    }
}

async fn run_out_of_files(checked: bool) {
    let backends = [closing().await, closing().await];
    let interval = if checked { 0.01 } else { 3600.0 };
    let health = format!("interval_seconds = {interval}, unhealthy_after = 1");
    let setup = Setup::new()
        .top(SECTIONS)
        .routing("eject_after = 2\neject_seconds = 600")
        .open_files(FILES)
        .backend_checked("b1", &backends[0].url(), &health)
        .backend_checked("b2", &backends[1].url(), &health);
    let gateway = setup.start().await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.state().await; // over a connection that is kept

    let admin = gateway.admin_url().strip_prefix("http://").unwrap();
    let mut idle = Vec::new();
    for _ in 0..FILES {
        idle.push(TcpStream::connect(admin).await.unwrap());
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
