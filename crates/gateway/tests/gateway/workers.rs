//! Tests of the workers that serve the main address, and of its connections.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn gateway(server: &str, slots: u32) -> (Gateway, Backend) {
    let backend = Backend::start().await;
    let server = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[server]\n{server}");
    let setup = Setup::new().top(&server).queue("max_size = 1000");
    let setup = setup.backend("gpu-1", &backend, slots, &["m"]);
    (setup.start().await, backend)
}

/// Sends a request and returns `true` once its answer has come; `false` if none comes within `limit`.
async fn is_answered(client: &mut TcpStream, limit: Duration) -> bool {
    let mut head = [0; 12];
    let read = timeout(limit, client.read_exact(&mut head)).await;
    read.is_ok_and(|read| read.is_ok() && &head == b"HTTP/1.1 200")
}

#[tokio::test]
async fn all_workers_share_the_slots_and_the_queue() {
    let (gateway, backend) = gateway("workers = 4", 2).await;
    let mut asked = Vec::new();
    for _ in 0..40 {
        asked.push(gateway.ask("m").send()); // each over a connection of its own
    }
    gateway.depth(38).await;
    for _ in 0..40 {
        backend.next().await.answer("fine");
    }
    for answer in asked {
        answer.answer().await.assert_ok("fine");
    }
    gateway.idle().await;
    assert_eq!(backend.counts().peak, 2);
}

#[tokio::test]
async fn a_priority_holds_over_all_workers() {
    let (gateway, backend) = gateway("workers = 4", 1).await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let waiting: Vec<_> = (0..20).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(20).await;
    let high = gateway.ask("m").high().label("high").send();
    gateway.depth(21).await;
    running.answer("fine");
    let next = backend.next().await;
    assert_eq!(next.label(), "high");
    next.answer("fine");
    for _ in &waiting {
        backend.next().await.answer("fine");
    }
    for answer in waiting.into_iter().chain([first, high]) {
        answer.answer().await.assert_ok("fine");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_worker_has_a_thread_and_a_listener() {
    let (gateway, _backend) = gateway("workers = 3", 1).await;
    // A thread takes its name once it runs.
    let named = async {
        while workers(&gateway) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, named).await.expect("three workers");
    assert_eq!(workers(&gateway), 3);
    assert_eq!(sockets(&gateway, LISTENING).len(), 3);
}

/// Returns the number of threads with the name of a worker.
#[cfg(target_os = "linux")]
fn workers(gateway: &Gateway) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
    // A thread may end meanwhile.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker-")).count()
}

/// The states of sockets in `/proc/net/tcp`.
#[cfg(target_os = "linux")]
const LISTENING: &str = "0A";
#[cfg(target_os = "linux")]
const ESTABLISHED: &str = "01";

/// The lines of `/proc/net/tcp` for the main address.
#[cfg(target_os = "linux")]
fn sockets(gateway: &Gateway, state: &str) -> Vec<String> {
    let (_, port) = gateway.addr().split_once(':').unwrap();
    let local = format!("0100007F:{:04X}", port.parse::<u16>().unwrap());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = sockets.lines().map(str::to_owned);
    let is_asked = |line: &String| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&local) && fields.nth(1) == Some(state)
    };
    lines.filter(is_asked).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn clients_are_probed_by_tcp_keep_alive() {
    let (gateway, _backend) = gateway("", 1).await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    assert!(is_answered(&mut client, TIMEOUT).await);
    let sockets = sockets(&gateway, ESTABLISHED);
    let timer = sockets[0].split_whitespace().nth(5).unwrap();
    assert!(timer.starts_with("02:"), "not a keep-alive timer: {timer}");
}

#[tokio::test]
async fn address_in_use_is_an_error() {
    let (gateway, _backend) = gateway("workers = 2", 1).await;
    let second = Setup::new()
        .listen(gateway.addr())
        .top("[server]\nworkers = 2");
    let problem = second.refusal().await;
    assert!(problem.contains("cannot listen on"), "{problem}");
}

#[tokio::test]
async fn connections_beyond_the_most_wait_and_the_admin_address_answers() {
    for workers in [1, 4] {
        let server = format!("workers = {workers}\nmax_connections = 2");
        let (gateway, _backend) = gateway(&server, 1).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
            client.write_all(REQUEST).await.unwrap();
            assert!(is_answered(&mut client, TIMEOUT).await);
            clients.push(client);
        }
        let mut third = TcpStream::connect(gateway.addr()).await.unwrap();
        third.write_all(REQUEST).await.unwrap();
        assert!(!is_answered(&mut third, Duration::from_millis(200)).await);
        assert_eq!(gateway.state().await.depth(), 0); // asks the admin address
        clients.pop();
        assert!(is_answered(&mut third, TIMEOUT).await);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn soft_limit_of_open_files_is_raised() {
    let backend = Backend::start().await;
    let setup = Setup::new().soft_open_files(64);
    let gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut limits = files.split_whitespace().skip(3);
    let (soft, hard) = (limits.next().unwrap(), limits.next().unwrap());
    assert_eq!(soft, hard);
    assert_ne!(soft, "64");
}

#[tokio::test]
async fn shutdown_ends_connections_of_all_workers() {
    let (mut gateway, backend) = gateway("workers = 4", 8).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        assert!(is_answered(&mut client, TIMEOUT).await);
        clients.push(client);
    }
    let asked: Vec<_> = (0..8).map(|_| gateway.ask("m").send()).collect();
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(backend.next().await);
    }
    gateway.signal("TERM");
    gateway.logs(&["shutting down"]).await;
    running
        .into_iter()
        .for_each(|arrived| arrived.answer("fine"));
    for answer in asked {
        answer.answer().await.assert_ok("fine");
    }
    assert!(gateway.exit().await.success());
}
