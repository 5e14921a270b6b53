//! A web framework boxes a request's future once for each layer on its way, and that costs more than all
//! that a gateway decides. Here a request runs in the task of its connection, and no future is boxed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use axum::serve::{Listener, ListenerExt};
use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower_triage::upstream::BodyError;

use crate::hang_up;
use crate::log::Watched;
use crate::surface::Gateway;

/// Serves connections until it is told to stop.
pub(crate) struct Server {
    stop: CancellationToken,
    /// Each open connection has a copy.
    open: Arc<()>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, gateway: Gateway) -> Self {
        let (stop, open) = (CancellationToken::new(), Arc::new(()));
        let serving = serve(listener, gateway, stop.clone(), Arc::downgrade(&open));
        Self {
            stop,
            open,
            serving: tokio::spawn(serving),
        }
    }

    /// Takes no connection any more, and closes each as soon as it has no answer to send.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns once it has been stopped and the last connection is closed. It must not be called again then.
    pub(crate) async fn stopped(&mut self) {
        _ = (&mut self.serving).await;
    }

    pub(crate) fn open_connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

async fn serve(listener: TcpListener, gateway: Gateway, stop: CancellationToken, open: Weak<()>) {
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
        let open = open.upgrade();
        tokio::spawn(async move {
            let _open = open;
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
