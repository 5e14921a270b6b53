//! Tests of multipart forms, which are routed by the part `model` and streamed.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::ClientRequest;
use crate::process::{Gateway, Setup, TIMEOUT};

const TYPE: &str = "multipart/form-data; boundary=XX";

fn model(name: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{name}\r\n")
}

fn file(content: &str) -> String {
    format!(
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
         Content-Type: audio/wav\r\n\r\n{content}\r\n"
    )
}

fn form(parts: &[String]) -> String {
    parts.concat() + "--XX--\r\n"
}

fn upload(gateway: &Gateway, path: &str, body: String) -> ClientRequest {
    gateway
        .client()
        .post(path)
        .header("content-type", TYPE)
        .body(body)
}

#[tokio::test]
async fn forms_are_routed_by_the_part_that_names_the_model() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new().backend("gpu-1", &first, 1, &["m"]).backend(
        "gpu-2",
        &second,
        1,
        &["whisper-1"],
    );
    let gateway = setup.start().await;
    for path in [
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/images/edits",
        "/v1/images/variations",
    ] {
        for parts in [
            [model("whisper-1"), file("RIFF\r\n--X")],
            [file("RIFF\r\n--X"), model("whisper-1")],
        ] {
            let body = form(&parts);
            let sent = upload(&gateway, path, body.clone()).send();
            let arrived = second.next().await;
            assert_eq!(arrived.body, body);
            assert_eq!(arrived.header("content-type"), Some(TYPE));
            let length = body.len().to_string();
            assert_eq!(arrived.header("content-length"), Some(&*length));
            arrived.answer("fine");
            sent.answer().await.assert_ok("fine");
        }
    }
}

#[tokio::test]
async fn an_alias_is_replaced_in_the_form() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing("aliases = { whisper = \"org/whisper-large\" }")
        .backend("gpu-1", &backend, 1, &["org/whisper-large"]);
    let gateway = setup.start().await;
    let body = |name| form(&[model(name), file(&"x".repeat(100_000))]);
    let sent = upload(&gateway, "/v1/audio/transcriptions", body("whisper")).send();
    let arrived = backend.next().await;
    assert_eq!(arrived.body, body("org/whisper-large"));
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn a_file_behind_the_model_may_exceed_the_body_limit() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("body_limit_bytes = 1000")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let large = file(&"x".repeat(200_000));
    let body = form(&[model("m"), large.clone()]);
    let sent = upload(&gateway, "/v1/images/edits", body.clone()).send();
    let arrived = backend.next().await;
    assert_eq!(arrived.body, body);
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");

    let late = upload(&gateway, "/v1/images/edits", form(&[large, model("m")]));
    let answer = late.answer().await;
    answer.assert_error(400, "model_missing");
    assert!(answer.message().contains("before the file"), "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
}

#[tokio::test]
async fn forms_that_name_no_model_are_refused() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    for (parts, status, code) in [
        (vec![file("RIFF")], 400, "model_missing"),
        (vec![], 400, "model_missing"),
        (vec![model(" ")], 400, "model_missing"),
        (vec![model("x"), file("RIFF")], 404, "model_not_found"),
        (vec![model(&"x".repeat(2_000))], 400, "malformed_body"),
    ] {
        let answer = upload(&gateway, "/v1/audio/transcriptions", form(&parts))
            .answer()
            .await;
        answer.assert_error(status, code);
    }
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn forms_that_servers_may_divide_differently_are_refused() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    for line_end in ["\n", "\r", "\x0b\r\n", " \n"] {
        let begin = format!("--XX{line_end}");
        for hidden in [
            model("other").replace("--XX\r\n", &begin),
            file("RIFF") + &model("other").replace("--XX\r\n", &begin),
        ] {
            let body = form(&[hidden, model("m")]);
            let answer = upload(&gateway, "/v1/audio/transcriptions", body).answer();
            answer.await.assert_error(400, "malformed_body");
        }
    }
    assert_eq!(backend.counts().arrived, 0);
}

/// The client reads nothing before it has sent all of its file.
#[tokio::test]
async fn a_refused_upload_is_read_so_that_its_client_gets_the_answer() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let body = form(&[model("unknown"), file(&"x".repeat(16 << 20))]);
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let head = head(body.len());
    let exchange = async {
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(body.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 404");
    };
    timeout(TIMEOUT, exchange).await.expect("no answer comes");
}

#[tokio::test]
async fn a_form_without_a_model_goes_to_the_default_backend() {
    let backend = Backend::start().await;
    let setup =
        Setup::new()
            .routing("default_backend = \"gpu-1\"")
            .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let body = form(&[file("RIFF")]);
    let sent = upload(&gateway, "/v1/audio/transcriptions", body.clone()).send();
    let arrived = backend.next().await;
    assert_eq!(arrived.body, body);
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn a_gateway_that_stores_requests_streams_forms() {
    use crate::durable_support::Folder;
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let limit = "body_limit_bytes = 1000";
    let setup = Setup::new()
        .top(limit)
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.sections(&folder.section(limit)).start().await;
    let body = form(&[model("m"), file(&"x".repeat(200_000))]);
    let sent = upload(&gateway, "/v1/audio/transcriptions", body.clone()).send();
    let arrived = backend.next().await;
    assert_eq!(arrived.body, body);
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: {TYPE}\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// The backend gets the beginning of the file before the client has sent the end.
#[tokio::test]
async fn the_file_is_streamed_to_the_backend() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let gateway = Setup::new()
        .backend_at("gpu-1", &url, 1, &["m"])
        .start()
        .await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let body = form(&[model("m"), file("beginning-and-end")]);
    let (begin, end) = body.split_at(body.find("-and-end").unwrap());
    let head = head(body.len());
    client
        .write_all(format!("{head}{begin}").as_bytes())
        .await
        .unwrap();
    let exchange = async {
        let (mut backend, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"beginning") {
            assert_ne!(backend.read_buf(&mut got).await.unwrap(), 0);
        }
        client.write_all(end.as_bytes()).await.unwrap();
        while !got.ends_with(b"--XX--\r\n") {
            assert_ne!(backend.read_buf(&mut got).await.unwrap(), 0);
        }
    };
    timeout(TIMEOUT, exchange)
        .await
        .expect("the form is not streamed");
}
