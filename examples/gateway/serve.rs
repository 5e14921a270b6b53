//! The HTTP server: a task for each connection, in which its requests run.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::BoxError;
use axum::serve::{Listener, ListenerExt};
use futures_util::{FutureExt, TryFutureExt};
use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_triage::gate::PermitBody;

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
    /// endless responses end when the server is stopped. A connection that has been without a whole request for
    /// `idle_timeout` is closed.
    pub(crate) fn start<H, F, B>(
        listener: TcpListener,
        pages: &Pages,
        idle_timeout: Option<Duration>,
        handler: H,
    ) -> Self
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
            // An `async` block would have room for the future twice, and each move copies all of it.
            response.map(move |response| Ok::<_, Infallible>(log.attach(response, &statuses)))
        });
        let open_connections = Arc::downgrade(&open);
        let serving = serve(
            listener,
            handler,
            stop.clone(),
            idle_timeout,
            open_connections,
        );
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
    idle_timeout: Option<Duration>,
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
        let requests = idle_timeout.map(|_| Requests::default());
        let counted = requests.clone();
        let handler = service_fn(move |request| {
            let served = counted.as_ref().map(Requests::begin);
            let response = handler(request, peer);
            response.map_ok(|response| response.map(|body| PermitBody::new(body, served)))
        });
        let idle = async move {
            match (requests, idle_timeout) {
                (Some(requests), Some(limit)) => requests.idle(limit).await,
                _ => std::future::pending().await,
            }
        };
        let (socket, watch) = hang_up::watch(socket);
        let connection = protocols.serve_connection(TokioIo::new(socket), handler);
        let connection = connections.watch(connection.into_owned());
        let open = open.upgrade();
        tokio::spawn(async move {
            let _open = open;
            let ended = tokio::select! {
                ended = watch.drive(connection) => ended,
                () = idle => return tracing::debug!("connection was idle"),
            };
            match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(error, "connection failed"),
                None => tracing::debug!("client hung up"),
            }
        });
    }
    drop(listener); // refuses new connections
    connections.shutdown().await;
}

/// The requests of one connection whose heads have arrived, and whose responses have not ended.
#[derive(Clone, Default)]
struct Requests(Arc<watch::Sender<usize>>);

/// A request that is being served, until it is dropped.
struct Served(Requests);

impl Requests {
    fn begin(&self) -> Served {
        self.0.send_modify(|running| *running += 1);
        Served(self.clone())
    }

    /// Waits until no request has run for `limit`.
    async fn idle(&self, limit: Duration) {
        let mut running = self.0.subscribe();
        loop {
            // It fails only without a sender, and `self` has one.
            _ = running.wait_for(|running| *running == 0).await;
            // Any change ends the wait, because a request may begin and end before this is polled again.
            if timeout(limit, running.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.0.send_modify(|running| *running -= 1);
    }
}
