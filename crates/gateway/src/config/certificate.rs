//! The key `tls` of `[server]` and `[admin]`: a certificate and its private key, in PEM files that are read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};

use super::files;

/// The paths of a certificate and of its private key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
}

/// A certificate with its chain and its private key, as its files were when they were last read.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    files: TlsFiles,
    /// The SHA-256 of both files, because to parse them anew at each look would take longer.
    digest: [u8; 32],
    certified: Arc<CertifiedKey>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidTls {
    #[error("`{name}` of `tls`, {}, cannot be read: {error}", path.display())]
    Unreadable {
        name: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error(
        "`cert` of `tls`, {}, has no whole certificate: write that of the server first, then the others of its chain, in PEM",
        .0.display()
    )]
    NoCertificate(PathBuf),
    #[error("`cert` of `tls`, {}: the first certificate is invalid: {}", .0.display(), .1)]
    Certificate(PathBuf, Error),
    #[error(
        "`key` of `tls`, {}, has no whole private key: write one in PEM, as PKCS#8, PKCS#1 or SEC1, without a passphrase",
        .0.display()
    )]
    NoKey(PathBuf),
    #[error(
        "`key` of `tls`, {}: this key cannot be used: it must be of RSA with 2048 to 8192 bits, of ECDSA on P-256 or P-384, \
         or of Ed25519",
        .0.display()
    )]
    UnsupportedKey(PathBuf),
    #[error(
        "`key` of `tls`, {}, does not belong to the first certificate in `cert`, {}: name the files of one pair",
        .key.display(),
        .cert.display()
    )]
    Mismatch { cert: PathBuf, key: PathBuf },
}

impl TlsFiles {
    /// Reads both files. Relative paths are below `base`.
    pub(super) fn load(&self, base: &Path) -> Result<Certificate, InvalidTls> {
        let files = Self {
            cert: base.join(&self.cert),
            key: base.join(&self.key),
        };
        let contents = files.read()?;
        Certificate::parse(files, &contents)
    }

    fn read(&self) -> Result<Contents, InvalidTls> {
        Ok(Contents {
            cert: read("cert", &self.cert)?,
            key: read("key", &self.key)?,
        })
    }
}

/// The bytes of both files.
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn digest(&self) -> [u8; 32] {
        let both = Sha256::new()
            .chain_update(Sha256::digest(&self.cert))
            .chain_update(Sha256::digest(&self.key));
        both.finalize().into()
    }
}

impl Certificate {
    fn parse(files: TlsFiles, contents: &Contents) -> Result<Self, InvalidTls> {
        let chain: Result<Vec<_>, PemError> =
            CertificateDer::pem_slice_iter(&contents.cert).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| InvalidTls::NoCertificate(files.cert.clone()))?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key);
        let key = key.map_err(|_| InvalidTls::NoKey(files.key.clone()))?;
        let key = any_supported_type(&key);
        let key = key.map_err(|_| InvalidTls::UnsupportedKey(files.key.clone()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let TlsFiles { cert, key } = files;
                return Err(InvalidTls::Mismatch { cert, key });
            }
            Err(error) => return Err(InvalidTls::Certificate(files.cert, error)),
        }
        Ok(Self {
            files,
            digest: contents.digest(),
            certified: Arc::new(certified),
        })
    }

    /// Reads the files again. Returns their certificate, or `None` if they are as they were. It blocks.
    pub(crate) fn reread(&self) -> Result<Option<Self>, InvalidTls> {
        let contents = self.files.read()?;
        if contents.digest() == self.digest {
            return Ok(None);
        }
        Self::parse(self.files.clone(), &contents).map(Some)
    }

    /// Returns `true` if `other` was read from the same bytes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// Returns the scheme of an address with this certificate.
pub(crate) fn scheme(certificate: Option<&Certificate>) -> &'static str {
    match certificate {
        Some(_) => "https",
        None => "http",
    }
}

fn read(name: &'static str, path: &Path) -> Result<Vec<u8>, InvalidTls> {
    files::read(path).map_err(|error| {
        let path = path.to_owned();
        InvalidTls::Unreadable { name, path, error }
    })
}
