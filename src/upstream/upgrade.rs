//! Websockets: connections that change their protocol, and whose bytes are then copied in both directions.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::exchange::Answer;
use super::pool::Release;
use super::{ForwardBody, headers};

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
/// between the two.
pub(super) fn switched(answer: Answer, client: OnUpgrade) -> Response<ForwardBody> {
    let (mut response, connection) = answer;
    debug_assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let tunnel = Tunnel::new(client, hyper::upgrade::on(&mut response), connection);
    headers::to_client(response.headers_mut());
    set_headers(response.headers_mut());
    response.map(|_: Incoming| ForwardBody::tunnel(tunnel))
}

/// The bytes of a websocket on their way between a client and an endpoint. It is driven by whoever polls the body of the
/// answer, and dropping it closes both connections.
// The mutex is never locked. It makes the tunnel `Sync`, because only an exclusive reference reaches its content.
pub(super) struct Tunnel(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Tunnel {
    fn new(client: OnUpgrade, endpoint: OnUpgrade, connection: Box<dyn Release>) -> Self {
        Self(Mutex::new(Box::pin(async move {
            match copy(client, endpoint).await {
                Ok((sent, received)) => tracing::debug!(sent, received, "a websocket has ended"),
                Err(error) => tracing::debug!(%error, "a websocket broke off"),
            }
            drop(connection);
        })))
    }

    /// Copies bytes until both sides have ended.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let copying = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        copying.as_mut().poll(cx)
    }
}

/// Copies bytes in both directions. Returns the number of bytes from the client and from the endpoint.
async fn copy(client: OnUpgrade, endpoint: OnUpgrade) -> io::Result<(u64, u64)> {
    // Each side is upgraded by the task of its connection, so one may be awaited after the other.
    let mut endpoint = TokioIo::new(endpoint.await.map_err(io::Error::other)?);
    let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
    copy_bidirectional(&mut client, &mut endpoint).await
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
