//! Tests of `http2` of `[[backends]]`.

use http::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::backend::Backend;
use crate::http2_frames::Frames;
use crate::process::{Gateway, Setup, TIMEOUT};

const MODELS: &str = "max_concurrent = 8\nmodels = [{ name = \"m\" }]\n";

/// A gateway with one worker, so that it has one connection, in front of `backend` with these lines.
fn setup(backend: &Backend, lines: &str) -> Setup {
    let url = backend.url();
    Setup::new().sections(&format!(
        "[server]\nworkers = 1\n[[backends]]\nname = \"a\"\nurl = \"{url}\"\n{MODELS}{lines}"
    ))
}

async fn http2() -> (Gateway, Backend) {
    let backend = Backend::start_http2().await;
    let setup = setup(&backend, "http2 = true\nhealth = false\n");
    (setup.start().await, backend)
}

/// A gateway with one worker, in front of a backend whose connections the test drives frame by frame.
async fn by_frames(lines: &str) -> (Gateway, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let setup = Setup::new().sections(&format!(
        "{lines}[server]\nworkers = 1\n[[backends]]\nname = \"a\"\nurl = \"{url}\"\nhttp2 = true\nhealth = false\n{MODELS}"
    ));
    (setup.start().await, listener)
}

async fn accept(listener: &TcpListener) -> Frames {
    let accepted = async { Frames::preface(listener.accept().await.unwrap().0).await };
    timeout(TIMEOUT, accepted).await.expect("no connection")
}

/// Reads the next request of a connection.
async fn next(frames: &mut Frames) -> u32 {
    let request = timeout(TIMEOUT, frames.request()).await;
    request.expect("no request comes").0
}

/// Answers the next request of `gateway`, which comes over HTTP/2.
async fn is_served(gateway: &Gateway, backend: &Backend) {
    let asked = gateway.ask("m").send();
    let arrived = backend.next().await;
    assert_eq!(arrived.head.version, Version::HTTP_2);
    assert_eq!(arrived.model(), "m");
    arrived.answer("fine");
    asked.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn requests_to_an_http_2_backend_share_one_connection() {
    let (gateway, backend) = http2().await;
    is_served(&gateway, &backend).await;
    let asked: Vec<_> = (0..8).map(|_| gateway.ask("m").send()).collect();
    let mut arrived = Vec::new();
    for _ in 0..8 {
        arrived.push(backend.next().await);
    }
    for arrived in arrived {
        arrived.answer("fine");
    }
    for asked in asked {
        asked.answer().await.assert_ok("fine");
    }
    assert_eq!(backend.counts().connections, 1);
    assert_eq!(backend.counts().peak, 8);
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request_and_not_the_connection() {
    let (gateway, backend) = http2().await;
    let asked = gateway.ask("m").send();
    let arrived = backend.next().await;
    asked.disconnect();
    arrived.disconnected().await;
    let asked = gateway.ask("m").send();
    let stream = backend.next().await.stream();
    stream.send("half");
    asked.disconnect();
    stream.disconnected().await;
    gateway.idle().await;
    is_served(&gateway, &backend).await;
    assert_eq!(backend.counts().connections, 1);
}

/// A form with a large file that names another model behind it.
fn form_of_two_models() -> String {
    let model =
        |name| format!("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{name}\r\n");
    let file = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n",
        "x".repeat(1 << 20)
    );
    [model("m"), file, model("other"), "--b--\r\n".to_owned()].concat()
}

/// Sends a form, whose length is announced or not, and returns the head of the answer.
async fn upload(gateway: &Gateway, form: &str, is_chunked: bool) -> String {
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let (length, body) = match is_chunked {
        true => (
            "transfer-encoding: chunked".to_owned(),
            format!("{:x}\r\n{form}\r\n0\r\n\r\n", form.len()),
        ),
        false => (format!("content-length: {}", form.len()), form.to_owned()),
    };
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: multipart/form-data; boundary=b\r\n{length}\r\n\r\n"
    );
    let mut answer = String::new();
    let exchange = async {
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(body.as_bytes()).await.unwrap();
        client.read_to_string(&mut answer).await.unwrap();
    };
    timeout(TIMEOUT, exchange).await.expect("no answer comes");
    answer
}

