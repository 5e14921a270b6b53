//! The servers of a store or of the ledgers, which are a single address or the nodes of a cluster.
//!
//! All their keys have one hash tag, so they lie in one slot. In a cluster, only the master of this slot is needed, and it is
//! learned from the nodes which master that is. A connection is usable if its server is a
//! master and has the keys. This is checked when the connection is made, before any script runs, so that a server after
//! a failover or in the middle of a move is noticed.
//!
//! `ASK` redirections are not followed. While a slot is being moved, the keys of a script may be split between two
//! nodes, so the store is unavailable until the slot has arrived. The check asks for a key that never exists, so both
//! nodes answer it alike.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisError, RedisResult, ServerErrorKind, Value,
};

use tokio::sync::mpsc::UnboundedSender;

use super::ConnectError;
use super::reply;

/// The time limit for opening and checking a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The time limit for one node of a cluster. It is shorter because other nodes may follow.
const CONNECT_NODE: Duration = Duration::from_secs(1);
/// The time after which no further node of a cluster is tried, because callers wait.
const CONNECT_ANY: Duration = Duration::from_secs(3);

/// The receiver of what a connection gets without having asked.
pub(super) type Pushes = UnboundedSender<PushInfo>;

/// The servers of a store.
pub(super) struct Nodes {
    /// The configured addresses: a single server, or some nodes of a cluster.
    seeds: Vec<ConnectionInfo>,
    /// The hosts and ports of the addresses, without user and password, for messages.
    address: Arc<str>,
    /// A key in the slot of the store that never exists.
    key: String,
    /// The known nodes of a cluster. `None` for a single server.
    cluster: Option<Mutex<Topology>>,
}

/// The nodes of a cluster, as far as they are known.
#[derive(Default)]
struct Topology {
    /// The node that last had the slot of the store.
    owner: Option<ConnectionAddr>,
    /// All nodes of the cluster, as the node of the last connection reported them.
    nodes: Vec<ConnectionAddr>,
}

impl Nodes {
    /// Parses an address. `key` is a key with the hash tag of the store that never exists.
    pub(super) fn parse(url: &str, key: &str) -> Result<Self, ConnectError> {
        let (seeds, is_cluster) = seeds(url)?;
        if let [first, ..] = seeds.as_slice()
            && matches!(first.addr(), ConnectionAddr::TcpTls { .. })
        {
            install_crypto();
        }
        let address: Vec<_> = seeds.iter().map(|seed| seed.addr().to_string()).collect();
        Ok(Self {
            address: address.join(",").into(),
            seeds,
            key: key.to_owned(),
            cluster: is_cluster.then(Mutex::default),
        })
    }

    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Opens a connection to the master that has the keys. `reply` is the time limit for each of its commands.
    pub(super) async fn connect(
        &self,
        reply: Option<Duration>,
    ) -> Result<MultiplexedConnection, String> {
        self.connect_with(reply, None).await
    }

    /// Opens a connection that also receives messages, which go to `pushes`.
    pub(super) async fn connect_with(
        &self,
        reply: Option<Duration>,
        pushes: Option<Pushes>,
    ) -> Result<MultiplexedConnection, String> {
        let open = async |server: &ConnectionInfo, within| {
            let (opened, pushes) = (Self::config(reply, within), pushes.clone());
            self.open(server, opened, pushes, within).await
        };
        let Some(topology) = &self.cluster else {
            let connected = open(&self.seeds[0], CONNECT).await;
            return connected.map_err(|failure| failure.to_string());
        };
        let mut tried = Vec::new();
        let mut first_failure = None;
        let end = Instant::now() + CONNECT_ANY;
        while let Some(next) = self.next(topology, &tried)
            && Instant::now() < end
        {
            let seed = self.seeds[0].clone().set_addr(next.clone());
            tried.push(next.clone());
            match open(&seed, CONNECT_NODE).await {
                Ok(mut connection) => {
                    let nodes = nodes_of(&mut connection, &next).await;
                    let mut topology = lock(topology);
                    topology.owner = Some(next);
                    if !nodes.is_empty() {
                        topology.nodes = nodes;
                    }
                    return Ok(connection);
                }
                Err(failure) => {
                    if let Failure::Redis(error) = &failure {
                        self.learn(error, &next);
                    }
                    // An error of the owner itself says more than the error of a node that only names the owner.
                    if !failure.is_moved() {
                        first_failure.get_or_insert(format!("{next}: {failure}"));
                    }
                }
            }
        }
        Err(first_failure.unwrap_or_else(|| "no node has the keys".to_owned()))
    }

