//! A connection of a client: a task in which its HTTP/1 requests run, and which spawns one for each HTTP/2 stream.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::BoxError;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};
use tokio_rustls::server::TlsStream;

use super::Shared;
use super::activity::Activity;
use super::answer::AnswerFuture;
use super::body::ClientBody;
use super::client_io::ClientIo;
use super::drive::Driver;
use super::hang_up::{self, HangUpWatch};
use super::tls::HTTP1;
use super::unread::STREAM_WINDOW;

/// The largest head of a request, in bytes. hyper answers a larger one with 431. A backend may end a connection of HTTP/2 at
/// one of 64 KiB, with all requests on it.
const LARGEST_HEAD: usize = 32 << 10;

/// The number of requests that a connection of HTTP/2 may have at a time.
const MAX_STREAMS: u32 = 200;

/// The number of bytes of all bodies of a connection that may be here before anything asks for them. The windows of the streams
/// are the bound, so bodies that wait never keep those of other requests from coming.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// The number of bytes of an answer that a connection holds while its client does not take them: of a connection of HTTP/1, or
/// of a stream of HTTP/2.
const SEND_BUFFER: usize = 64 << 10;

/// The number of bytes that all streams of HTTP/2 of an address may hold. Beyond it, each of them sends piece by piece.
pub(super) const UNSENT: usize = 64 << 20;

/// The connection of a client, which was accepted at `start`.
struct Client {
    hang_up: HangUpWatch,
    activity: Arc<Activity>,
    peer: SocketAddr,
    start: Instant,
}

/// Serves a client until its connection ends, which then gives `place` back.
pub(super) async fn serve<H, F, B>(
    shared: Arc<Shared>,
    handler: Arc<H>,
    socket: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
) where
    H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let start = Instant::now();
    let activity = Arc::new(Activity::new(place));
    let (mut io, hang_up) = hang_up::watch(socket, Arc::clone(&activity));
    let client = Client {
        hang_up,
        activity,
        peer,
        start,
    };
    if shared.tls.is_none() {
        let begun = in_time(&shared, io.begins_as_http1(), "the client does not begin").await;
        match begun {
            Some(Ok(is_http1)) => serve_requests(shared, handler, client, io, is_http1).await,
            Some(Err(error)) => tracing::debug!(%error, "connection failed"),
            None => {}
        }
        return;
    }
    // Boxed, so that a connection without TLS needs no memory for its state.
    Box::pin(async move {
        if let Some(io) = shake_hands(&shared, io).await {
            let is_http1 = io.get_ref().1.alpn_protocol() == Some(HTTP1);
            serve_requests(shared, handler, client, io, is_http1).await;
        }
    })
    .await;
}

/// Returns the stream of a client that finishes its handshake within the limit of a head.
async fn shake_hands(shared: &Shared, io: ClientIo) -> Option<TlsStream<ClientIo>> {
    let tls = shared.tls.as_ref()?;
    let late = "the client does not finish its handshake";
    match in_time(shared, tls.accept(io), late).await? {
        Ok(io) => Some(io),
        Err(error) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// Waits for the beginning of a connection, for as long as a head may take. Returns `None` if it takes longer, which is logged
/// as `late`, and when the server stops.
async fn in_time<T>(shared: &Shared, beginning: impl Future<Output = T>, late: &str) -> Option<T> {
    tokio::select! {
        begun = timeout(shared.limits.header, beginning) => {
            if begun.is_err() {
                tracing::debug!("connection dropped: {late}");
            }
            begun.ok()
        }
        () = shared.stop.stopped() => None,
    }
}

/// Serves the requests of a client that come over `io`. The client may speak HTTP/1 or HTTP/2, unless it `is_http1`.
async fn serve_requests<H, F, B, I>(
    shared: Arc<Shared>,
    handler: Arc<H>,
    client: Client,
    io: I,
    is_http1: bool,
) where
    H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Client {
        hang_up,
        activity,
        peer,
        start,
    } = client;
    let io = TokioIo::new(hang_up.watched(io, Arc::clone(&activity)));
    let (serving, requests) = (Arc::clone(&shared), Arc::clone(&activity));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let version = request.version();
        let served = requests.begin(version);
        let tracked = serving.tracker.begin(&mut request);
        // A client that waits for the answer before it sends the body is not asked for it.
        let is_drained = !request.body().is_end_stream() && !request.headers().contains_key(EXPECT);
        let memory = serving
            .body_memory
            .as_ref()
            .filter(|_| version == Version::HTTP_2);
        let request =
            request.map(|body| ClientBody::new(body, is_drained, &served.exchange, memory));
        let response = tracked.in_scope(|| handler(request, peer));
        let unsent = (version == Version::HTTP_2).then(|| serving.unsent.share());
        AnswerFuture::new(response, version, served, tracked, unsent)
    });
    let driver = Driver {
        activity: &activity,
        limits: shared.limits,
        hang_up,
        stop: &shared.stop,
        start,
    };
    if is_http1 {
        // Copies headers and chunk into one buffer: cheaper than a vectored write of the two.
        let protocol = http1::Builder::new()
            .writev(false)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(SEND_BUFFER)
            .serve_connection(io, service);
        log_end(
            driver
                .drive(protocol.with_upgrades(), |it| it.graceful_shutdown())
                .await,
        );
    } else {
        let mut protocols = auto::Builder::new(StreamTasks(Arc::clone(&activity)));
        // For HTTP/1, this builder limits a head only by the buffer.
        protocols.http1().writev(false).max_buf_size(LARGEST_HEAD);
        protocols
            .http2()
            .max_header_list_size(LARGEST_HEAD as u32)
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(SEND_BUFFER)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let connection = protocols.serve_connection_with_upgrades(io, service);
        log_end(driver.drive(connection, |it| it.graceful_shutdown()).await);
    }
}

/// Logs how a connection has ended.
fn log_end(ended: Result<Result<(), impl Into<BoxError>>, &'static str>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = error.into(), "connection failed"),
        Err(reason) => tracing::debug!("connection dropped: {reason}"),
    }
}

/// Spawns a task for each HTTP/2 stream.
#[derive(Clone)]
struct StreamTasks(Arc<Activity>);

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output: Send> + Send + 'static,
    F::Output: 'static,
{
    /// hyper calls this right after the service has got the request of the stream.
    fn execute(&self, stream: F) {
        let task = tokio::spawn(stream);
        self.0.set_stream(task.abort_handle());
    }
}
