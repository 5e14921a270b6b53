//! A connection of a client: a task in which its HTTP/1 requests run, and which spawns one for each HTTP/2 stream.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
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
use super::drive::drive;
use super::hang_up::{self, HangUpWatch};

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
    let (io, hang_up) = hang_up::watch(socket, Arc::clone(&activity));
    if shared.tls.is_none() {
        return serve_requests(shared, handler, io, hang_up, activity, peer, start).await;
    }
    // Boxed, so that a connection without TLS needs no memory for its state.
    Box::pin(async move {
        if let Some(io) = shake_hands(&shared, io).await {
            serve_requests(shared, handler, io, hang_up, activity, peer, start).await;
        }
    })
    .await;
}

/// Returns the stream of a client that finishes its handshake within the limit of a head.
async fn shake_hands(shared: &Shared, io: ClientIo) -> Option<TlsStream<ClientIo>> {
    let tls = shared.tls.as_ref()?;
    let shaken = tokio::select! {
        shaken = timeout(shared.limits.header, tls.accept(io)) => shaken,
        () = shared.stop.stopped() => return None,
    };
    match shaken {
        Ok(Ok(io)) => return Some(io),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("connection dropped: the client does not finish its handshake"),
    }
    None
}

/// Serves the requests that come over `io`, whose socket `hang_up` watches and which was accepted at `start`.
async fn serve_requests<H, F, B, I>(
    shared: Arc<Shared>,
    handler: Arc<H>,
    io: I,
    hang_up: HangUpWatch,
    activity: Arc<Activity>,
    peer: SocketAddr,
    start: Instant,
) where
    H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = hang_up.watched(io, Arc::clone(&activity));
    let mut protocols = Builder::new(StreamTasks(Arc::clone(&activity)));
    // Copies headers and chunk into one buffer: cheaper than a vectored write of the two.
    protocols.http1().writev(false);
    let (serving, requests) = (Arc::clone(&shared), Arc::clone(&activity));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let version = request.version();
        let served = requests.begin(version);
        let tracked = serving.tracker.begin(&mut request);
        let request = request.map(|body| ClientBody::new(body, &served.exchange));
        let response = tracked.in_scope(|| handler(request, peer));
        AnswerFuture::new(response, version, served, tracked)
    });
    let connection = protocols.serve_connection_with_upgrades(TokioIo::new(io), service);
    let driven = drive(
        connection,
        &activity,
        shared.limits,
        hang_up,
        &shared.stop,
        start,
    );
    match driven.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error, "connection failed"),
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
