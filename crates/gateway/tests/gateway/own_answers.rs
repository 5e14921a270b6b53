//! The memory of answers that the gateway makes itself, for clients that do not read them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::backend::Backend;
use crate::client::Client;
use crate::durable_support::{Folder, id, stored, until};
use crate::process::Gateway;

/// The size of the stored answer, and of the file.
const LARGE: usize = 8 << 20;
/// The connections that ask for each page, and the streams of each one over HTTP/2.
const CONNECTIONS: usize = 2;
const STREAMS: usize = 60;
/// The connections over HTTP/1 that ask for each page.
const PLAIN: usize = 60;
/// The most that all pages may take together: the memory of own answers at both addresses, what is to be sent at each, and the
/// connections and streams themselves.
const MOST_MIB: u64 = 320;

/// Connects with a small receive buffer, so that what is not read stays with the gateway.
async fn connect(addr: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(addr.parse().unwrap()).await.unwrap()
}

/// A header without Huffman code and index.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut header = vec![0];
    for text in [name, value] {
        // A length of 7 bits, or 127 and the rest in groups of 7 bits.
        let length = text.len();
        if length < 127 {
            header.push(u8::try_from(length).unwrap());
        } else {
            let rest = length - 127;
            header.extend([
                127,
                u8::try_from(rest & 127 | if rest > 127 { 128 } else { 0 }).unwrap(),
            ]);
            if rest > 127 {
                header.push(u8::try_from(rest >> 7).unwrap());
            }
        }
        header.extend(text.as_bytes());
    }
    header
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A request of a page.
struct Ask<'a> {
    path: &'a str,
    /// The body of a POST.
    body: Option<&'a str>,
    headers: &'a [(&'a str, &'a str)],
}

/// Asks over HTTP/2 with the largest windows, and reads nothing.
async fn unread_http2(addr: &str, ask: &Ask<'_>) -> TcpStream {
    const LARGEST: u32 = (1 << 31) - 1;
    let mut socket = connect(addr).await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let window = [&[0, 4][..], &LARGEST.to_be_bytes()].concat();
    bytes.extend(frame(4, 0, 0, &window));
    bytes.extend(frame(8, 0, 0, &(LARGEST - 65_535).to_be_bytes()));
    let method = if ask.body.is_some() { "POST" } else { "GET" };
    for stream in 0..STREAMS {
        let stream = u32::try_from(2 * stream + 1).unwrap();
        let mut head = Vec::new();
        for (name, value) in [
            (":method", method),
            (":scheme", "http"),
            (":path", ask.path),
            (":authority", "localhost"),
        ] {
            head.extend(header(name, value));
        }
        for (name, value) in ask.headers {
            head.extend(header(name, value));
        }
        let end_headers = 4;
        match ask.body {
            None => bytes.extend(frame(1, end_headers | 1, stream, &head)),
            Some(body) => {
                bytes.extend(frame(1, end_headers, stream, &head));
                bytes.extend(frame(0, 1, stream, body.as_bytes()));
            }
        }
    }
    socket.write_all(&bytes).await.unwrap();
    socket
}

/// Asks over HTTP/1, and reads nothing.
async fn unread_http1(addr: &str, ask: &Ask<'_>) -> TcpStream {
    let mut socket = connect(addr).await;
    let method = if ask.body.is_some() { "POST" } else { "GET" };
    let body = ask.body.unwrap_or_default();
    let mut text = format!("{method} {} HTTP/1.1\r\nhost: localhost\r\n", ask.path);
    for (name, value) in ask.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(text.as_bytes()).await.unwrap();
    socket
}

fn resident_mib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() >> 10
}

/// Waits until the memory of the gateway has stopped to grow, and the gateway answers.
async fn until_settled(gateway: &Gateway) -> u64 {
    let mut last = 0;
    loop {
        sleep(Duration::from_millis(200)).await;
        gateway.get("/healthz").answer().await.assert_ok("ok\n");
        let now = resident_mib(gateway.pid(), "VmRSS:");
        if now <= last {
            return now;
        }
        last = now;
    }
}

