//! The `[upstream]` section: timeouts and TLS roots of connections to backends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::body::Incoming;
use serde::Deserialize;
use tower_triage::route::RouteBody;
use tower_triage::upstream::{Forward, TlsError};

use super::seconds;

/// The HTTP client that sends requests to backends.
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
            ca_file: None,
            roots: Vec::new(),
        }
    }
}

impl Upstream {
    /// Reads `ca_file` and builds the client. A relative path starts at `base`, the folder of the configuration.
    pub(super) fn load(mut self, base: &Path) -> Result<(Self, Client), InvalidUpstream> {
        let mut client = Client::new()
            .connect_timeout(self.connect_timeout)
            .first_byte_timeout(self.first_byte_timeout);
        if let Some(file) = &self.ca_file {
            let path = base.join(file);
            self.roots = match std::fs::read(&path) {
                Ok(roots) => roots,
                Err(source) => return Err(InvalidUpstream::Unreadable { path, source }),
            };
            client = match client.root_certificates(&self.roots) {
                Ok(client) => client,
                Err(source) => return Err(InvalidUpstream::Invalid { path, source }),
            };
        }
        Ok((self, client))
    }
}
