//! A web framework boxes a request's future once for each layer on its way, and that costs more than all
//! that a gateway decides. Here a request runs in the task of its connection, and no future is boxed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::{Listener, ListenerExt};
use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_triage::route::BodyError;

use crate::hang_up;
use crate::log::Watched;
use crate::surface::Gateway;

/// Serves whoever connects, until it is told to stop; returns when the last answer is out.
pub(crate) async fn serve(listener: TcpListener, gateway: Gateway, stop: CancellationToken) {
    // A word of an answer does not wait until the client has acknowledged the one before.
    let mut listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
    });
    let gateway = Arc::new(gateway);
    let mut protocols = Builder::new(TokioExecutor::new());
    // Head and piece of an answer in one write: copying the piece costs less than gathering the two.
    protocols.http1().writev(false);
    let connections = GracefulShutdown::new();
    loop {
        let (socket, peer) = tokio::select! {
            arrived = listener.accept() => arrived,
            () = stop.cancelled() => break,
        };
        let gateway = Arc::clone(&gateway);
        let answer = service_fn(move |request| answer(Arc::clone(&gateway), request, peer));
        let (socket, watch) = hang_up::watched(socket);
        let connection = protocols.serve_connection(TokioIo::new(socket), answer);
        let connection = connections.watch(connection.into_owned());
        tokio::spawn(async {
            match watch.drive(connection).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(error, "a connection broke off"),
                None => tracing::debug!("a client hung up"),
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Result<Response<impl Body<Data = Bytes, Error = BodyError>>, Infallible> {
    let watched = Watched::begin(&request);
    let answer = gateway.answer(request, peer).await;
    Ok(watched.answered(answer, &gateway.answers))
}
