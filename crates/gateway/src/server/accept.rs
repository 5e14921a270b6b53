//! Acceptance of connections, up to the most that an address may have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::serve::Listener;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

use super::Shared;
use super::body::ClientBody;
use super::connection;

/// The time without a packet after which a client is asked whether it is still there, and the time between questions.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Accepts connections until the server is stopped. While the address has as many as it may, the next one waits.
pub(super) async fn run<H, F, B>(shared: Arc<Shared>, mut listener: TcpListener, handler: Arc<H>)
where
    H: Fn(Request<ClientBody>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    loop {
        let next = async {
            // The connection comes first: a listener that waits with a place in hand would keep it from the other workers.
            let (socket, peer) = Listener::accept(&mut listener).await;
            let place = Arc::clone(&shared.places).acquire_owned().await;
            (socket, peer, place)
        };
        let (socket, peer, place) = tokio::select! {
            next = next => next,
            () = shared.stop.stopped() => return, // refuses new connections
        };
        let Ok(place) = place else {
            return; // the places are never closed
        };
        set_options(&socket);
        let (shared, handler) = (Arc::clone(&shared), Arc::clone(&handler));
        tokio::spawn(connection::serve(shared, handler, socket, peer, place));
    }
}

fn set_options(socket: &TcpStream) {
    // Without Nagle's algorithm, a chunk of a stream does not wait for the ACK of the one before.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_INTERVAL);
    if let Err(error) = SockRef::from(socket).set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}
