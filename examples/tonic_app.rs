//! A tonic server that serves one call at a time and lets one more wait, and four clients of it.
//!
//! ```sh
//! cargo run --example tonic_app
//! ```

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;
use tower_triage::{QueueConfig, QueueLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = QueueLayer::new(QueueConfig::new(1).max_size(1));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().layer(queue).add_service(Greeter);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(url)?.connect().await?;
    let names = ["Ada", "Bo", "Cy", "Di"];
    for answer in join_all(names.map(|name| greet(channel.clone(), name))).await {
        match answer {
            Ok(hello) => println!("{}", hello.get_ref().text),
            Err(status) => {
                let pushback = status.metadata().get("grpc-retry-pushback-ms");
                let (code, why) = (status.code(), status.message());
                println!("{code:?}: {why}; grpc-retry-pushback-ms: {pushback:?}");
            }
        }
    }
    Ok(())
}

/// What `protoc` would make of a message with one string.
#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

async fn hello(name: Request<Note>) -> Result<Response<Note>, Status> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let text = format!("Hello, {}!", name.get_ref().text);
    Ok(Response::new(Note { text }))
}

/// What `protoc` would make of a service with one method.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "demo.Greeter";
}

impl tower::Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Note, Note>::default());
            Ok(grpc.unary(service_fn(hello), request).await)
        })
    }
}

async fn greet(channel: Channel, name: &str) -> Result<Response<Note>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(Note { text: name.into() });
    let path = PathAndQuery::from_static("/demo.Greeter/Hello");
    let codec = ProstCodec::<Note, Note>::default();
    client.unary(request, path, codec).await
}
