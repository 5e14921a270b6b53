//! The `[upstream]` section: timeouts and TLS roots of connections to backends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use http_body::Body as HttpBody;
use http_body_util::Full;
use serde::Deserialize;
use tower_triage::route::RouteBody;
use tower_triage::upstream::{Forward, TlsError};

use super::{files, seconds};
use crate::server::ClientBody;

/// The HTTP client that sends requests to backends.
pub(crate) type Client = Forward<RouteBody<ClientBody>>;

/// The HTTP client of a gateway that stores requests: it has whole bodies.
pub(crate) type StoredClient = Forward<RouteBody<Full<Bytes>>>;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Upstream {
    #[serde(
        rename = "connect_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    connect_timeout: Duration,
    #[serde(
        rename = "first_byte_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    first_byte_timeout: Duration,
    /// Time between two pieces of an answer.
    #[serde(
        rename = "idle_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    idle_timeout: Duration,
    /// PEM file of the only roots that are trusted for `https://` backends, instead of the system's.
    ca_file: Option<PathBuf>,
    /// Content of `ca_file`, so that a reload notices when it changes.
    #[serde(skip)]
    roots: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidUpstream {
    #[error("`ca_file` {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`ca_file` {}: {source}", path.display())]
    Invalid { path: PathBuf, source: TlsError },
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            ca_file: None,
            roots: Vec::new(),
        }
    }
}

impl Upstream {
    /// Reads `ca_file` and builds the client. A relative path starts at `base`, the folder of the configuration.
    pub(super) fn load(mut self, base: &Path) -> Result<(Self, Client), InvalidUpstream> {
        if let Some(file) = &self.ca_file {
            let path = base.join(file);
            self.roots = match files::read(&path) {
                Ok(roots) => roots,
                Err(source) => return Err(InvalidUpstream::Unreadable { path, source }),
            };
        }
        match self.client() {
            Ok(client) => Ok((self, client)),
            Err(source) => {
                let path = base.join(self.ca_file.unwrap_or_default());
                Err(InvalidUpstream::Invalid { path, source })
            }
        }
    }

    /// Builds a client without connections. Clones of it share theirs.
    pub(crate) fn client<B>(&self) -> Result<Forward<RouteBody<B>>, TlsError>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let client = Forward::new()
            .connect_timeout(self.connect_timeout)
            .first_byte_timeout(self.first_byte_timeout)
            .idle_timeout(self.idle_timeout);
        match self.ca_file {
            Some(_) => client.root_certificates(&self.roots),
            None => Ok(client),
        }
    }
}
