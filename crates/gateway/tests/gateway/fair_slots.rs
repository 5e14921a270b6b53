//! Tests of the discipline `fair` where the use of slots and the cost of requests differ: slots are shared as time.

use std::time::Duration;

use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, BackendRequest, status};
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup, TIMEOUT};

/// Starts a gateway with one slot that tenants share.
async fn gateway(url: &str) -> Gateway {
    gateway_with(url, "", "").await
}

/// Starts it with more keys of the backend and of the routing.
async fn gateway_with(url: &str, keys: &str, routing: &str) -> Gateway {
    let queue = "discipline = \"fair\"\nmax_wait_seconds = 600\nmax_size = 200";
    let routing = format!("max_retries = 0\n{routing}");
    let setup = Setup::new().queue(queue).routing(&routing);
    let backend = format!("max_concurrent = 1\nmodels = [{{ name = \"m\" }}]\n{keys}");
    setup.backend_with("gpu-1", url, &backend).start().await
}

fn usage(tokens: u32) -> Response<String> {
    let body = format!(r#"{{"choices":[],"usage":{{"completion_tokens":{tokens}}}}}"#);
    let response = Response::builder().header("content-type", "application/json");
    response.body(body).unwrap()
}

/// The slot time of honest requests, which bring 100 tokens each.
const HONEST: Duration = Duration::from_millis(30);
/// The slot time of a greedy request, in multiples of the longest one of an honest request.
const GREEDY: u32 = 10;

/// A request that the backend has served, with the time from its arrival there until that of the next one. On a busy machine
/// the time is longer than planned, and the gateway charges what it is.
pub(crate) type Served = (String, Duration);

/// Sets the time of the request that was served last, which has just ended, and begins that of the next one.
pub(crate) fn set_time(served: &mut [Served], arrived: &mut Instant) {
    let now = Instant::now();
    if let Some((_, time)) = served.last_mut() {
        *time = now - *arrived;
    }
    *arrived = now;
}

/// Asserts that `greedy` paid for the time of its slots: between two of its turns, others had three turns or a third of the time
/// of the earlier one.
pub(crate) fn assert_paid(served: &[Served], greedy: &str) {
    // Once no other waits, all turns are its own.
    let others = served.iter().rposition(|(label, _)| label != greedy);
    let contended = &served[..others.map_or(0, |last| last + 1)];
    let turns: Vec<_> = (0..contended.len())
        .filter(|&nth| contended[nth].0 == greedy)
        .collect();
    for pair in turns.windows(2) {
        let between = &contended[pair[0] + 1..pair[1]];
        let time: Duration = between.iter().map(|(_, time)| time).sum();
        let has_paid = between.len() >= 3 || 3 * time >= contended[pair[0]].1;
        assert!(has_paid, "{served:?}");
    }
}

/// Lets a greedy tenant and an honest one wait for a slot, and asserts that the greedy one gets no turn for each turn of the
/// honest one. `end` ends the greedy one's requests.
async fn assert_shared(end: impl AsyncFn(BackendRequest, &mut Vec<PendingResponse>)) {
    let backend = Backend::start().await;
    let gateway = gateway(&backend.url()).await;
    let first = gateway.ask("m").tenant("first").send();
    let running = backend.next().await;
    let ask = |tenant: &str| gateway.ask("m").label(tenant).tenant(tenant).send();
    let mut honest: Vec<_> = (0..5).map(|_| ask("honest")).collect();
    gateway.depth(5).await;
    running.answer("");
    first.answer().await.assert_ok("");
    // The first ones show what an honest request takes on this machine.
    let mut longest = HONEST;
    let mut next = backend.next().await;
    for _ in 0..4 {
        let arrived = Instant::now();
        sleep(HONEST).await;
        next.respond(usage(100));
        next = backend.next().await;
        longest = longest.max(arrived.elapsed());
    }
    let mut greedy = Vec::new();
    for nth in 1..=3 {
        greedy.push(ask("greedy"));
        // One by one, so that they are served in this order.
        gateway.depth(nth).await;
    }
    honest.extend((0..30).map(|_| ask("honest")));
    gateway.depth(33).await;
    next.respond(usage(100));
    greedy.reverse();
    let mut served: Vec<Served> = Vec::new();
    let mut arrived = Instant::now();
    for _ in 0..33 {
        let next = backend.next().await;
        set_time(&mut served, &mut arrived);
        served.push((next.label().to_owned(), Duration::ZERO));
        if next.label() == "greedy" {
            sleep(GREEDY * longest).await;
            end(next, &mut greedy).await;
        } else {
            sleep(HONEST).await;
            next.respond(usage(100));
        }
    }
    set_time(&mut served, &mut arrived);
    for waiter in honest {
        assert_eq!(waiter.answer().await.status, 200);
    }
    assert_paid(&served, "greedy");
}

#[tokio::test]
async fn slow_answers_of_one_token_are_charged_for_their_time() {
    assert_shared(async |next, _| next.respond(usage(1))).await;
}

#[tokio::test]
async fn answers_without_usage_are_charged_for_their_time() {
    assert_shared(async |next, _| next.answer("{}")).await;
}

#[tokio::test]
async fn errors_are_charged_for_their_time() {
    assert_shared(async |next, _| next.respond(status(500))).await;
}

#[tokio::test]
async fn callers_that_leave_are_charged_for_their_time() {
    assert_shared(async |next, greedy| {
        greedy.pop().unwrap().disconnect();
        next.disconnected().await;
    })
    .await;
}

/// Asserts that an unread answer leaves its slot, and the backend, once another tenant waits.
async fn assert_unread_answer_ends(backend: Backend, keys: &str, routing: &str) {
    let gateway = gateway_with(&backend.url(), keys, routing).await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-tenant-id: greedy\r\n\
                content-length: 13\r\n\r\n{\"model\":\"m\"}";
    client.write_all(head.as_bytes()).await.unwrap();
    let stream = backend.next().await.stream();
    let piece = "x".repeat(1 << 20);
    (0..64).for_each(|_| stream.send(&piece));
    let honest = gateway.ask("m").tenant("honest").send();
    let next = backend.next().await;
    stream.disconnected().await;
    next.answer("served");
    honest.answer().await.assert_ok("served");
    drop(client);
}

#[tokio::test]
async fn an_answer_that_is_not_read_gives_its_slot_to_another_tenant() {
    assert_unread_answer_ends(Backend::start().await, "", "").await;
    assert_unread_answer_ends(Backend::start_http2().await, "http2 = true", "").await;
    let by_requests = "fair_by = \"requests\"";
    assert_unread_answer_ends(Backend::start().await, "", by_requests).await;
}

#[tokio::test]
async fn an_upload_that_trickles_gives_its_slot_to_another_tenant() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend.url()).await;
    let client = TcpStream::connect(gateway.addr()).await.unwrap();
    let (mut reading, mut writing) = client.into_split();
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
                --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\nx-tenant-id: greedy\r\n\
         content-type: multipart/form-data; boundary=b\r\ncontent-length: 1000000\r\n\r\n{form}"
    );
    writing.write_all(head.as_bytes()).await.unwrap();
    let trickle = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
    });
    gateway.until("it runs", |state| state.running() == 1).await;
    let honest = gateway.ask("m").label("honest").tenant("honest").send();
    // The backend may have seen the beginning of the upload.
    loop {
        let next = backend.next().await;
        if next.label() == "honest" {
            next.answer("served");
            break;
        }
    }
    honest.answer().await.assert_ok("served");
    let mut answer = String::new();
    while !answer.contains("request_body_timeout") {
        let mut piece = Vec::new();
        let read = timeout(TIMEOUT, reading.read_buf(&mut piece)).await;
        assert_ne!(read.expect("an answer").unwrap(), 0, "{answer}");
        answer += &String::from_utf8_lossy(&piece);
    }
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    trickle.abort();
}