    /// Returns the node to try next: the owner, or else a random node that was not tried yet.
    fn next(&self, topology: &Mutex<Topology>, tried: &[ConnectionAddr]) -> Option<ConnectionAddr> {
        let topology = lock(topology);
        let is_new = |node: &&ConnectionAddr| !tried.contains(node);
        if let Some(owner) = topology.owner.as_ref().filter(is_new) {
            return Some(owner.clone());
        }
        let seeds = self.seeds.iter().map(ConnectionInfo::addr);
        let others: Vec<_> = topology.nodes.iter().chain(seeds).filter(is_new).collect();
        (!others.is_empty()).then(|| others[fastrand::usize(..others.len())].clone())
    }

    /// Remembers the owner of the slot, if an error of the node `from` names it.
    fn learn(&self, error: &RedisError, from: &ConnectionAddr) {
        let is_moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        if let Some(topology) = &self.cluster
            && is_moved
            && let Some((to, _)) = error.redirect_node()
            && let Some((host, port)) = to.rsplit_once(':')
            && let Ok(port) = port.parse()
        {
            lock(topology).owner = Some(at(from, host, port));
        }
    }

    fn config(reply: Option<Duration>, within: Duration) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(within))
            .set_response_timeout(reply)
            .set_pipeline_buffer_size(1_024)
            .set_write_backpressure_boundary(64 * 1_024)
    }

    /// Opens a connection to one server, and checks it.
    async fn open(
        &self,
        server: &ConnectionInfo,
        mut config: AsyncConnectionConfig,
        pushes: Option<Pushes>,
        within: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        let mut server = server.clone();
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
            let settings = server.redis_settings().clone();
            server = server.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3));
        }
        let client = Client::open(server)?;
        let opened = async {
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            self.check(&mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(within, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::Silent(within)),
        }
    }

    /// Returns `true` if a server still is a master with the keys, and answers in time.
    pub(super) async fn is_good(&self, connection: &mut MultiplexedConnection) -> bool {
        let checked = tokio::time::timeout(CONNECT_NODE, self.check(connection)).await;
        checked.is_ok_and(|checked| checked.is_ok())
    }

    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let mut own = connection.clone();
        let (mut exists, role) = (redis::cmd("EXISTS"), redis::cmd("ROLE"));
        exists.arg(&self.key);
        let (keys, role): (RedisResult<Value>, RedisResult<Value>) =
            tokio::join!(exists.query_async(connection), role.query_async(&mut own));
        // Any other error will come up again when a script runs, so it is ignored here.
        if let Err(error) = keys
            && needs_another_server(&error)
        {
            return Err(Failure::Redis(error));
        }
        let role = role.ok().and_then(|role| {
            let first = reply::items(role).ok()?.into_iter().next()?;
            reply::text(first).ok()
        });
        match role.as_deref() {
            Some("slave" | "replica") => Err(Failure::Replica),
            _ => Ok(()),
        }
    }
}

/// The reason why a server can't be used now.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}{hint}", hint = if self.is_moved() { " (for a cluster, the address begins with redis+cluster://)" } else { "" })]
    Redis(#[from] RedisError),
    #[error("it is a replica, and was not promoted yet")]
    Replica,
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

impl Failure {
    fn is_moved(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved))
    }
}

/// Returns `true` if the next command needs another connection, perhaps to another server.
pub(super) fn needs_another_server(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                Ask | BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly | TryAgain
            )
        )
}

fn lock(topology: &Mutex<Topology>) -> MutexGuard<'_, Topology> {
    topology.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an address with the connection type of `from`. An empty host stands for the host of `from`.
fn at(from: &ConnectionAddr, to_host: &str, to_port: u16) -> ConnectionAddr {
    let mut to = from.clone();
    match &mut to {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if !to_host.is_empty() && to_host != "?" {
                *host = to_host.trim_matches(['[', ']']).to_owned();
            }
            *port = to_port;
        }
        _ => {}
    }
    to
}

