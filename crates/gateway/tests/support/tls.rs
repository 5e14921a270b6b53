//! TLS between the gateway and its clients: certificates in files, and clients that trust them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio_util::either::Either;

use super::process::TIMEOUT;

/// A connection to the gateway.
pub(crate) type Socket = Either<TcpStream, TlsStream<TcpStream>>;

/// The socket below a connection.
pub(crate) fn tcp(socket: &Socket) -> &TcpStream {
    match socket {
        Either::Left(socket) => socket,
        Either::Right(socket) => socket.get_ref().0,
    }
}

/// The way in which clients speak with the main address.
pub(crate) enum Transport {
    Plain,
    Tls(Box<Authority>),
}

impl Transport {
    pub(crate) fn each() -> [Self; 2] {
        [Self::Plain, Self::Tls(Authority::new().into())]
    }

    /// The line of `[server]` that makes the gateway speak so.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Tls(authority) => authority.line(),
        }
    }

    pub(crate) async fn connect(&self, addr: &str) -> Socket {
        match self {
            Self::Plain => Either::Left(TcpStream::connect(addr).await.unwrap()),
            Self::Tls(authority) => Either::Right(authority.connect(addr, &[]).await),
        }
    }
}

/// A certificate authority, and the files in which the gateway finds a certificate of it. They are deleted on drop.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    pem: String,
    folder: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-{}-{count}.tls", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut roots = RootCertStore::empty();
        let own = params.self_signed(&key).unwrap();
        roots.add(own.der().clone()).unwrap();
        let authority = Self {
            issuer: Issuer::new(params, key),
            roots: roots.into(),
            pem: own.pem(),
            folder,
        };
        authority.issue();
        authority
    }

    /// Writes a new certificate and its key into the files of the gateway.
    pub(crate) fn issue(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.cert(), certificate.pem()).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    /// Writes the certificate of the authority itself into a file.
    pub(crate) fn root(&self) -> PathBuf {
        let path = self.folder.join("root.pem");
        fs::write(&path, &self.pem).unwrap();
        path
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// The key `tls` of `[server]`.
    pub(crate) fn line(&self) -> String {
        format!(
            "tls = {{ cert = {:?}, key = {:?} }}\n",
            self.cert(),
            self.key()
        )
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    /// The configuration of a client that trusts the authority.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.resumption = Resumption::disabled(); // each connection gets the certificate
        config
    }

    /// Connects a client that offers these protocols.
    pub(crate) async fn connect(&self, addr: &str, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut config = self.client(ALL_VERSIONS);
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        connect_with(config, addr).await
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) async fn connect_with(config: ClientConfig, addr: &str) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(addr).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, socket);
    let shaken = timeout(TIMEOUT, shaken).await;
    shaken.expect("the handshake does not end").unwrap()
}

/// The certificate that the gateway has shown.
pub(crate) fn shown(socket: &TlsStream<TcpStream>) -> &CertificateDer<'static> {
    let (_, session) = socket.get_ref();
    &session.peer_certificates().unwrap()[0]
}
