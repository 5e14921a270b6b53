//! A connection of a client: a task, in which its HTTP/1 requests run, and from which its HTTP/2 streams get theirs.
//!
//! It uses hyper directly. A web framework boxes the future of a request once per layer, and that costs more CPU
//! time than all decisions of the gateway.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::BoxError;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::activity::Activity;
use super::body::{ClientBody, ServedBody};
use super::hang_up::{self, HangUpWatch};
use super::timeouts::{Step, Timeouts};
use super::{Shared, Stop};
use crate::pages;
use crate::track::TrackedFuture;

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
        async move {
            let answered = async {
                match served.exchange.response(response).await {
                    Some(response) => response.map(Either::Left),
                    None => body_timeout(version).map(Either::Right),
                }
            };
            let response = TrackedFuture::new(answered, tracked).await;
            let is_http2 = version == Version::HTTP_2;
            Ok::<_, Infallible>(response.map(|body| ServedBody::new(body, is_http2, served)))
        }
    });
    let connection = protocols.serve_connection(TokioIo::new(io), service);
    let timeouts = Timeouts::new(shared.limits, Instant::now());
    match drive(connection, &shared.stop, &hang_up, timeouts, &activity).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error, "connection failed"),
        Err(reason) => tracing::debug!("connection dropped: {reason}"),
    }
}

/// Drives `connection` to its end, or returns why it has to be dropped, which cancels its requests.
async fn drive<C: GracefulConnection>(
    connection: C,
    stop: &Stop,
    hang_up: &HangUpWatch,
    mut timeouts: Timeouts,
    activity: &Activity,
) -> Result<C::Output, &'static str> {
    let mut connection = pin!(connection);
    let mut stopped = pin!(stop.stopped());
    let mut hung_up = pin!(hang_up.hung_up());
    let mut timer = pin!(sleep(timeouts.first_look()));
    // The wakers of `stopped` and `timer` stay those of this task, so they are set once and not at each poll.
    let (mut is_stop_seen, mut is_first, mut is_timer_set) = (false, true, false);
    poll_fn(|cx| {
        if !is_stop_seen && (is_first || stop.is_stopped()) {
            is_stop_seen = stopped.as_mut().poll(cx).is_ready();
            if is_stop_seen {
                connection.as_mut().graceful_shutdown();
            }
        }
        is_first = false;
        if !is_timer_set {
            // It comes first, because a task that has used up its budget cannot set a timer.
            is_timer_set = timer.as_mut().poll(cx).is_pending();
        }
        hang_up.before_poll();
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Ok(ended));
        }
        if timer.is_elapsed() {
            let now = Instant::now();
            let step = timeouts.look(activity, now);
            let next = match step {
                Step::End(reason) => return Poll::Ready(Err(reason)),
                Step::LookAfter(time) => time,
                Step::Close(time) => {
                    connection.as_mut().graceful_shutdown();
                    time
                }
            };
            timer.as_mut().reset(now + next);
            is_timer_set = false;
            cx.waker().wake_by_ref();
        }
        if hang_up.server_will_notice() {
            return Poll::Pending;
        }
        hung_up
            .as_mut()
            .poll(cx)
            .map(|()| Err("the client hung up"))
    })
    .await
}

/// The answer to a client that does not send the rest of its request.
fn body_timeout(version: Version) -> Response<axum::body::Body> {
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
    /// The server calls this right after the service has got the request of the stream.
    fn execute(&self, stream: F) {
        let task = tokio::spawn(stream);
        self.0.set_stream(task.abort_handle());
    }
}
