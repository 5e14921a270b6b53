//! TLS of the clients of an address: the handshake, and the certificate, which may change while connections are open.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::config::Certificate;

/// The protocols that clients may choose from (ALPN), the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", HTTP1];
/// The protocol of HTTP/1 among them.
pub(super) const HTTP1: &[u8] = b"http/1.1";

/// The TLS settings of an address. Clones share the certificate.
#[derive(Clone)]
pub(crate) struct Tls {
    section: &'static str,
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current(ArcSwap<Certificate>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.0.load().certified()))
    }
}

impl Tls {
    /// Creates the settings of the address that `section` configures, for TLS 1.2 and 1.3.
    pub(crate) fn new(section: &'static str, certificate: &Certificate) -> Result<Self, Error> {
        let current = Arc::new(Current(ArcSwap::from_pointee(certificate.clone())));
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        // Clients keep their sessions themselves, so any number of them can resume one.
        config.ticketer = ring::Ticketer::new()?;
        Ok(Self {
            section,
            acceptor: Arc::new(config).into(),
            current,
        })
    }

    pub(crate) fn section(&self) -> &'static str {
        self.section
    }

    /// Returns the certificate that new connections get.
    pub(crate) fn certificate(&self) -> Arc<Certificate> {
        self.current.0.load_full()
    }

    /// Uses `certificate` for all new sessions from now on. Connections that are open go on, and a client may resume its session
    /// without a look at the certificate. Returns `true` if it is another
    /// one than before.
    pub(crate) fn replace(&self, certificate: Certificate) -> bool {
        let certificate = Arc::new(certificate);
        let before = self.current.0.swap(Arc::clone(&certificate));
        !certificate.is_same(&before)
    }

    /// Waits until the client has finished its handshake.
    pub(super) async fn accept<I>(&self, io: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(io).await
    }
}
