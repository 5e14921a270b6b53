//! Streams of HTTP/2 that end early: clients that hang up, endpoints that are late, and bodies that break off.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame as BodyFrame;
use http_body_util::{BodyExt, Channel, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::{pause, resume, sleep, timeout};
use tower::ServiceExt;
use tower_triage::endpoints::{Decision, NoResponse};
use tower_triage::upstream::Forward;

use super::http2::http2;
use super::http2_frames::{CANCEL, DATA, Frame, Frames, HEADERS, INTERNAL_ERROR, RST_STREAM};
use super::upstream::Upstream;
use super::{Failure, SOON, bind, post, send, text};

async fn begin() -> (Upstream, Decision) {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    (upstream, to)
}

async fn accept(upstream: &Upstream) -> Frames {
    let begun = async { Frames::begin(upstream.accept().await.0).await };
    timeout(SOON, begun).await.expect("a connection")
}

async fn next(frames: &mut Frames) -> Frame {
    let next = timeout(SOON, frames.next()).await;
    next.expect("a frame in time").expect("an open connection")
}

/// Reads frames until the stream is reset because it is not needed any more.
async fn is_cancelled(frames: &mut Frames, stream: u32) {
    loop {
        let frame = next(frames).await;
        if (frame.kind, frame.stream) == (RST_STREAM, stream) {
            assert_eq!(frame.code(), CANCEL);
            return;
        }
        assert_eq!(frame.kind, DATA, "{frame:?}");
    }
}

/// The next request over the same connection gets an answer.
async fn still_works(frames: &mut Frames, forward: &Forward<Full<Bytes>>, to: &Decision) {
    let serve = async {
        let (stream, _) = frames.request().await;
        frames.answer(stream, "ok").await;
    };
    let ask = async { text(send(forward, post(to, "{}")).await).await };
    let (_, answer) = timeout(SOON, async { tokio::join!(serve, ask) })
        .await
        .expect("an answer over the same connection");
    assert_eq!(answer, "ok");
}

#[tokio::test]
async fn hanging_up_before_the_answer_resets_the_stream() {
    let (upstream, to) = begin().await;
    let forward = Forward::new();
    let answer = tokio::spawn(forward.clone().oneshot(post(&to, "{}")));
    let mut frames = accept(&upstream).await;
    let (stream, _) = frames.request().await;
    answer.abort();
    is_cancelled(&mut frames, stream).await;
    still_works(&mut frames, &forward, &to).await;
}

#[tokio::test]
async fn hanging_up_during_the_answer_resets_the_stream() {
    let (upstream, to) = begin().await;
    let forward = Forward::new();
    let serve = async {
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.head(stream).await;
        frames.data(stream, "half").await;
        (frames, stream)
    };
    let ((mut frames, stream), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    drop(response);
    is_cancelled(&mut frames, stream).await;
    still_works(&mut frames, &forward, &to).await;
}

#[tokio::test]
async fn a_late_first_byte_is_a_timeout_of_its_stream() {
    let (upstream, to) = begin().await;
    let forward = Forward::new();
    let answer = tokio::spawn(forward.clone().oneshot(post(&to, "{}")));
    let mut frames = accept(&upstream).await;
    let (stream, _) = frames.request().await;

    pause();
    let response = answer.await.unwrap().unwrap();
    resume();
    let failure = Failure::read(response).await;
    failure.is(504, "upstream_timeout", NoResponse::Timeout);
    is_cancelled(&mut frames, stream).await;
}

#[tokio::test]
async fn a_silent_answer_ends_and_its_stream_is_reset() {
    let (upstream, to) = begin().await;
    let forward = Forward::new().idle_timeout(SOON);
    let serve = async {
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.head(stream).await;
        frames.data(stream, "half").await;
        (frames, stream)
    };
    let ((mut frames, stream), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    pause();
    let error = response.into_body().collect().await.unwrap_err();
    resume();
    assert!(error.to_string().contains("sent nothing"), "{error}");
    is_cancelled(&mut frames, stream).await;
    still_works(&mut frames, &forward, &to).await;
}

#[tokio::test]
async fn an_answer_that_breaks_before_its_first_piece_is_a_failure() {
    let (upstream, to) = begin().await;
    let forward = Forward::new();
    let serve = async {
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.head(stream).await;
        frames.reset(stream, CANCEL).await;
        frames
    };
    let (_frames, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_truncated_answer_over_http_2_is_a_body_error() {
    for is_reset in [true, false] {
        let (upstream, to) = begin().await;
        let forward = Forward::new();
        let serve = async {
            let mut frames = accept(&upstream).await;
            let (stream, _) = frames.request().await;
            frames.head(stream).await;
            frames.data(stream, "half").await;
            (frames, stream)
        };
        let ((mut frames, stream), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
        assert_eq!(response.status(), 200);
        if is_reset {
            frames.reset(stream, CANCEL).await;
        } else {
            drop(frames);
        }
        let body = timeout(SOON, response.into_body().collect()).await;
        let error = body.expect("an end").unwrap_err();
        assert!(error.to_string().contains("broke off"), "{error}");
    }
}

type Sender = http_body_util::channel::Sender<Bytes, io::Error>;

/// A request whose body is being sent, with its head at the endpoint.
async fn uploading(
    upstream: &Upstream,
    to: &Decision,
) -> (
    Sender,
    Frames,
    u32,
    tokio::task::JoinHandle<Response<tower_triage::upstream::ForwardBody>>,
) {
    let (mut sender, body) = Channel::<Bytes, io::Error>::new(1);
    let request = Request::post("/").extension(to.clone());
    let answer = Forward::new().oneshot(request.body(body).unwrap());
    let answer = tokio::spawn(async move { answer.await.unwrap() });
    let mut frames = accept(upstream).await;
    let head = next(&mut frames).await;
    assert_eq!(head.kind, HEADERS);
    sender.send_data("one".into()).await.unwrap();
    let data = next(&mut frames).await;
    assert_eq!((data.kind, &*data.payload), (DATA, &b"one"[..]));
    (sender, frames, head.stream, answer)
}

#[tokio::test]
async fn a_request_whose_body_breaks_off_is_reset() {
    let (upstream, to) = begin().await;
    let (sender, mut frames, stream, answer) = uploading(&upstream, &to).await;
    sender.abort(io::Error::other("gone"));
    let failure = Failure::read(answer.await.unwrap()).await;
    failure.is(400, "request_body_failed", NoResponse::BodyNotSent);
    let reset = next(&mut frames).await;
    assert_eq!((reset.kind, reset.stream), (RST_STREAM, stream));
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_reset() {
    let (upstream, to) = begin().await;
    let (mut sender, body) = Channel::<Bytes, io::Error>::new(1);
    let request = Request::post("/").header("content-length", 6);
    let request = request.extension(to).body(body).unwrap();
    let answer = tokio::spawn(Forward::new().oneshot(request));
    let mut frames = accept(&upstream).await;
    let head = next(&mut frames).await;
    assert_eq!(head.kind, HEADERS);
    sender.send_data("one".into()).await.unwrap();
    let data = next(&mut frames).await;
    assert_eq!((data.kind, &*data.payload), (DATA, &b"one"[..]));
    drop(sender);
    let reset = next(&mut frames).await;
    assert_eq!((reset.kind, reset.stream), (RST_STREAM, head.stream));
    let failure = Failure::read(answer.await.unwrap().unwrap()).await;
    failure.is(400, "request_body_failed", NoResponse::BodyNotSent);
}

#[tokio::test]
async fn hanging_up_during_the_upload_resets_the_stream() {
    let (upstream, to) = begin().await;
    let (_sender, mut frames, stream, answer) = uploading(&upstream, &to).await;
    answer.abort();
    is_cancelled(&mut frames, stream).await;
}

#[tokio::test]
async fn an_upload_ends_with_its_answer() {
    for is_read in [true, false] {
        let (upstream, to) = begin().await;
        let (mut sender, mut frames, stream, answer) = uploading(&upstream, &to).await;
        frames.head(stream).await;
        frames.data(stream, "early").await;
        let response = answer.await.unwrap();
        assert_eq!(response.status(), 200);
        sender.send_data("two".into()).await.unwrap();
        let data = next(&mut frames).await;
        assert_eq!(&*data.payload, b"two", "{data:?}");
        if is_read {
            frames.end(stream).await;
            assert_eq!(text(response).await, "early");
        } else {
            drop(response);
        }
        is_cancelled(&mut frames, stream).await;
    }
}

/// The number of bytes that a client may send before it gets a window.
const FIRST_WINDOW: usize = (64 << 10) - 1;

/// Begins a large upload, of which the endpoint has no window for more.
async fn uploading_large(
    upstream: &Upstream,
    to: &Decision,
    length: usize,
) -> (
    Frames,
    u32,
    tokio::task::JoinHandle<Response<tower_triage::upstream::ForwardBody>>,
) {
    let request = Request::post("/").extension(to.clone());
    let request = request.body(Full::new(Bytes::from(vec![b' '; length])));
    let answer = Forward::new()
        .first_byte_timeout(SOON)
        .oneshot(request.unwrap());
    let answer = tokio::spawn(async move { answer.await.unwrap() });
    let mut frames = accept(upstream).await;
    let stream = next(&mut frames).await.stream;
    read(&mut frames, FIRST_WINDOW).await;
    (frames, stream, answer)
}

/// Reads so many bytes of an upload.
async fn read(frames: &mut Frames, mut bytes: usize) {
    while bytes > 0 {
        bytes -= next(frames).await.payload.len();
    }
}

#[tokio::test]
async fn a_large_upload_that_is_refused_was_not_sent() {
    for is_reset in [true, false] {
        let (upstream, to) = begin().await;
        let (mut frames, stream, answer) = uploading_large(&upstream, &to, 1 << 20).await;
        if is_reset {
            frames.reset(stream, INTERNAL_ERROR).await;
        } else {
            drop(frames);
        }
        let failure = Failure::read(answer.await.unwrap()).await;
        failure.is(502, "upstream_failed", NoResponse::BodyNotSent);
    }
}

#[tokio::test]
async fn an_endpoint_that_reads_a_large_upload_slowly_is_not_late() {
    const STEP: u32 = 16 << 10;
    let (upstream, to) = begin().await;
    let length = FIRST_WINDOW + 5 * STEP as usize;
    let (mut frames, stream, answer) = uploading_large(&upstream, &to, length).await;
    for _ in 0..5 {
        pause();
        sleep(SOON * 3 / 4).await;
        resume();
        frames.window(stream, STEP).await;
        read(&mut frames, STEP as usize).await;
    }
    frames.answer(stream, "ok").await;
    assert_eq!(text(answer.await.unwrap()).await, "ok");
}

#[tokio::test]
async fn a_large_upload_over_a_lost_connection_is_sent_again() {
    let (upstream, to) = begin().await;
    let forward = Forward::new();
    let serve = async {
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.answer(stream, "ok").await;
        frames
    };
    let (mut old, _) = tokio::join!(serve, send(&forward, get(&to, "/")));

    let upload = vec![b' '; 2 * FIRST_WINDOW];
    let mut request = get(&to, "/");
    *request.body_mut() = upload.into();
    let answer = tokio::spawn(forward.oneshot(request));
    next(&mut old).await;
    read(&mut old, FIRST_WINDOW).await;
    drop(old);
    let mut new = accept(&upstream).await;
    let stream = next(&mut new).await.stream;
    new.window(stream, 1 << 20).await;
    read(&mut new, 2 * FIRST_WINDOW).await;
    new.answer(stream, "again").await;
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "again");
}

/// A server of HTTP/2 that accepts one connection. Its answers are without end, or `/short`.
async fn endless(piece: usize) -> Decision {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let to = http2(format!("http://{}", listener.local_addr().unwrap()));
    let answer = service_fn(move |request: Request<Incoming>| async move {
        let is_short = request.uri().path() == "/short";
        let pieces = stream::unfold((), move |()| async move {
            tokio::task::yield_now().await;
            let piece = BodyFrame::data(Bytes::from(vec![0; piece]));
            Some((Ok::<_, Infallible>(piece), ()))
        });
        let pieces = pieces.take(if is_short { 1 } else { usize::MAX });
        Ok::<_, Infallible>(Response::new(StreamBody::new(pieces)))
    });
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        drop(listener);
        let connection =
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), answer);
        connection.await.unwrap_or_default();
    });
    to
}

fn get(to: &Decision, path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).extension(to.clone());
    request.body(Full::default()).unwrap()
}

#[tokio::test]
async fn clients_that_do_not_read_leave_the_connection_to_others() {
    let to = endless(16 << 10).await;
    let forward = Forward::new();
    let mut unread = Vec::new();
    for _ in 0..10 {
        unread.push(send(&forward, get(&to, "/endless")).await);
    }
    let answer = text(send(&forward, get(&to, "/short")).await).await;
    assert_eq!(answer.len(), 16 << 10);
}

#[tokio::test]
async fn clients_that_hang_up_leave_the_connection_to_others() {
    let to = endless(10).await;
    let forward = Forward::new();
    for _ in 0..30 {
        let begun = (0..100).map(async |_| {
            let mut response = send(&forward, get(&to, "/endless")).await;
            response.frame().await.unwrap().unwrap();
            response
        });
        let responses = join_all(begun).await;
        assert!(responses.iter().all(|response| response.status() == 200));
    }
    let answer = text(send(&forward, get(&to, "/short")).await).await;
    assert_eq!(answer.len(), 10);
}