/// Returns all nodes that a server knows, or an empty list if the server does not answer.
async fn nodes_of(
    connection: &mut MultiplexedConnection,
    from: &ConnectionAddr,
) -> Vec<ConnectionAddr> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let asked = tokio::time::timeout(CONNECT_NODE, slots.query_async(connection)).await;
    let Ok(Ok(ranges)) = asked else {
        return Vec::new();
    };
    let mut nodes = Vec::new();
    for range in reply::items(ranges).unwrap_or_default() {
        // A range starts with its first and its last slot. The nodes with these slots follow.
        for node in reply::items(range).unwrap_or_default().into_iter().skip(2) {
            let mut node = reply::items(node).unwrap_or_default().into_iter();
            let (Some(host), Some(Value::Int(port))) = (node.next(), node.next()) else {
                continue;
            };
            let host = reply::maybe(host, reply::text).ok().flatten();
            if let Ok(port) = u16::try_from(port) {
                nodes.push(at(from, host.as_deref().unwrap_or_default(), port));
            }
        }
    }
    nodes
}

/// Returns the addresses in a URL, and `true` if they are nodes of a cluster.
fn seeds(url: &str) -> Result<(Vec<ConnectionInfo>, bool), ConnectError> {
    let wrong = |problem: &str| ConnectError::Url(problem.to_owned());
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(wrong("it has no scheme"));
    };
    let (scheme, is_cluster) = match scheme.strip_suffix("+cluster") {
        Some(scheme) => (scheme, true),
        None => (scheme, false),
    };
    if !["redis", "rediss"].contains(&scheme) {
        return Err(wrong("it has another scheme"));
    }
    if scheme == "rediss" && !cfg!(feature = "tls") {
        return Err(wrong(
            "TLS needs the feature `tls` of the crate, which is off",
        ));
    }
    let (user, hosts) = match rest.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), rest),
    };
    let (hosts, path) = match hosts.find(['/', '?', '#']) {
        Some(end) => hosts.split_at(end),
        None => (hosts, ""),
    };
    let hosts: Vec<_> = match is_cluster {
        true => hosts.split(',').collect(),
        false => vec![hosts],
    };
    let mut seeds = Vec::new();
    for host in hosts {
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong("a host is missing"));
        }
        let info = format!("{scheme}://{user}{host}{path}").into_connection_info();
        // The original error may repeat a part of the address, so it is replaced.
        let info = info.map_err(|_| wrong("its host, port or database can't be read"))?;
        if is_cluster && info.redis_settings().db() != 0 {
            return Err(wrong("a cluster has no database but 0"));
        }
        seeds.push(info);
    }
    Ok((seeds, is_cluster))
}

/// Installs a cryptography provider for TLS, unless the process already has one. The Redis client uses the process's
/// choice.
#[cfg(feature = "tls")]
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(not(feature = "tls"))]
fn install_crypto() {}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Result<String, String> {
        match Nodes::parse(url, "triage:{default}") {
            Ok(nodes) => Ok(nodes.address.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn an_address_names_one_server_or_nodes_of_a_cluster() {
        for (url, expected) in [
            ("redis://a", "a:6379"),
            ("redis://user:s3cret@a:1/2", "a:1"),
            ("redis+cluster://a:1,b:2,[::1]:3", "a:1,b:2,::1:3"),
            ("redis+cluster://:s3cret@a", "a:6379"),
        ] {
            assert_eq!(address(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn an_address_with_tls_needs_the_feature() {
        for url in ["rediss://a", "rediss+cluster://a,b"] {
            assert_eq!(address(url).is_ok(), cfg!(feature = "tls"), "{url}");
        }
    }

    #[test]
    fn an_unreadable_address_is_refused_without_its_password() {
        for url in [
            "user:s3cret@a:1",
            "http://user:s3cret@a:1",
            "redis+cluster://:s3cret@",
            "redis+cluster://:s3cret@a,,b",
            "redis+cluster://:s3cret@a:1,b:2/1",
            "redis://:s3cret@a:s3cret",
            "redis://:s3cret@a/s3cret",
            "redis://:s3cret@/0",
            "redis://",
        ] {
            let error = address(url).unwrap_err();
            assert!(error.contains("expected `redis://host:port`"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_redirection_names_a_node_of_the_same_kind() {
        let from = ConnectionAddr::Tcp("a".to_owned(), 1);
        assert_eq!(at(&from, "b", 2), ConnectionAddr::Tcp("b".to_owned(), 2));
        // A node that does not know its own name reports an empty host.
        assert_eq!(at(&from, "", 2), ConnectionAddr::Tcp("a".to_owned(), 2));
    }
}
