//! Websockets: connections that change their protocol, and whose bytes are then copied in both directions.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio_util::io::InspectReader;

use super::exchange::Answer;
use super::pool::Release;
use super::{ForwardBody, headers};
use crate::http::IdleTimer;

/// The protocol that passes. Others would get past the rules for requests: over `h2c`, a client could send any request.
const WEBSOCKET: &str = "websocket";

/// Takes the client's side of the upgrade that a request asks for, if it asks for a websocket and the server in front allows
/// it.
pub(super) fn take_requested(parts: &mut Parts) -> Option<OnUpgrade> {
    if parts.method != Method::GET || !asks_for_websocket(&parts.headers) {
        return None;
    }
    parts.extensions.remove::<OnUpgrade>()
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let protocol = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Sets the headers of a request for a websocket, or of the answer to one.
pub(super) fn set_headers(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Returns the answer to the client of an endpoint that switches to the protocol of a websocket. Its body is the tunnel
/// between the two, and ends when no byte has passed for `idle`.
pub(super) fn switched(answer: Answer, client: OnUpgrade, idle: Duration) -> Response<ForwardBody> {
    let (mut response, connection) = answer;
    debug_assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let tunnel = Tunnel::new(client, hyper::upgrade::on(&mut response), connection, idle);
    headers::to_client(response.headers_mut());
    set_headers(response.headers_mut());
    response.map(|_: Incoming| ForwardBody::tunnel(tunnel))
}

/// The bytes of a websocket on their way between a client and an endpoint. It is driven by whoever polls the body of the
/// answer, and dropping it closes both connections.
pub(super) struct Tunnel {
    // The mutex is never locked. It makes the tunnel `Sync`, because only an exclusive reference reaches its content.
    copying: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set when bytes have come from either side.
    moved: Arc<AtomicBool>,
    idle: IdleTimer,
}

impl Tunnel {
    fn new(
        client: OnUpgrade,
        endpoint: OnUpgrade,
        connection: Box<dyn Release>,
        idle: Duration,
    ) -> Self {
        let moved = Arc::new(AtomicBool::new(false));
        let noted = moved.clone();
        let copying = Box::pin(async move {
            match copy(client, endpoint, &noted).await {
                Ok((sent, received)) => tracing::debug!(sent, received, "a websocket has ended"),
                Err(error) => tracing::debug!(%error, "a websocket broke off"),
            }
            drop(connection);
        });
        Self {
            copying: Mutex::new(copying),
            moved,
            idle: IdleTimer::new(idle),
        }
    }

    /// Copies bytes until both sides have ended, or neither has sent any for the time limit.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let copying = self.copying.get_mut();
        let copying = copying.unwrap_or_else(PoisonError::into_inner);
        if copying.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.moved.swap(false, Ordering::Relaxed) {
            self.idle.on_piece();
        }
        ready!(self.idle.poll_expired(cx));
        tracing::debug!(limit = ?self.idle.limit(), "a websocket was silent for too long");
        Poll::Ready(())
    }
}

/// Copies bytes in both directions, and sets `moved` when some have come. Returns the number of bytes from the client and from
/// the endpoint.
async fn copy(
    client: OnUpgrade,
    endpoint: OnUpgrade,
    moved: &AtomicBool,
) -> io::Result<(u64, u64)> {
    let note = |bytes: &[u8]| {
        if !bytes.is_empty() {
            moved.store(true, Ordering::Relaxed);
        }
    };
    // Each side is upgraded by the task of its connection, so one may be awaited after the other.
    let endpoint = TokioIo::new(endpoint.await.map_err(io::Error::other)?);
    let client = TokioIo::new(client.await.map_err(io::Error::other)?);
    let (mut endpoint, mut client) = (
        InspectReader::new(endpoint, note),
        InspectReader::new(client, note),
    );
    copy_bidirectional(&mut client, &mut endpoint).await
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
