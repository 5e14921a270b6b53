//! A real Redis Cluster for one test.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use super::redis_server::{Server, free_port};

/// Nodes of one cluster: masters with the same number of slots each, and replicas of the first.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
    pub(crate) names: Vec<String>,
}

impl Cluster {
    pub(crate) async fn start(masters: usize, replicas: usize) -> Self {
        let mut buses = Vec::new();
        let nodes = (0..masters + replicas).map(|node| {
            Server::with_each(|| {
                buses.truncate(node);
                buses.push(free_port());
                let bus = buses[node].to_string();
                let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "3000"];
                let log = ["--appendonly", "yes", "--appendfsync", "always"];
                let own = ["--cluster-port", &bus, "--repl-diskless-sync-delay", "0"];
                let all = [&settings[..], &log, &own].concat();
                all.into_iter().map(str::to_owned).collect()
            })
        });
        let nodes: Vec<_> = nodes.collect();
        let mut cluster = Self {
            nodes,
            names: Vec::new(),
        };
        for node in 0..cluster.nodes.len() {
            let name = cluster.ask(node, "CLUSTER MYID").await;
            cluster.names.push(text(name));
            let epoch = format!("CLUSTER SET-CONFIG-EPOCH {}", node + 1);
            cluster.ask(node, &epoch).await;
            let first = cluster.nodes[0].port;
            let meet = format!("CLUSTER MEET 127.0.0.1 {first} {}", buses[0]);
            cluster.ask(node, &meet).await;
            if node < masters {
                let (from, to) = (node * 16_384 / masters, (node + 1) * 16_384 / masters - 1);
                cluster
                    .ask(node, &format!("CLUSTER ADDSLOTSRANGE {from} {to}"))
                    .await;
            }
        }
        for replica in masters..masters + replicas {
            let replicate = format!("CLUSTER REPLICATE {}", cluster.names[0]);
            cluster
                .until(replica, "CLUSTER NODES", &cluster.names[0])
                .await;
            cluster.ask(replica, &replicate).await;
            cluster
                .until(replica, "INFO replication", "master_link_status:up")
                .await;
        }
        for node in 0..cluster.nodes.len() {
            cluster
                .until(node, "CLUSTER INFO", "cluster_state:ok")
                .await;
            // All know of all.
            for name in &cluster.names {
                cluster.until(node, "CLUSTER NODES", name).await;
            }
        }
        cluster
    }

    /// Returns the address of all nodes.
    pub(crate) fn url(&self) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port));
        format!("redis+cluster://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// Connects to one node, which may answer late on a busy machine.
    pub(crate) async fn connect(&self, node: usize) -> MultiplexedConnection {
        let client = redis::Client::open(self.nodes[node].url()).unwrap();
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(60)))
            .set_response_timeout(Some(Duration::from_secs(60)));
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        connection.await.unwrap()
    }

    /// Sends a command to one node.
    pub(crate) async fn ask(&self, node: usize, command: &str) -> Value {
        let mut connection = self.connect(node).await;
        let mut words = command.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.fold(&mut command, |command, word| command.arg(word));
        command.query_async(&mut connection).await.unwrap()
    }

    /// Waits until a reply of a node contains a text.
    pub(crate) async fn until(&self, node: usize, command: &str, wanted: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !text(self.ask(node, command).await).contains(wanted) {
            assert!(Instant::now() < end, "{command} never has {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn text(value: Value) -> String {
    redis::from_redis_value(value).unwrap()
}
