//! TLS to endpoints, with the set of trusted certificates.

use std::sync::{Arc, LazyLock};

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::net::TcpStream;
use tower_service::Service;

use super::connect::{Alpn, ConnectError};
use super::lookups::Tcp;

pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The trusted certificates. `None` stands for those of the system.
#[derive(Clone, Default)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

/// The system's roots, which the first connection that needs them reads. `None` if the system has none.
static SYSTEM: LazyLock<Option<Arc<ClientConfig>>> = LazyLock::new(|| {
    let roots = builder().with_native_roots();
    let roots =
        roots.inspect_err(|error| tracing::warn!(%error, "https:// endpoints are out of reach"));
    roots.ok().map(config)
});

impl Tls {
    /// Trusts only the certificates in `pem`.
    pub(super) fn only(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let bad = |problem| TlsError::BadCertificate { index, problem };
            let certificate = certificate.map_err(|error| bad(in_words(&error)))?;
            let refused = |error| bad(format!("it is no X.509 certificate of a root ({error})"));
            roots.add(certificate).map_err(refused)?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        Ok(Self(Some(config(builder().with_root_certificates(roots)))))
    }

    pub(super) async fn connect(
        self,
        mut tcp: Tcp,
        to: Uri,
        protocol: Alpn,
    ) -> Result<Stream, ConnectError> {
        if to.scheme() != Some(&Scheme::HTTPS) {
            let stream = tcp.call(to).await.map_err(ConnectError::failed)?;
            return Ok(MaybeHttpsStream::Http(stream));
        }
        let config = self.0.or_else(|| SYSTEM.clone());
        let config = config.ok_or(ConnectError::Unsupported(
            "no root certificates were found on the system",
        ))?;
        tcp.enforce_http(false);
        let is_http2 = protocol == Alpn::Http2;
        let config = if is_http2 { for_http2(&config) } else { config };
        let connecting = HttpsConnector::from((tcp, config)).call(to);
        let stream = connecting.await.map_err(ConnectError::failed)?;
        match is_http2 && !has_agreed_to_http2(&stream) {
            true => Err(ConnectError::Unsupported(
                "it does not agree to HTTP/2 by ALPN, so `http2` must be off",
            )),
            false => Ok(stream),
        }
    }
}

/// Returns the same configuration with HTTP/2 as the only protocol.
fn for_http2(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![H2.to_vec()];
    Arc::new(config)
}

/// The name of HTTP/2 over TLS.
const H2: &[u8] = b"h2";

fn has_agreed_to_http2(stream: &Stream) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(H2),
    }
}

/// Returns the socket of a connection.
pub(super) fn tcp_of(stream: &Stream) -> &TcpStream {
    match stream {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    }
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    // The provider is explicit, because the program may not have installed a default one.
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions")
}

fn config(trusting: ConfigBuilder<ClientConfig, WantsClientCert>) -> Arc<ClientConfig> {
    let mut config = trusting.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The reason why root certificates were rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The text lacks a line `-----BEGIN CERTIFICATE-----`.
    #[error("there is no PEM certificate in it: it must have a line `-----BEGIN CERTIFICATE-----`")]
    NoCertificate,
    /// A certificate in the text cannot be read.
    #[error("certificate {} cannot be read: {problem}", index + 1)]
    BadCertificate {
        /// The index of the certificate in the text, counted from 0.
        index: usize,
        /// The problem with the certificate, in words.
        problem: String,
    },
}

/// Returns the problem in words, because the library's own message shows lists of bytes.
fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "its line `-----END ...-----` is missing".into(),
        pem::Error::IllegalSectionStart { .. } => {
            "its line `-----BEGIN ...` ends without 5 hyphens".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn certificate() -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    fn problem(pem: &str) -> String {
        let error = Tls::only(pem.as_bytes()).err();
        error.expect("a bad bundle").to_string()
    }

    #[test]
    fn a_bundles_certificates_are_trusted_among_other_sections() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let pem = format!("# ours\n{}\n{key}\n{}", certificate(), certificate());
        assert!(Tls::only(pem.as_bytes()).is_ok());
    }

    #[test]
    fn a_bad_bundle_is_refused_with_the_problem() {
        let good = certificate();
        let cut = &good[..good.len() / 2];
        let no_base64 = "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = KeyPair::generate().unwrap().serialize_pem();
        for (pem, said) in [
            ("", "no PEM certificate"),
            ("hello", "no PEM certificate"),
            (&key, "no PEM certificate"),
            (cut, "certificate 1 cannot be read: its line `-----END"),
            (
                "-----BEGIN CERTIFICATE--",
                "1 cannot be read: its line `-----BEGIN",
            ),
            (no_base64, "certificate 1 cannot be read: base64"),
            (
                &format!("{good}{no_base64}"),
                "certificate 2 cannot be read: base64",
            ),
            (
                no_certificate,
                "certificate 1 cannot be read: it is no X.509",
            ),
            (
                &format!("{good}{no_certificate}"),
                "certificate 2 cannot be read: it is no X.509",
            ),
        ] {
            assert!(problem(pem).contains(said), "{pem}: {}", problem(pem));
        }
    }
}