async fn upload(client: &Client, content: &str) -> String {
    let disposition = "content-disposition: form-data";
    let form = format!(
        "--b\r\n{disposition}; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n{disposition}; name=\"file\"; \
         filename=\"in.jsonl\"\r\n\r\n{content}\r\n--b--\r\n"
    );
    let upload = client.post("/v1/files").body(form);
    let upload = upload.header("content-type", "multipart/form-data; boundary=b");
    let answer = upload.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn answers_that_nobody_reads_take_bounded_memory() {
    let (backend, folder) = (Backend::start().await, Folder::new());
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let body = json!({ "model": "m" }).to_string();
    let receipt = stored(client, "")
        .header("idempotency-key", "k")
        .body(body.clone())
        .send();
    let large = Bytes::from(vec![b'x'; LARGE]);
    backend.next().await.respond(http::Response::new(large));
    let id = id(&receipt.answer().await);
    until(client, &id, &["succeeded"]).await;
    let file = upload(client, &"y".repeat(LARGE)).await;
    for _ in 0..200 {
        upload(client, "{}").await;
    }
    let line = json!({ "custom_id": "l", "method": "POST", "url": "/v1/chat/completions", "body": { "model": "m" } });
    let input = upload(client, &line.to_string()).await;
    let batch = json!({ "input_file_id": input, "endpoint": "/v1/chat/completions", "completion_window": "24h" });
    let create = client.post("/v1/batches").body(batch.to_string());
    let batch = create
        .header("content-type", "application/json")
        .answer()
        .await;
    let quoted = format!("\"{}\"", "z".repeat(LARGE));
    backend.next().await.respond(http::Response::new(quoted));
    let batch = batch.json()["id"].as_str().unwrap().to_owned();
    let output = loop {
        let now = client
            .get(&format!("/v1/batches/{batch}"))
            .answer()
            .await
            .json();
        match now["output_file_id"].as_str() {
            Some(id) => break id.to_owned(),
            None => sleep(Duration::from_millis(20)).await,
        }
    };

    let get = |path: &str| (path.to_owned(), None);
    let main = [
        get(&format!("/requests/{id}")),
        get(&format!("/requests/{id}/response")),
        get(&format!("/requests/{id}/stream")),
        get("/requests"),
        get(&format!("/v1/files/{file}/content")),
        get(&format!("/v1/files/{output}/content")),
        get("/v1/files"),
        get("/v1/files?order=asc"),
        get("/v1/batches"),
        get(&format!("/v1/batches/{batch}")),
        get("/v1/models"),
        get("/running"),
        get("/api/tags"),
        get("/readyz"),
        ("/v1/chat/completions".to_owned(), Some(&*body)),
    ];
    let admin = [
        get("/metrics"),
        get("/admin/"),
        get("/admin/state"),
        get("/admin/live"),
        get("/admin/models"),
        get("/admin/events"),
        get("/admin/stream"),
        get("/admin/durable"),
        get("/admin/requests"),
        get(&format!("/admin/requests/{id}/response")),
    ];
    let admin_addr = gateway.admin_url().strip_prefix("http://").unwrap();
    let before = until_settled(&gateway).await;
    let mut unread = Vec::new();
    for (addr, pages) in [(gateway.addr(), &main[..]), (admin_addr, &admin[..])] {
        for (path, body) in pages {
            let headers = [
                ("content-type", "application/json"),
                ("idempotency-key", "k"),
            ];
            let ask = Ask {
                path,
                body: *body,
                headers: &headers[..if body.is_some() { 2 } else { 0 }],
            };
            for _ in 0..CONNECTIONS {
                unread.push(unread_http2(addr, &ask).await);
            }
            for _ in 0..PLAIN {
                unread.push(unread_http1(addr, &ask).await);
            }
            let now = until_settled(&gateway).await;
            println!("{path}: {before} -> {now} MiB");
        }
    }
    let peak = resident_mib(gateway.pid(), "VmHWM:");
    assert!(peak - before < MOST_MIB, "{before} -> {peak} MiB");
    // What was held is free again, and a client that reads gets the whole.
    drop(unread);
    let answer = loop {
        let answer = client
            .get(&format!("/requests/{id}/response"))
            .answer()
            .await;
        if answer.status != 503 {
            break answer;
        }
        assert_eq!(answer.error().1, "own_answer_memory_full");
    };
    assert_eq!(answer.text().len(), LARGE);
    let content = client
        .get(&format!("/v1/files/{file}/content"))
        .answer()
        .await;
    assert_eq!(content.text().len(), LARGE);
    let content = client
        .get(&format!("/v1/files/{output}/content"))
        .answer()
        .await;
    assert!(content.text().len() > LARGE);
}

#[tokio::test]
async fn a_full_memory_refuses_what_may_be_repeated_and_no_answer_of_a_new_request() {
    let (backend, folder) = (Backend::start().await, Folder::new());
    let server = "[server]\nown_answer_memory_bytes = 1048576\nwrite_timeout_seconds = 600\n";
    let gateway = folder.setup("", &backend).sections(server).start().await;
    let client = gateway.client();
    let keyed = || stored(client, "").header("idempotency-key", "k");
    let receipt = keyed().send();
    let large = Bytes::from(vec![b'x'; LARGE]);
    backend.next().await.respond(http::Response::new(large));
    let id = id(&receipt.answer().await);
    until(client, &id, &["succeeded"]).await;
    let path = format!("/requests/{id}/response");
    let ask = Ask {
        path: &path,
        body: None,
        headers: &[],
    };
    let mut unread = Vec::new();
    loop {
        let mut socket = unread_http1(gateway.addr(), &ask).await;
        let mut status = [0; 12];
        socket.read_exact(&mut status).await.unwrap();
        if status == *b"HTTP/1.1 503" {
            break;
        }
        unread.push(socket);
    }

    let waits = || client.ask("m").header("cancel-after", "600");
    for answer in [vec![b'x'; 100_000], vec![b'x'; LARGE]] {
        let asked = waits().send();
        let answer = http::Response::new(Bytes::from(answer));
        let length = answer.body().len();
        backend.next().await.respond(answer);
        let answered = asked.answer().await;
        assert_eq!((answered.status, answered.text().len()), (200, length));
    }
    let streams = json!({ "model": "m", "stream": true }).to_string();
    let asked = waits().body(streams).send();
    backend.next().await.answer("data: 1\n\n");
    assert_eq!(asked.answer().await.text(), "data: 1\n\n");
    assert_eq!(stored(client, "").answer().await.status, 202);
    backend.next().await.answer("fine");
    // This one is not run again, so its client may repeat it.
    let replay = client.ask("m").header("idempotency-key", "k");
    let replayed = replay.label("").answer().await;
    replayed.assert_error(503, "own_answer_memory_full");
    drop(unread);
}
