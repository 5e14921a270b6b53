//! Stands in for TLS without feature `tls`: an `https://` endpoint fails with an error of its own, not as one that is
//! down.

use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connect::ConnectError;
use super::lookups::Tcp;

pub(super) type Stream = TokioIo<TcpStream>;

/// Trusts no certificate.
#[derive(Clone, Default)]
pub(super) struct Tls;

impl Tls {
    pub(super) async fn connect(self, mut tcp: Tcp, to: Uri) -> Result<Stream, ConnectError> {
        if to.scheme() == Some(&Scheme::HTTPS) {
            return Err(ConnectError::NoTls(
                "https:// needs the feature `tls` of tower-triage",
            ));
        }
        tcp.call(to).await.map_err(ConnectError::failed)
    }
}
