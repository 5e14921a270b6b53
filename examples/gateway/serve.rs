//! The HTTP server: a task for each connection, in which its requests run.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

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

use crate::handler::Gateway;
use crate::hang_up;
use crate::log::RequestLog;

/// A server that accepts connections until it is stopped.
pub(crate) struct Server {
    stop: CancellationToken,
    /// Each open connection holds a clone, so the count minus one is the number of connections.
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

    /// Stops accepting connections, and closes each one as soon as it has no response to send.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the server is stopped and its last connection is closed. Must not be called again after that.
    pub(crate) async fn stopped(&mut self) {
        _ = (&mut self.serving).await;
    }

    pub(crate) fn open_connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

async fn serve(listener: TcpListener, gateway: Gateway, stop: CancellationToken, open: Weak<()>) {
    // Without Nagle's algorithm, a chunk of a stream does not wait for the ACK of the one before.
    let mut listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let gateway = Arc::new(gateway);
    let mut protocols = Builder::new(TokioExecutor::new());
    // Copies headers and chunk into one buffer: cheaper than a vectored write of the two.
    protocols.http1().writev(false);
    let connections = GracefulShutdown::new();
    loop {
        let (socket, peer) = tokio::select! {
            arrived = listener.accept() => arrived,
            () = stop.cancelled() => break,
        };
        let gateway = Arc::clone(&gateway);
        let handler = service_fn(move |request| handle(Arc::clone(&gateway), request, peer));
        let (socket, watch) = hang_up::watch(socket);
        let connection = protocols.serve_connection(TokioIo::new(socket), handler);
        let connection = connections.watch(connection.into_owned());
        let open = open.upgrade();
        tokio::spawn(async move {
            let _open = open;
            match watch.drive(connection).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(error, "connection failed"),
                None => tracing::debug!("client hung up"),
            }
        });
    }
    drop(listener); // refuses new connections
    connections.shutdown().await;
}

async fn handle(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Result<Response<impl Body<Data = Bytes, Error = BodyError>>, Infallible> {
    let log = RequestLog::begin(&request);
    let response = gateway.handle(request, peer).await;
    Ok(log.attach(response, &gateway.statuses))
}
