//! Many clients who come and go as they please: nothing of them is left over.
//!
//! `GATEWAY_CHURN_SECONDS` says for how long; 6 if it is not there.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::backend::{Arrived, Backend, status};
use crate::client::Client;
use crate::process::{Gateway, PATIENCE, Setup};

const CLIENTS: usize = 64;

#[tokio::test]
async fn clients_who_come_and_go_leave_nothing_behind() {
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
        .routing("eject_after = 0") // these backends are as moody as their clients
        .backend("gpu-1", &one, 4, &["a", "b"])
        .backend("gpu-2", &two, 2, &["b"]);
    let gateway = setup.start().await;
    gateway.idle().await;
    let files = open_files(gateway.pid());
    let backends = [Arc::new(one), Arc::new(two)];
    let mut moody = JoinSet::new();
    for backend in &backends {
        let backend = backend.clone();
        moody.spawn(async move {
            loop {
                tokio::spawn(behave(backend.next().await));
            }
        });
    }

    let warm = come_and_go(&gateway, length / 3).await;
    let before = resident_kib(gateway.pid());
    let asked = warm + come_and_go(&gateway, length * 2 / 3).await;
    let after = resident_kib(gateway.pid());
    assert!(
        after < before + 16 * 1024,
        "{before} KiB before, {after} KiB after"
    );

    let end = Instant::now() + PATIENCE;
    while open_files(gateway.pid()) > files + 2 {
        assert!(
            Instant::now() < end,
            "{files} files before, now {}",
            open_files(gateway.pid())
        );
        sleep(Duration::from_millis(50)).await;
    }
    moody.abort_all();
    while moody.join_next().await.is_some() {}
    for backend in &backends {
        assert_eq!(backend.counts().in_flight, 0);
    }
    let served = gateway.ask("a").label("last").send();
    let mut last = backends[0].next().await;
    while last.label() != "last" {
        last = backends[0].next().await;
    }
    last.answer("served");
    served.answer().await.must_say("served");
    println!("{asked} requests in {length:?}; {before} KiB before, {after} KiB after");
}

/// Lets clients ask for so long; returns how often they did, once the gateway is idle.
async fn come_and_go(gateway: &Gateway, length: Duration) -> usize {
    let client = Client::new(format!("http://{}", gateway.addr()));
    let end = Instant::now() + length;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(visit_until(end, client.clone()));
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

async fn visit_until(end: Instant, client: Client) -> usize {
    let mut asked = 0;
    while Instant::now() < end {
        let mut ask = client
            .ask(["a", "b", "b", "nobody's"][fastrand::usize(..4)])
            .tenant(["x", "y", "z"][fastrand::usize(..3)])
            .header("x-priority", ["high", "normal"][fastrand::usize(..2)]);
        if fastrand::u8(..4) == 0 {
            ask = ask.header("x-request-timeout", "0.01");
        }
        asked += 1;
        let sent = ask.send();
        if fastrand::bool() {
            sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
            sent.hang_up();
        } else {
            let answer = sent.answer().await;
            let known = [200, 404, 429, 502, 503, 504];
            assert!(known.contains(&answer.status), "{answer:?}");
        }
    }
    asked
}

async fn behave(arrived: Arrived) {
    sleep(Duration::from_micros(fastrand::u64(..5_000))).await;
    match fastrand::u8(..8) {
        0 => arrived.respond(status(429)),
        1 => drop(arrived),
        2 => arrived.stream().break_off(),
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

/// How much memory a process takes; 0 where that cannot be read.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse().unwrap())
}

/// How many files and sockets a process has open; 0 where that cannot be read.
fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}
