//! Trailers, and what differs between HTTP/1.1 and HTTP/2: through a server, the router and `Forward`.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body::Frame;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tower::{Layer, ServiceExt};
use tower_triage::RouteLayer;
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::RouteBody;
use tower_triage::upstream::Forward;

use super::SOON;
use super::bodies::read_to;
use super::upstream::{Connection, Upstream};

/// A server of HTTP/1.1 and HTTP/2 in front of one endpoint. The model is read from the body, or from a header,
/// and the body is streamed.
async fn serve(upstream: &Upstream, streamed: bool) -> SocketAddr {
    let url = format!("http://{}/base", upstream.addr()).parse().unwrap();
    let endpoint = Endpoint::new("gpu-1", url).model(Model::new("m"));
    let router = RouteLayer::builder(Registry::new(vec![endpoint]).unwrap());
    let router = match streamed {
        true => router.demand_from_header("x-model".parse().unwrap()),
        false => router,
    };
    let route = router.build().layer(Forward::<RouteBody<Incoming>>::new());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let route = route.clone();
            let answer = service_fn(move |request| route.clone().oneshot(request));
            tokio::spawn(async move {
                let protocols = Builder::new(TokioExecutor::new());
                let connection = protocols.serve_connection(TokioIo::new(socket), answer);
                connection.await.ok();
            });
        }
    });
    addr
}

async fn http1(server: SocketAddr) -> Connection {
    Connection(TcpStream::connect(server).await.unwrap())
}

async fn http2<B>(server: SocketAddr) -> SendRequest<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let socket = TcpStream::connect(server).await.unwrap();
    let shaken = handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
    let (sender, connection) = shaken.unwrap();
    tokio::spawn(connection);
    sender
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))])
}

const BODY: &str = r#"{"model":"m"}"#;

const WITH_TRAILERS: &str = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                             2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";

/// The header `name` of the next request to `upstream`.
async fn answer(upstream: &Upstream, answer: &str, name: &str) -> Vec<String> {
    let request = async {
        let mut connection = upstream.accept().await;
        let (head, _) = connection.request().await;
        connection.send(answer).await;
        head
    };
    let head = timeout(SOON, request).await.expect("a request");
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(of, _)| *of == name);
    named.map(|(_, value)| value.to_owned()).collect()
}

#[tokio::test]
async fn answer_trailers_reach_http_1_clients_that_accept_them() {
    for (version, te, asked, ends) in [
        (
            "1.1",
            "te: trailers\r\nconnection: te\r\n",
            &["trailers"][..],
            "0\r\nx-sum: 7\r\n\r\n",
        ),
        ("1.1", "", &[], "0\r\n\r\n"),
        ("1.0", "te: trailers\r\n", &[], "ok"),
    ] {
        for streamed in [false, true] {
            let upstream = Upstream::bind().await;
            let mut client = http1(serve(&upstream, streamed).await).await;
            let length = BODY.len();
            let head = format!(
                "POST / HTTP/{version}\r\nhost: g\r\nx-model: m\r\n{te}content-length: {length}\r\n\r\n"
            );
            client.send(&(head + BODY)).await;
            assert_eq!(answer(&upstream, WITH_TRAILERS, "te").await, asked);
            timeout(SOON, read_to(&mut client, ends)).await.expect(ends);
        }
    }
}

#[tokio::test]
async fn answer_trailers_reach_http_2_clients() {
    for streamed in [false, true] {
        let upstream = Upstream::bind().await;
        let mut client = http2(serve(&upstream, streamed).await).await;
        let request = Request::post("http://g/")
            .header("x-model", "m")
            .header("te", "trailers");
        let response = client.send_request(request.body(Full::from(BODY)).unwrap());
        let (te, response) = tokio::join!(answer(&upstream, WITH_TRAILERS, "te"), response);
        assert_eq!(te, ["trailers"]);
        let body = timeout(SOON, response.unwrap().into_body().collect());
        let body = body.await.expect("an answer").unwrap();
        assert_eq!(body.trailers(), Some(&trailers()));
    }
}

#[tokio::test]
async fn announced_request_trailers_reach_the_endpoint() {
    let upstream = Upstream::bind().await;
    let server = serve(&upstream, true).await;
    let end = "0\r\nx-sum: 7\r\n\r\n";

    let mut client = http1(server).await;
    let head = "POST / HTTP/1.1\r\nhost: g\r\nx-model: m\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
    client.send(&format!("{head}2\r\nok\r\n{end}")).await;
    let mut connection = upstream.accept().await;
    timeout(SOON, read_to(&mut connection, end))
        .await
        .expect(end);

    let upstream = Upstream::bind().await;
    let mut client = http2(serve(&upstream, true).await).await;
    let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
    let request = Request::post("http://g/")
        .header("x-model", "m")
        .header("trailer", "x-sum");
    let response = client.send_request(request.body(body).unwrap());
    let send = async {
        sender.send(Frame::data("ok".into())).await.unwrap();
        sender.send(Frame::trailers(trailers())).await.unwrap();
        drop(sender);
        let mut connection = upstream.accept().await;
        timeout(SOON, read_to(&mut connection, end))
            .await
            .expect(end);
    };
    tokio::select! {
        _ = response => unreachable!("there is no answer yet"),
        () = send => {}
    }
}

#[tokio::test]
async fn trailers_not_passed_on_are_not_announced() {
    let upstream = Upstream::bind().await;
    let mut client = http1(serve(&upstream, false).await).await;
    let head = "POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
    client
        .send(&format!(
            "{head}{:x}\r\n{BODY}\r\n0\r\nx-sum: 7\r\n\r\n",
            BODY.len()
        ))
        .await;
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    assert!(answer(&upstream, ok, "trailer").await.is_empty());
}

#[tokio::test]
async fn the_cookies_of_http_2_become_one() {
    let upstream = Upstream::bind().await;
    let mut client = http2(serve(&upstream, false).await).await;
    let request = Request::post("http://g/")
        .version(Version::HTTP_2)
        .header("cookie", "a=1");
    let request = request.header("cookie", "b=2").header("cookie", "c=3; d=4");
    let response = client.send_request(request.body(Full::from(BODY)).unwrap());
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let (cookies, _) = tokio::join!(answer(&upstream, ok, "cookie"), response);
    assert_eq!(cookies, ["a=1; b=2; c=3; d=4"]);
}

#[tokio::test]
async fn a_target_without_path_keeps_query_and_base() {
    let upstream = Upstream::bind().await;
    let mut client = http1(serve(&upstream, true).await).await;
    client
        .send("GET http://g?q=1 HTTP/1.1\r\nhost: g\r\nx-model: m\r\n\r\n")
        .await;
    let mut connection = upstream.accept().await;
    let (head, _) = timeout(SOON, connection.request())
        .await
        .expect("a request");
    assert!(head.starts_with("get /base/?q=1 http/1.1\r\n"), "{head}");
}