#[tokio::test]
async fn a_websocket_that_only_pings_gives_its_slot_to_another_tenant() {
    let backend = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let gateway = gateway(&format!("http://{}", backend.local_addr().unwrap())).await;
    let client = TcpStream::connect(gateway.addr()).await.unwrap();
    let (mut reading, mut writing) = client.into_split();
    let head = "GET /v1/realtime?model=m HTTP/1.1\r\nhost: x\r\nx-tenant-id: greedy\r\n\
                connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\
                sec-websocket-version: 13\r\n\r\n";
    writing.write_all(head.as_bytes()).await.unwrap();
    let (mut socket, _) = backend.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_buf(&mut head).await.unwrap();
    }
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-accept: abc\r\n\r\n";
    socket.write_all(switched.as_bytes()).await.unwrap();
    let pings = tokio::spawn(async move {
        while writing.write_all(&[0x89, 0x80, 1, 2, 3, 4]).await.is_ok() {
            sleep(Duration::from_millis(500)).await;
        }
    });
    let honest = gateway.ask("m").tenant("honest").send();
    let (mut next, _) = timeout(TIMEOUT, backend.accept())
        .await
        .expect("a slot")
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"}") {
        next.read_buf(&mut head).await.unwrap();
    }
    next.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nserved")
        .await
        .unwrap();
    honest.answer().await.assert_ok("served");
    let mut read = Vec::new();
    timeout(TIMEOUT, reading.read_to_end(&mut read))
        .await
        .expect("it is closed")
        .unwrap();
    // 1013, "try again later"
    assert!(read.ends_with(&[0x88, 0x02, 0x03, 0xf5]), "{read:?}");
    pings.abort();
}
