//! The HTTP server of an address. Its connections run on the runtime that starts it, or on workers with runtimes of
//! their own.

mod accept;
mod activity;
mod answer;
mod body;
mod client_io;
mod connection;
mod drive;
mod exchange;
mod hang_up;
mod listen;
mod timeouts;
mod tls;
mod unread;
mod wait;
mod watched_io;
mod workers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_triage::openai::BodyMemory;

use crate::answer_memory::AnswerMemory;
use crate::config::ServerConfig;
use crate::pages::Pages;
use crate::track::Tracker;
pub(crate) use body::ClientBody;
pub(crate) use listen::listen;
use timeouts::Limits;
pub(crate) use tls::Tls;
use workers::Workers;

/// A server that accepts connections until it is stopped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    workers: Workers,
}

/// The state that all connections of a server share.
struct Shared {
    stop: Stop,
    limits: Limits,
    max_connections: u32,
    /// One for each connection that may be open.
    places: Arc<Semaphore>,
    tracker: Arc<Tracker>,
    /// The memory of what is to be sent over HTTP/2.
    unsent: AnswerMemory,
    /// `None`: plain HTTP.
    tls: Option<Tls>,
    /// The memory of all request bodies.
    body_memory: Option<BodyMemory>,
}

/// The request to stop.
struct Stop {
    /// A copy of the token's state. Connections look at it each time they are polled, and the token has a lock.
    is_stopped: AtomicBool,
    token: CancellationToken,
}

impl Stop {
    fn is_stopped(&self) -> bool {
        // Relaxed, because the token wakes the connections once this is set.
        self.is_stopped.load(Ordering::Relaxed)
    }

    async fn stopped(&self) {
        self.token.cancelled().await;
    }
}

impl Server {
    /// Creates a server without a listener, which serves `max_connections` at a time. Its requests are tracked for `pages`,
    /// whose endless responses end when the server is stopped.
    pub(crate) fn new(
        config: &ServerConfig,
        max_connections: u32,
        pages: &Pages,
        tls: Option<Tls>,
    ) -> Self {
        let shared = Shared {
            stop: Stop {
                is_stopped: AtomicBool::new(false),
                token: pages.closing.clone(),
            },
            limits: Limits::from(config),
            max_connections,
            places: Arc::new(Semaphore::new(max_connections as usize)),
            tracker: Arc::new(Tracker::new(&pages.handle, &pages.live).counting(&pages.statuses)),
            unsent: AnswerMemory::new(connection::UNSENT),
            tls,
            body_memory: pages.handle.router().body_memory().cloned(),
        };
        Self {
            shared: Arc::new(shared),
            workers: Workers::new(),
        }
    }

    /// Answers each request with what `handler` returns, and logs it, on the runtime of the caller.
    pub(crate) fn start<H, F, B>(&self, listener: TcpListener, handler: H) -> io::Result<()>
    where
        H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(accept::run(shared, listener, Arc::new(handler)));
        Ok(())
    }

    /// Answers each request with what `handler` returns, and logs it, on a worker of its own.
    pub(crate) fn start_worker<H, F, B>(
        &mut self,
        listener: TcpListener,
        handler: H,
    ) -> io::Result<()>
    where
        H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.workers.start(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => accept::run(shared, listener, Arc::new(handler)).await,
                Err(error) => tracing::error!(%error, "a worker cannot accept connections"),
            }
        })
    }

    /// Stops accepting connections, and closes each one as soon as it has no response to send.
    pub(crate) fn stop(&self) {
        self.shared.stop.is_stopped.store(true, Ordering::Relaxed);
        self.shared.stop.token.cancel();
    }

    /// Waits until the last connection is closed. It must be stopped.
    pub(crate) async fn stopped(&self) {
        let all = self.shared.max_connections;
        _ = self.shared.places.acquire_many(all).await; // fails only if the semaphore is closed
    }

    pub(crate) fn is_over_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.shared.max_connections as usize - self.shared.places.available_permits()
    }

    /// Returns the runtimes of the workers.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        self.workers.runtimes().to_vec()
    }

    /// Ends the workers, and drops the connections that are still open.
    pub(crate) async fn end(self) {
        self.workers.end().await;
    }
}
