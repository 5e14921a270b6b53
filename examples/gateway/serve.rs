//! The HTTP server: a task for each connection, in which its requests run.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use axum::BoxError;
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

use crate::hang_up;
use crate::log::RequestLog;
use crate::pages::Pages;

/// A server that accepts connections until it is stopped.
pub(crate) struct Server {
    stop: CancellationToken,
    /// Each open connection holds a clone, so the count minus one is the number of connections.
    open: Arc<()>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Answers each request with what `handler` returns, logs it, and counts it in the statuses of `pages`. Their
    /// endless responses end when the server is stopped.
    pub(crate) fn start<H, F, B>(listener: TcpListener, pages: &Pages, handler: H) -> Self
    where
        H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (stop, statuses) = (pages.closing.clone(), pages.statuses.clone());
        let open = Arc::new(());
        let handler = Arc::new(move |request: Request<Incoming>, peer| {
            let log = RequestLog::begin(&request);
            let (response, statuses) = (handler(request, peer), statuses.clone());
            async move { Ok::<_, Infallible>(log.attach(response.await, &statuses)) }
        });
        let serving = serve(listener, handler, stop.clone(), Arc::downgrade(&open));
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

async fn serve<H, F, B>(
    listener: TcpListener,
    handler: Arc<H>,
    stop: CancellationToken,
    open: Weak<()>,
) where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    // Without Nagle's algorithm, a chunk of a stream does not wait for the ACK of the one before.
    let mut listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let mut protocols = Builder::new(TokioExecutor::new());
    // Copies headers and chunk into one buffer: cheaper than a vectored write of the two.
    protocols.http1().writev(false);
    let connections = GracefulShutdown::new();
    loop {
        let (socket, peer) = tokio::select! {
            arrived = listener.accept() => arrived,
            () = stop.cancelled() => break,
        };
        let handler = Arc::clone(&handler);
        let handler = service_fn(move |request| handler(request, peer));
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
