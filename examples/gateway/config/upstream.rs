//! `[upstream]`: how the gateway reaches its backends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::body::Incoming;
use serde::Deserialize;
use tower_triage::route::RouteBody;
use tower_triage::upstream::{Forward, TlsError};

use super::seconds;

/// What sends a request to its backend.
pub(crate) type Client = Forward<RouteBody<Incoming>>;

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
    /// The only ones whose signature on an `https://` backend's certificate counts.
    ca_file: Option<PathBuf>,
    /// What is in that file.
    #[serde(skip)]
    roots: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("`ca_file` {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`ca_file` {}: {source}", path.display())]
    Useless { path: PathBuf, source: TlsError },
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(600),
            ca_file: None,
            roots: Vec::new(),
        }
    }
}

impl Upstream {
    /// Reads its files, which stand `beside` the configuration if they are not said to be elsewhere.
    pub(super) fn open(mut self, beside: &Path) -> Result<(Self, Client), UpstreamError> {
        let mut client = Client::new()
            .connect_timeout(self.connect_timeout)
            .first_byte_timeout(self.first_byte_timeout);
        if let Some(file) = &self.ca_file {
            let path = beside.join(file);
            self.roots = match std::fs::read(&path) {
                Ok(roots) => roots,
                Err(source) => return Err(UpstreamError::Unreadable { path, source }),
            };
            client = match client.root_certificates(&self.roots) {
                Ok(client) => client,
                Err(source) => return Err(UpstreamError::Useless { path, source }),
            };
        }
        Ok((self, client))
    }
}
