//! gRPC through a server, the router and `Forward`, to a tonic server that gets its requests over HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Layer, Service, ServiceExt};
use tower_triage::RouteLayer;
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::RouteBody;
use tower_triage::upstream::Forward;

/// The request and the response.
#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

fn note(text: impl Into<String>) -> Note {
    Note { text: text.into() }
}

fn codec() -> ProstCodec<Note, Note> {
    ProstCodec::default()
}

type Notes = BoxStream<'static, Result<Note, Status>>;

/// A service whose `Echo` sends each note back as it comes, until one says `fail`.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Notes";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        assert_eq!(request.headers()["te"], "trailers");
        let echo = tower::service_fn(async |asked: Request<Streaming<Note>>| {
            let answers = asked.into_inner().map(|note| match note?.text {
                text if text == "fail" => Err(failure()),
                text => Ok(note_back(text)),
            });
            Ok::<_, Status>(Response::new(answers.boxed() as Notes))
        });
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(codec());
            Ok(grpc.streaming(echo, request).await)
        })
    }
}

fn note_back(text: String) -> Note {
    note(format!("{text}!"))
}

fn failure() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-cause", "the test wants it".parse().unwrap());
    Status::with_metadata(Code::NotFound, "no such note", metadata)
}

/// A tonic server.
async fn endpoint() -> Endpoint {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = TcpIncoming::from(listener);
    tokio::spawn(
        Server::builder()
            .add_service(Echo)
            .serve_with_incoming(incoming),
    );
    let endpoint = Endpoint::new("notes", url.parse().unwrap()).http2(true);
    endpoint.model(Model::new("m"))
}

/// A router in front of a tonic server.
async fn gateway() -> SocketAddr {
    let registry = Registry::new(vec![endpoint().await]).unwrap();
    let router = RouteLayer::builder(registry).demand_from_header("x-model".parse().unwrap());
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

async fn echo(
    gateway: SocketAddr,
    notes: impl stream::Stream<Item = Note> + Send + 'static,
) -> Streaming<Note> {
    let url = format!("http://{gateway}");
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = Request::new(notes);
    request
        .metadata_mut()
        .insert("x-model", "m".parse().unwrap());
    let path = PathAndQuery::from_static("/test.Notes/Echo");
    let answer = grpc.streaming(request, path, codec()).await;
    answer.unwrap().into_inner()
}

#[tokio::test]
async fn notes_go_both_ways_while_the_call_runs() {
    let gateway = gateway().await;
    let (sender, notes) = tokio::sync::mpsc::unbounded_channel();
    let notes = stream::unfold(notes, async |mut notes| Some((notes.recv().await?, notes)));
    sender.send(note("first")).unwrap();
    let mut answers = echo(gateway, notes).await;
    assert_eq!(answers.message().await.unwrap(), Some(note("first!")));
    for text in ["one", "two"] {
        sender.send(note(text)).unwrap();
        let answer = answers.message().await.unwrap();
        assert_eq!(answer, Some(note(format!("{text}!"))));
    }
    drop(sender);
    assert_eq!(answers.message().await.unwrap(), None);
    let trailers = answers.trailers().await.unwrap();
    assert!(trailers.is_some());
}

#[tokio::test]
async fn the_status_of_a_failed_call_arrives() {
    let notes = stream::iter([note("one"), note("fail")]);
    let mut answers = echo(gateway().await, notes).await;
    assert_eq!(answers.message().await.unwrap(), Some(note("one!")));
    let failed = answers.message().await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::NotFound, "no such note")
    );
    let cause = failed.metadata().get("x-cause").unwrap();
    assert_eq!(cause, "the test wants it");
}
