//! The connector to endpoints. One timeout covers the name's look-up, TCP and TLS.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter::successors;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::time::timeout;

use super::lookups::{Lookups, Tcp};
use super::tls::{Stream, Tls, tcp_of};

/// The default timeout of a connection attempt, which is long enough for any network that works.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which the system probes a silent connection over HTTP/2, and the time between two probes. Such a connection
/// carries the requests of many clients, so a host that is gone must not hold it until they time out. The protocol's own
/// `PING` would do the same, but gRPC servers close connections over which it comes more often than every 5 min.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The number of probes without an answer after which the system closes the connection.
const KEEPALIVE_TRIES: u32 = 3;

/// The time after which Linux closes such a connection if the host does not acknowledge what was sent, or takes nothing of it. A
/// busy host may be slow to take an upload.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNTAKEN_LIMIT: Duration = Duration::from_secs(120);

/// The protocol that a TLS connection is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alpn {
    Http1,
    Http2,
}

/// The default of the time for which a connection takes requests.
const MAX_AGE: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(crate) struct Connector {
    tcp: Tcp,
    tls: Tls,
    limit: Duration,
    max_age: Duration,
    lookups: Lookups,
}

impl Connector {
    pub(super) fn new(lookups: Lookups) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(lookups.clone());
        tcp.set_nodelay(true);
        let (tls, limit) = (Default::default(), CONNECT_TIMEOUT);
        let connector = Self {
            tcp,
            tls,
            limit,
            max_age: MAX_AGE,
            lookups,
        };
        connector.within(limit)
    }

    /// Returns the connector with another time for which a connection takes requests.
    pub(super) fn aging(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// Returns the longest time for which a connection takes requests.
    pub(super) fn max_age(&self) -> Duration {
        self.max_age
    }

    /// Returns the addresses of the host of `to`. `None` if the host is an address itself, or could not be looked up.
    pub(super) async fn addresses(&self, to: &Uri) -> Option<Vec<IpAddr>> {
        let host = to.host()?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<IpAddr>().is_ok() {
            return None;
        }
        let name = Name::from_str(host).ok()?;
        let found = self.lookups.clone().addresses(name).await.ok()?;
        Some(found.map(|address| address.ip()).collect())
    }

    /// Returns the connector with another timeout.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        // This shares the time among the addresses of a name, so that a dead address leaves some time for the next.
        self.tcp.set_connect_timeout(Some(limit));
        self.limit = limit;
        self
    }

    /// Returns the connector with trust in other certificates.
    #[cfg(feature = "tls")]
    pub(super) fn trusting(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Connects to the host of `to`, for HTTP/1.1.
    pub(super) async fn connect(&self, to: Uri) -> Result<Stream, ConnectError> {
        let stream = self.tls.clone().connect(self.tcp.clone(), to, Alpn::Http1);
        self.in_time(stream).await
    }

    /// Connects to the host of `to`, for HTTP/2. The operating system closes the connection if the host is gone.
    pub(super) async fn connect_http2(&self, to: Uri) -> Result<Stream, ConnectError> {
        let mut tcp = self.tcp.clone();
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        tcp.set_tcp_user_timeout(Some(UNTAKEN_LIMIT));
        let stream = self.tls.clone().connect(tcp, to, Alpn::Http2);
        self.in_time(stream).await
    }

    /// Waits for a connection until the time is over.
    async fn in_time(
        &self,
        connecting: impl Future<Output = Result<Stream, ConnectError>>,
    ) -> Result<Stream, ConnectError> {
        match timeout(self.limit, connecting).await {
            // The connector's own timeout, or the kernel's, came first.
            Ok(Err(ConnectError::Failed(error))) if timed_out(&*error) => {
                Err(ConnectError::TimedOut(self.limit))
            }
            Ok(done) => done,
            Err(_) => Err(ConnectError::TimedOut(self.limit)),
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// Returns the address at the other end of a connection.
pub(super) fn peer_of(stream: &Stream) -> Option<IpAddr> {
    let peer = tcp_of(stream).peer_addr().ok()?;
    Some(peer.ip())
}

/// The reason why there is no connection. A clone goes to each request that waited for the connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("not connected within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("{0}")]
    Unsupported(&'static str),
    #[error(transparent)]
    Failed(Arc<dyn Error + Send + Sync>),
}

impl ConnectError {
    pub(super) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into().into())
    }
}

/// Returns `true` if an I/O timeout is among the causes of `error`.
fn timed_out(error: &(dyn Error + 'static)) -> bool {
    has_cause(error, |error| error.kind() == io::ErrorKind::TimedOut)
}

/// Returns `true` if the address refused the connection, because no program listens there.
#[cfg(all(feature = "swap", unix))]
pub(crate) fn connect_refused(error: &(dyn Error + 'static)) -> bool {
    has_cause(error, |error| {
        error.kind() == io::ErrorKind::ConnectionRefused
    })
}

/// Returns `true` if the other side has reset a connection.
pub(super) fn was_reset(error: &(dyn Error + 'static)) -> bool {
    has_cause(error, |error| {
        error.kind() == io::ErrorKind::ConnectionReset
    })
}

/// Returns `true` if this process, or this machine, has run out of file descriptors.
pub(crate) fn out_of_files(error: &(dyn Error + 'static)) -> bool {
    has_cause(error, |error| {
        matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
    })
}

/// The error number of a system without free file descriptors, which is the same on all Unixes.
const ENFILE: i32 = 23;
/// The error number of a process without free file descriptors, which is the same on all Unixes.
const EMFILE: i32 = 24;

/// Returns `true` if `is_it` holds for an I/O error among `error` and its causes.
fn has_cause(error: &(dyn Error + 'static), is_it: impl Fn(&io::Error) -> bool) -> bool {
    let mut causes = successors(Some(error), |&error| error.source());
    causes.any(|error| error.downcast_ref().is_some_and(&is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("tcp connect error")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_timeout_is_found_among_the_causes() {
        let timeout = || io::Error::from(io::ErrorKind::TimedOut);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(timed_out(&timeout()));
        assert!(timed_out(&Outer(timeout())));
        assert!(!timed_out(&refused()));
        assert!(!timed_out(&Outer(refused())));
    }

    #[cfg(unix)]
    #[test]
    fn out_of_files_is_found_among_the_causes() {
        for (code, expected) in [(23, true), (24, true), (111, false)] {
            let error = || io::Error::from_raw_os_error(code);
            assert_eq!(out_of_files(&error()), expected, "{code}");
            assert_eq!(out_of_files(&Outer(error())), expected, "{code}");
        }
    }
}
