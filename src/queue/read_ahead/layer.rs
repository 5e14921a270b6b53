//! The layer of a queue that reads the bodies of waiting requests.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::Limits;
use super::inner::ReadAheadInner;
use super::service::ReadAhead;
use crate::http::BodyMemory;
use crate::queue::handle::QueueHandle;
use crate::queue::layer::QueueLayer;

/// The largest body that is read by default, which is also the largest message of a tonic server by default.
const MAX_BODY: usize = 4 << 20;

/// A layer that reads the bodies of the requests that wait in the queue of the layer `L`, so that they do not hold up the other
/// requests of their HTTP/2 connection. Created by [`QueueLayer::read_ahead`], or by [`new`](Self::new) around another layer.
///
/// # The fault that it prevents
///
/// A server of HTTP/2 lets a client send a window of each request's body, and a window for all bodies of a connection. hyper,
/// axum and tonic have 1 MiB for either by default. The bytes of a body that nobody reads use up both. Behind a limit, the
/// bodies of waiting requests are such bodies. When they fill the window of the connection, the client can't send the bodies of
/// the requests that have the slots, so all of them stand still: for ever, or until the waits time out.
///
/// A larger window for the connection prevents it, too, and costs no copy of a body. It needs the window of a stream for each
/// stream that the server allows, which is 200 by default. With hyper, also under axum:
///
/// ```
/// # use hyper_util::rt::TokioExecutor;
/// # use hyper_util::server::conn::auto;
/// const WINDOW: u32 = 64 << 10; // of a stream
/// let mut server = auto::Builder::new(TokioExecutor::new());
/// server.http2().initial_stream_window_size(WINDOW).initial_connection_window_size(200 * WINDOW);
/// ```
///
/// With tonic:
///
/// ```
/// # use tonic::transport::Server;
/// const WINDOW: u32 = 64 << 10; // of a stream
/// let server = Server::builder()
///     .initial_stream_window_size(WINDOW)
///     .initial_connection_window_size(200 * WINDOW);
/// # let _: Server = server;
/// ```
///
/// This layer is for servers whose windows are out of reach, such as `axum::serve`, and for bodies that are larger than a window.
///
/// # The bodies that are read
///
/// - Only those of HTTP/2 and above, from the first poll of the response future until the inner service is called. A request
///   that finds a slot free is passed on unread. So is one that expects `100 Continue`.
/// - Each body up to [`max_body`](Self::max_body). A larger one is left unread if its length is announced, or else from there
///   on.
/// - All of them together up to the memory. While that is full, a further body stays unread until some of the memory is given
///   back, and counts as if there was no such layer. A body counts until the inner service asks for it.
/// - With a [response that begins while its request waits](QueueLayer#status-while-waiting), until the response begins.
///
/// The inner service gets a [`ReadAheadBody`](super::ReadAheadBody), so it has to accept any body, as the routers of axum and
/// tonic do. An error of the body comes to the inner service, behind what was read before it. A client that resets its stream
/// leaves the queue at once, because the server drops its future.
///
/// A request with a body over HTTP/2 costs an allocation, even if it finds a slot free. All other requests cost nothing more.
#[derive(Clone)]
pub struct ReadAheadLayer<L> {
    layer: L,
    limits: Arc<Limits>,
}

impl<L> ReadAheadLayer<L> {
    /// Creates a layer around `layer`, which lets requests wait. The bodies of all waiting requests use up to `memory`.
    ///
    /// This is for layers other than a [`QueueLayer`]:
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tower_triage::queue::{BodyMemory, ReadAheadLayer};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8)).per_key(|request| request.method().as_str());
    /// let app: Router = Router::new()
    ///     .route("/", post(|body: String| async { body }))
    ///     .layer(ReadAheadLayer::new(queue, BodyMemory::new(64 << 20)));
    /// ```
    #[must_use]
    pub fn new(layer: L, memory: BodyMemory) -> Self {
        let limits = Limits {
            memory,
            max_body: MAX_BODY,
        };
        Self {
            layer,
            limits: Arc::new(limits),
        }
    }

    /// Sets the largest body that is read, in bytes. The default is 4 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.limits).max_body = bytes;
        self
    }
}

impl<P> ReadAheadLayer<QueueLayer<P>> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.layer.handle()
    }
}

impl<S, L: Layer<ReadAheadInner<S>>> Layer<S> for ReadAheadLayer<L> {
    type Service = ReadAhead<L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        ReadAhead::new(self.layer.layer(ReadAheadInner(inner)), &self.limits)
    }
}

impl<L: fmt::Debug> fmt::Debug for ReadAheadLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAheadLayer")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}
