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
use tokio::net::TcpStream;

use super::Shared;
use super::activity::Activity;
use super::answer::AnswerFuture;
use super::body::ClientBody;
use super::drive::drive;
use super::hang_up;

/// Serves a client until its connection ends.
pub(super) async fn serve<H, F, B>(
    shared: Arc<Shared>,
    handler: Arc<H>,
    socket: TcpStream,
    peer: SocketAddr,
) where
    H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let activity = Arc::<Activity>::default();
    let (io, hang_up) = hang_up::watch(socket, Arc::clone(&activity));
    let mut protocols = Builder::new(StreamTasks(Arc::clone(&activity)));
    // Copies headers and chunk into one buffer: cheaper than a vectored write of the two.
    protocols.http1().writev(false);
    let (serving, requests) = (Arc::clone(&shared), Arc::clone(&activity));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let version = request.version();
        let served = requests.begin(version);
        let tracked = serving.tracker.begin(&mut request);
        let request = request.map(|body| ClientBody::new(body, &served.exchange));
        let response = handler(request, peer);
        AnswerFuture::new(response, version, served, tracked)
    });
    let connection = protocols.serve_connection_with_upgrades(TokioIo::new(io), service);
    let driven = drive(connection, &activity, shared.limits, hang_up, &shared.stop);
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
