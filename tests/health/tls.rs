//! The certificates that a check trusts.

use rcgen::{CertificateParams, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;

#[tokio::test]
async fn checks_trust_the_certificates_of_requests() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::ExplicitNoCa;
    let certificate = params.self_signed(&key).unwrap();
    let pem = certificate.pem();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let trusting = Forward::<Empty<Bytes>>::new().root_certificates(pem.as_bytes());

    for (forward, healthy) in [(trusting.unwrap(), true), (Forward::new(), false)] {
        let upstream = Upstream::bind().await;
        let url = format!("https://127.0.0.1:{}", upstream.addr().port());
        let checked = Endpoint::new("a", url.parse().unwrap()).health(once());
        let router = TestRouter::of([checked]);
        let checks = forward.checks(&router.handle);
        let serve = async {
            if let Ok(stream) = acceptor.accept(upstream.accept().await.0).await {
                Connection(stream).answer(WELL).await;
            }
        };
        tokio::join!(serve, soon(checks.first_results()));
        assert_eq!(router.endpoint("a").healthy(), healthy);
    }
}