#[tokio::test]
async fn a_form_that_is_cut_off_fails_alone() {
    for is_http2 in [true, false] {
        let backend = match is_http2 {
            true => Backend::start_http2().await,
            false => Backend::start().await,
        };
        let setup = setup(&backend, &format!("http2 = {is_http2}\nhealth = false\n"));
        let gateway = setup.start().await;
        let (first, ()) = tokio::join!(gateway.ask("m").answer(), async {
            backend.next().await.answer("fine");
        });
        first.assert_ok("fine");
        let others: Vec<_> = (0..4).map(|_| gateway.ask("m").send()).collect();
        let mut arrived = Vec::new();
        for _ in 0..4 {
            arrived.push(backend.next().await);
        }
        for is_chunked in [true, false] {
            let told = upload(&gateway, &form_of_two_models(), is_chunked).await;
            assert!(told.starts_with("HTTP/1.1 400"), "{told}");
            assert!(told.contains("request_body_failed"), "{told}");
        }
        assert_eq!(backend.counts().arrived, 5);
        for arrived in arrived {
            arrived.answer("fine");
        }
        for other in others {
            other.answer().await.assert_ok("fine");
        }
        let metrics = gateway.get("/metrics").answer().await;
        let line = "{endpoint=\"a\",model=\"m\",outcome=\"client_error\"} 2\n";
        assert!(metrics.text().contains(line), "{metrics:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_held_for_too_long_ends_over_http_2() {
    let backend = Backend::start_http2().await;
    let setup = setup(&backend, "http2 = true\nhealth = false\n").queue("max_hold_seconds = 2");
    let gateway = setup.start().await;
    let asked = gateway.ask("m").send();
    let stream = backend.next().await.stream();
    stream.send("half");
    stream.disconnected().await;
    let answer = asked.answer().await;
    assert!(answer.text.is_err(), "{answer:?}");
    gateway.idle().await;
}

#[tokio::test]
async fn a_reload_changes_the_protocol_of_a_backend() {
    let backend = Backend::start_http2().await;
    let health = "health = { unhealthy_after = 1, interval_seconds = 0.1 }\n";
    let gateway = setup(&backend, health).start().await;
    assert_eq!(gateway.state().await.healthy(), [false]);
    gateway.reload(&setup(&backend, &format!("http2 = true\n{health}")));
    let healthy = |state: &crate::process::State| state.healthy() == [true];
    gateway.until("a check over HTTP/2", healthy).await;
    is_served(&gateway, &backend).await;
}

#[tokio::test]
async fn http_2_is_either_on_or_off() {
    let backend = Backend::start().await;
    let message = setup(&backend, "http2 = \"yes\"\n").refusal().await;
    for word in ["backends.http2", "line", "boolean"] {
        assert!(message.contains(word), "{word}\n{message}");
    }
}

/// A connection of this backend has one stream at a time.
#[tokio::test]
async fn a_request_with_a_slot_does_not_wait_for_a_stream() {
    let (gateway, listener) = by_frames("").await;
    let first = gateway.ask("m").send();
    let mut one = accept(&listener).await;
    one.limit_to_one().await;
    let of_first = next(&mut one).await;

    let second = gateway.ask("m").high().send();
    let mut other = accept(&listener).await;
    other.limit_to_one().await;
    let of_second = next(&mut other).await;
    other.answer(of_second, "second").await;
    second.answer().await.assert_ok("second");
    one.answer(of_first, "first").await;
    first.answer().await.assert_ok("first");
}

#[tokio::test]
async fn a_mute_connection_gets_no_request_after_a_timeout() {
    let timeouts = "[upstream]\nfirst_byte_timeout_seconds = 3\n";
    let (gateway, listener) = by_frames(timeouts).await;
    let asked = gateway.ask("m").send();
    let mut mute = accept(&listener).await;
    mute.limit_to_one().await;
    let stream = next(&mut mute).await;
    mute.answer(stream, "fine").await;
    asked.answer().await.assert_ok("fine");

    let late = gateway.ask("m").answer().await;
    assert_eq!(late.error(), (504, "upstream_timeout".to_owned()));
    let asked = gateway.ask("m").send();
    let mut other = accept(&listener).await;
    other.limit_to_one().await;
    let stream = next(&mut other).await;
    other.answer(stream, "fine").await;
    asked.answer().await.assert_ok("fine");
}

/// The end of the connection is all that such a client sees, and it is no reset.
#[tokio::test]
async fn a_client_of_http_1_0_gets_a_whole_answer() {
    let (gateway, listener) = by_frames("").await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let body = "{\"model\":\"m\"}";
    let request = format!(
        "POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut backend = accept(&listener).await;
    backend.limit_to_one().await;
    let stream = next(&mut backend).await;
    backend.head(stream).await;
    backend.last_data(stream, "fine").await;
    let mut got = String::new();
    let read = timeout(TIMEOUT, client.read_to_string(&mut got)).await;
    read.expect("the connection does not end").unwrap();
    assert!(
        got.starts_with("HTTP/1.0 200") && got.ends_with("\r\n\r\nfine"),
        "{got}"
    );
}
