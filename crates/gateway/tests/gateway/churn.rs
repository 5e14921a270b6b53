//! Load from clients that connect, time out and disconnect at random: no slot, file or memory leaks.
//!
//! `GATEWAY_CHURN_SECONDS` sets the length of the test; default 6 s.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::backend::{Backend, BackendRequest, status};
use crate::client::Client;
use crate::process::{Gateway, Setup, TIMEOUT};

const CLIENTS: usize = 64;

#[tokio::test]
async fn churning_clients_leak_no_slots_files_or_memory() {
    let seconds = std::env::var("GATEWAY_CHURN_SECONDS").ok();
    let length = Duration::from_secs(seconds.map_or(6, |seconds| seconds.parse().unwrap()));
    let (one, two) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .queue(
            r#"
            max_size = 30
            max_wait_seconds = 0.05
            discipline = "fair"
            promote_after_seconds = 0.01
            displace = true
            max_size_per_tenant = 12
            "#,
        )
        .routing("eject_after = 0") // the backends fail at random
        .backend("gpu-1", &one, 4, &["a", "b"])
        .backend("gpu-2", &two, 2, &["b"]);
    let gateway = setup.start().await;
    gateway.idle().await;
    let files = open_files(gateway.pid());
    let backends = [Arc::new(one), Arc::new(two)];
    let mut flaky = JoinSet::new();
    for backend in &backends {
        let backend = backend.clone();
        flaky.spawn(async move {
            loop {
                tokio::spawn(respond_randomly(backend.next().await));
            }
        });
    }

    let warm = churn(&gateway, length / 3).await;
    let before = resident_kib(gateway.pid());
    let asked = warm + churn(&gateway, length * 2 / 3).await;
    let after = resident_kib(gateway.pid());
    assert!(
        after < before + 16 * 1024,
        "{before} KiB before, {after} KiB after"
    );

    let end = Instant::now() + TIMEOUT;
    while open_files(gateway.pid()) > files + 2 {
        assert!(
            Instant::now() < end,
            "{files} files before, now {}",
            open_files(gateway.pid())
        );
        sleep(Duration::from_millis(50)).await;
    }
    flaky.abort_all();
    while flaky.join_next().await.is_some() {}
    for backend in &backends {
        assert_eq!(backend.counts().in_flight, 0);
    }
    let served = gateway.ask("a").label("last").send();
    let mut last = backends[0].next().await;
    while last.label() != "last" {
        last = backends[0].next().await;
    }
    last.answer("served");
    served.answer().await.assert_ok("served");
    println!("{asked} requests in {length:?}; {before} KiB before, {after} KiB after");
}

/// Runs clients for `length`, and waits until the gateway is idle. Returns the number of requests.
async fn churn(gateway: &Gateway, length: Duration) -> usize {
    let client = Client::new(format!("http://{}", gateway.addr()));
    let end = Instant::now() + length;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(churn_client(end, client.clone()));
    }
    while Instant::now() < end {
        let state = gateway.state().await;
        let in_flight = state.in_flight();
        assert!(
            state.depth() <= 30 && in_flight[0] <= 4 && in_flight[1] <= 2,
            "{}",
            state.0
        );
    }
    let asked = clients.join_all().await.into_iter().sum();
    gateway.idle().await;
    asked
}

async fn churn_client(end: Instant, client: Client) -> usize {
    let mut asked = 0;
    while Instant::now() < end {
        let mut ask = client
            .ask(["a", "b", "b", "unknown"][fastrand::usize(..4)])
            .tenant(["x", "y", "z"][fastrand::usize(..3)])
            .header("x-priority", ["high", "normal"][fastrand::usize(..2)]);
        if fastrand::u8(..4) == 0 {
            ask = ask.header("x-request-timeout", "0.01");
        }
        asked += 1;
        let sent = ask.send();
        if fastrand::bool() {
            sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
            sent.disconnect();
        } else {
            let answer = sent.answer().await;
            let known = [200, 404, 429, 502, 503, 504];
            assert!(known.contains(&answer.status), "{answer:?}");
        }
    }
    asked
}

async fn respond_randomly(arrived: BackendRequest) {
    sleep(Duration::from_micros(fastrand::u64(..5_000))).await;
    match fastrand::u8(..8) {
        0 => arrived.respond(status(429)),
        1 => drop(arrived),
        2 => arrived.stream().abort(),
        3..5 => {
            let stream = arrived.stream();
            for _ in 0..3 {
                stream.send("data: word\n\n");
                sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
            }
            stream.end();
        }
        _ => arrived.answer("fine"),
    }
}

/// Resident memory of a process in KiB; 0 on platforms without `/proc`.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse().unwrap())
}

/// Number of open files and sockets of a process; 0 on platforms without `/proc`.
fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn memory_of_connections_is_given_back_after_them() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    let gateway = Setup::new().start().await;
    gateway.idle().await;
    let before = resident_kib(gateway.pid());
    let mut clients = Vec::new();
    for _ in 0..2_000 {
        let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        client.write_all(request).await.unwrap();
        assert_ne!(client.read(&mut [0; 512]).await.unwrap(), 0);
        clients.push(client);
    }
    let open = resident_kib(gateway.pid());
    drop(clients);
    let end = Instant::now() + TIMEOUT;
    while resident_kib(gateway.pid()) > before + (open - before) / 2 {
        let now = resident_kib(gateway.pid());
        assert!(
            Instant::now() < end,
            "{before} KiB, then {open} KiB, now {now} KiB"
        );
        sleep(Duration::from_millis(100)).await;
    }
}
