//! A connection of a client: a task in which its HTTP/1 requests run, and which spawns one for each HTTP/2 stream.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::BoxError;
use axum::body::Body as PageBody;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;

use super::Shared;
use super::activity::{Activity, Served};
use super::body::{ClientBody, ServedBody};
use super::drive::drive;
use super::hang_up;
use crate::pages;
use crate::track::{Tracked, TrackedFuture};

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
        answer(version, served, tracked, response)
    });
    let connection = protocols.serve_connection_with_upgrades(TokioIo::new(io), service);
    let driven = drive(connection, &activity, shared.limits, hang_up, &shared.stop);
    match driven.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error, "connection failed"),
        Err(reason) => tracing::debug!("connection dropped: {reason}"),
    }
}

/// Answers a tracked request with `response`, unless its body stalls. The body of a websocket runs in a task of its own,
/// because the server drops it.
async fn answer<F, B>(
    version: Version,
    served: Served,
    tracked: Tracked,
    response: F,
) -> Result<Response<impl Body<Data = Bytes, Error = BoxError>>, Infallible>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let answered = async {
        match served.exchange.response(response).await {
            Some(response) => response.map(Either::Left),
            None => body_timeout(version).map(Either::Right),
        }
    };
    let response = TrackedFuture::new(answered, tracked).await;
    let is_http2 = version == Version::HTTP_2;
    let is_websocket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    Ok(response.map(|body| match is_websocket {
        true => {
            tokio::spawn(body.collect());
            ServedBody::new(None, is_http2, served)
        }
        false => ServedBody::new(Some(body), is_http2, served),
    }))
}

/// The answer to a client that does not send the rest of its request.
fn body_timeout(version: Version) -> Response<PageBody> {
    let mut response = pages::error(
        StatusCode::REQUEST_TIMEOUT,
        "request_body_timeout",
        "the rest of the request's body did not arrive in time".to_owned(),
    );
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
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
