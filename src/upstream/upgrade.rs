//! Websockets: connections that change their protocol, and whose bytes are then copied in both directions.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use super::exchange::Answer;
use super::pool::Release;
use super::redirect::Mount;
use super::websocket_frames::WebsocketFrames;
use super::{ForwardBody, headers};
use crate::endpoints::EndpointRef;
use crate::gate::ClientStall;
use crate::http::IdleTimer;

/// The protocol that passes. Others would get past the rules for requests: over `h2c`, a client could send any request.
const WEBSOCKET: &str = "websocket";

/// The time between two pieces of data on a websocket from which on it is silent.
const SILENT: Duration = Duration::from_secs(1);
/// The frame that closes a websocket because its slot was recalled: 1013, "try again later".
const TRY_AGAIN_LATER: [u8; 4] = [0x88, 0x02, 0x03, 0xf5];

/// The client's side of a websocket that a request asks for.
pub(super) struct Upgrade {
    client: OnUpgrade,
    /// The stalls of the client, for which its slot may be recalled. `None` if tenants do not share slots.
    stall: Option<Arc<ClientStall>>,
}

/// Takes the client's side of the upgrade that a request asks for, if it asks for a websocket and the server in front allows
/// it.
pub(super) fn take_requested(
    parts: &mut Parts,
    stall: Option<&Arc<ClientStall>>,
) -> Option<Upgrade> {
    if parts.method != Method::GET || !asks_for_websocket(&parts.headers) {
        return None;
    }
    let client = parts.extensions.remove::<OnUpgrade>()?;
    let stall = stall.cloned();
    Some(Upgrade { client, stall })
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
pub(super) fn switched(
    (mut response, connection): Answer,
    (endpoint, mount): (&EndpointRef, Option<&Mount>),
    upgrade: Upgrade,
    idle: Duration,
) -> Response<ForwardBody> {
    debug_assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let bytes = WebsocketBytes::default();
    let endpoint_side = hyper::upgrade::on(&mut response);
    let tunnel = Tunnel::new(upgrade, endpoint_side, connection, bytes.clone(), idle);
    response.extensions_mut().insert(bytes);
    let headers = response.headers_mut();
    headers::to_client(headers, endpoint.url(), mount);
    // A 101 has no body, so a client would take the length for an error (RFC 9110, 8.6).
    headers.remove(CONTENT_LENGTH);
    set_headers(headers);
    response.map(|_: Incoming| ForwardBody::tunnel(tunnel))
}

/// The numbers of bytes that have passed over a websocket, which is an extension of its 101. They grow until it ends.
#[derive(Debug, Clone, Default)]
pub struct WebsocketBytes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    // Relaxed, because each number is complete in itself.
    from_client: AtomicU64,
    from_endpoint: AtomicU64,
}

impl WebsocketBytes {
    /// Returns the number of bytes from the client.
    #[must_use]
    pub fn from_client(&self) -> u64 {
        self.0.from_client.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes from the endpoint.
    #[must_use]
    pub fn from_endpoint(&self) -> u64 {
        self.0.from_endpoint.load(Ordering::Relaxed)
    }

    fn all(&self) -> u64 {
        self.from_client().wrapping_add(self.from_endpoint())
    }
}

/// The bytes of a websocket on their way between a client and an endpoint. It is driven by whoever polls the body of the
/// answer, and dropping it closes both connections.
pub(super) struct Tunnel {
    // The mutex is never locked. It makes the tunnel `Sync`, because only an exclusive reference reaches its content.
    copying: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
    bytes: WebsocketBytes,
    /// The number of bytes that had passed when the tunnel was last polled.
    seen: u64,
    /// Set when data rather than pings has come from either side.
    has_data: Arc<AtomicBool>,
    idle: IdleTimer,
    stall: Option<Arc<ClientStall>>,
}

impl Tunnel {
    fn new(
        Upgrade { client, stall }: Upgrade,
        endpoint: OnUpgrade,
        connection: Box<dyn Release>,
        bytes: WebsocketBytes,
        idle: Duration,
    ) -> Self {
        let (counted, has_data) = (bytes.clone(), Arc::new(AtomicBool::new(false)));
        let noted = has_data.clone();
        let recalled = stall.as_ref().map(|stall| stall.recalled().clone());
        let recalled = recalled.unwrap_or_default();
        if let Some(stall) = &stall {
            stall.on_upgraded();
            stall.begin_after(SILENT);
        }
        let copying = Box::pin(async move {
            match copy(client, endpoint, (&counted.0, &noted), &recalled).await {
                Ok((sent, received)) => tracing::debug!(sent, received, "a websocket has ended"),
                Err(error) => tracing::debug!(%error, "a websocket broke off"),
            }
            drop(connection);
        });
        Self {
            copying: Mutex::new(copying),
            bytes,
            seen: 0,
            has_data,
            idle: IdleTimer::new(idle),
            stall,
        }
    }

    /// Copies bytes until both sides have ended, or neither has sent any for the time limit.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let copying = self.copying.get_mut();
        let copying = copying.unwrap_or_else(PoisonError::into_inner);
        if copying.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let bytes = self.bytes.all();
        if std::mem::replace(&mut self.seen, bytes) != bytes {
            self.idle.on_piece();
        }
        if let Some(stall) = &self.stall
            && self.has_data.swap(false, Ordering::Relaxed)
        {
            stall.end(0);
            stall.begin_after(SILENT);
        }
        ready!(self.idle.poll_expired(cx));
        tracing::debug!(limit = ?self.idle.limit(), "a websocket was silent for too long");
        Poll::Ready(())
    }
}

/// Copies bytes in both directions, counts them as they come, and notes if there is data among them. Returns the number of
/// bytes from the client and from the endpoint. If the slot is recalled, tells the client and ends.
async fn copy(
    client: OnUpgrade,
    endpoint: OnUpgrade,
    (counts, has_data): (&Counts, &AtomicBool),
    recalled: &CancellationToken,
) -> io::Result<(u64, u64)> {
    let count_in = |count| {
        let mut frames = WebsocketFrames::default();
        move |bytes: &[u8]| {
            let count: &AtomicU64 = count;
            count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if frames.read(bytes) {
                has_data.store(true, Ordering::Relaxed);
            }
        }
    };
    // Each side is upgraded by the task of its connection, so one may be awaited after the other.
    let endpoint = TokioIo::new(endpoint.await.map_err(io::Error::other)?);
    let client = TokioIo::new(client.await.map_err(io::Error::other)?);
    let (mut endpoint, mut client) = (
        InspectReader::new(endpoint, count_in(&counts.from_endpoint)),
        InspectReader::new(client, count_in(&counts.from_client)),
    );
    let ended = {
        let mut copied = pin!(copy_bidirectional(&mut client, &mut endpoint));
        let mut recalled = pin!(recalled.cancelled());
        poll_fn(|cx| match copied.as_mut().poll(cx) {
            Poll::Ready(copied) => Poll::Ready(Some(copied)),
            Poll::Pending => recalled.as_mut().poll(cx).map(|()| None),
        })
        .await
    };
    if let Some(ended) = ended {
        return ended;
    }
    client.write_all(&TRY_AGAIN_LATER).await?;
    client.shutdown().await?;
    Err(io::Error::other(
        "others needed the slot of a silent client",
    ))
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
