//! A stand-in for TLS without the feature `tls`. An `https://` endpoint fails with an error that names the feature, so
//! that it does not look like an endpoint that is down.

use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connect::{Alpn, ConnectError};
use super::lookups::Tcp;

pub(super) type Stream = TokioIo<TcpStream>;

/// The TLS settings without the feature `tls`, which cannot connect to `https://` endpoints.
#[derive(Clone, Default)]
pub(super) struct Tls;

impl Tls {
    pub(super) async fn connect(
        self,
        mut tcp: Tcp,
        to: Uri,
        _: Alpn,
    ) -> Result<Stream, ConnectError> {
        if to.scheme() == Some(&Scheme::HTTPS) {
            return Err(ConnectError::Unsupported(
                "https:// needs the feature `tls` of tower-triage",
            ));
        }
        tcp.call(to).await.map_err(ConnectError::failed)
    }
}

/// Returns the socket of a connection.
pub(super) fn tcp_of(stream: &Stream) -> &TcpStream {
    stream.inner()
}
