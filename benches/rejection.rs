//! The cost of a rejection, against the answer of an idle handler: in process, and over HTTP/1.

use std::convert::Infallible;
use std::future::pending;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};
use hyper::rt::{Read, ReadBufCursor, Write};
use support::{Bench, client_headers, now, request};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueLayer};

/// The smallest handler that sets one header.
fn response(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

/// A layer with its only slot and its only place taken, and what has to be kept for that.
fn full_layer() -> (QueueLayer, impl Sized) {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(1));
    let forever = layer.layer(service_fn(|_: Request<Empty<Bytes>>| {
        pending::<Result<Response<Full<Bytes>>, Infallible>>()
    }));
    let requests = [0, 1].map(|_| {
        // As urgent as those that are rejected, which would displace it otherwise.
        let mut request = Box::pin(forever.clone().oneshot(request(client_headers())));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut cx).is_pending());
        request
    });
    assert_eq!(layer.handle().status().depth, 1);
    (layer, requests)
}

fn in_process(full: &QueueLayer) {
    let handler = service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(response(Bytes::from_static(b"{}")))
    });
    let idle = QueueLayer::new(QueueConfig::new(1).max_size(1)).layer(handler);
    let (full, headers) = (full.layer(handler), client_headers());
    Bench::new("A rejection, in process", 1_001, 500)
        .base("making the request", |n| {
            (0..n).for_each(|_| drop(black_box(request(headers.clone()))));
        })
        .subject("the handler alone", |n| {
            for _ in 0..n {
                let Ok(response) = now(handler.oneshot(request(headers.clone())));
                drop(black_box(response));
            }
        })
        .subject("an answer through QueueLayer, a slot is free", |n| {
            for _ in 0..n {
                let Ok(response) = now(idle.clone().oneshot(request(headers.clone())));
                drop(black_box(response));
            }
        })
        .subject("a rejection of QueueLayer, the room is full", |n| {
            for _ in 0..n {
                let Ok(response) = now(full.clone().oneshot(request(headers.clone())));
                debug_assert_eq!(response.status(), 503);
                drop(black_box(response));
            }
        })
        .against("an answer through QueueLayer, a slot is free", "≤ 1.1×")
        .run();
}

/// The server's end of a connection, in memory: no system call is timed.
#[derive(Clone, Default)]
struct Connection(Arc<Mutex<Buffers>>);

#[derive(Default)]
struct Buffers {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Read for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let to_server = &mut self.0.lock().unwrap().to_server;
        if to_server.is_empty() {
            return Poll::Pending;
        }
        assert!(to_server.len() <= buffer.remaining());
        buffer.put_slice(to_server);
        to_server.clear();
        Poll::Ready(Ok(()))
    }
}

impl Write for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().to_client.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// hyper in front of `service`, and a client that sends one request after the other on one connection.
fn over_http<S, B>(service: S, status: &'static str) -> impl FnMut(u64)
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let client = Connection::default();
    let mut server = Box::pin(hyper::server::conn::http1::Builder::new().serve_connection(
        client.clone(),
        hyper::service::service_fn(move |request| service.clone().oneshot(request)),
    ));
    let request = b"POST / HTTP/1.1\r\nhost: a\r\nx-priority: high\r\nx-tenant-id: team-a\r\n\
        content-type: application/json\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";
    move |n| {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..n {
            client
                .0
                .lock()
                .unwrap()
                .to_server
                .extend_from_slice(request);
            assert!(server.as_mut().poll(&mut cx).is_pending());
            let answer = &mut client.0.lock().unwrap().to_client;
            assert!(answer["HTTP/1.1 ".len()..].starts_with(status.as_bytes()));
            answer.clear();
        }
    }
}

fn through_hyper(full: &QueueLayer) {
    let echo = service_fn(|request: Request<hyper::body::Incoming>| async {
        let body = request
            .into_body()
            .collect()
            .await
            .expect("the body is whole");
        Ok::<_, Infallible>(response(body.to_bytes()))
    });
    let idle = QueueLayer::new(QueueConfig::new(1).max_size(1)).layer(echo);
    Bench::new("A rejection, over HTTP/1 in memory", 601, 200)
        .subject("an answer of an idle echo handler", over_http(idle, "200"))
        .subject(
            "a rejection, the room is full",
            over_http(full.layer(echo), "503"),
        )
        .against("an answer of an idle echo handler", "≤ 1.0×")
        .run();
}

fn main() {
    // A waiter's timer needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let (full, _requests) = full_layer();
    in_process(&full);
    through_hyper(&full);
}
