//! The ledgers in Redis. A script answers each question, many questions share one round trip, and each gateway receives
//! notices on a channel of its own.
//!
//! All keys have one hash tag, so one connection reaches all of them in a cluster, too.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, Script, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Ask, Grant};
use crate::ConnectError;
use crate::nodes::Nodes;

/// The time limit for an answer of Redis. Tests do not fail because a busy machine answers late.
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// The hash tag of all keys, as a key that never exists.
const TAG: &str = "{triage:limits}";
const CHANNEL: &str = "{triage:limits}:to:";
const GATEWAYS: &str = "{triage:limits}:gateways";

static QUESTION: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("answer.lua")));
static PRESENCE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("gateways.lua")));

/// A client for the ledgers, on behalf of one gateway.
pub(super) struct Redis {
    nodes: Nodes,
    /// The name of this gateway. It is random, so that each start of a gateway has a name of its own.
    gateway: Arc<str>,
    lease: Duration,
}

/// A connection to Redis, with the name and the lease that each question carries.
#[derive(Clone)]
pub(super) struct Connection {
    connection: MultiplexedConnection,
    gateway: Arc<str>,
    lease: u64,
}

/// The answer of a ledger to one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) grant: Grant,
    /// The number of slots of the endpoint, which is the lowest number that any gateway is configured with.
    pub(super) slots: u32,
}

/// A message that a connection receives without having asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A notice of a ledger about an endpoint of this name.
    Notice(String, Grant),
    /// The loss of the connection.
    Lost,
}

impl Redis {
    pub(super) fn new(url: &str, gateway: String, lease: Duration) -> Result<Self, ConnectError> {
        Ok(Self {
            nodes: Nodes::parse(url, TAG)?,
            gateway: gateway.into(),
            lease,
        })
    }

    /// Returns the hosts and ports, without user and password, for log messages.
    pub(super) fn address(&self) -> &str {
        self.nodes.address()
    }

    /// Connects to Redis, loads the scripts, and subscribes to this gateway's channel.
    pub(super) async fn connect(&self) -> Result<(Connection, NewsReader), String> {
        let (sender, pushes) = unbounded_channel();
        let connection = self.nodes.connect_with(Some(ANSWER), Some(sender)).await?;
        let prepared = self.prepare(connection).await;
        let connection = prepared.map_err(|error| error.to_string())?;
        Ok((connection, NewsReader(pushes)))
    }

    async fn prepare(&self, mut connection: MultiplexedConnection) -> RedisResult<Connection> {
        let mut pipe = redis::pipe();
        pipe.load_script(&QUESTION).ignore();
        pipe.load_script(&PRESENCE).ignore();
        pipe.query_async::<()>(&mut connection).await?;
        let channel = format!("{CHANNEL}{}", self.gateway);
        connection.subscribe(channel).await?;
        Ok(Connection {
            connection,
            gateway: Arc::clone(&self.gateway),
            lease: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// A reader of the messages of one connection.
pub(super) struct NewsReader(UnboundedReceiver<PushInfo>);

impl NewsReader {
    /// Waits for the next message. The wait may be dropped at any time.
    pub(super) async fn next(&mut self) -> News {
        while let Some(push) = self.0.recv().await {
            // Others, such as the confirmation of a subscription, say nothing new.
            if let Some(news) = read_push(push) {
                return news;
            }
        }
        News::Lost
    }
}

impl Connection {
    /// Sends questions, each about the endpoint of the given name. The answers come back in the same order.
    ///
    /// # Errors
    ///
    /// Returns the first error. The ledger may have answered each of the questions all the same.
    pub(super) async fn ask(&mut self, questions: &[(Arc<str>, Ask)]) -> RedisResult<Vec<Answer>> {
        let mut pipe = redis::pipe();
        for (endpoint, ask) in questions {
            pipe.cmd("EVALSHA").arg(QUESTION.get_hash()).arg(4);
            for key in ["members", "ends", "queue", "limits"] {
                pipe.arg(format!("{TAG}:{endpoint}:{key}"));
            }
            pipe.arg(&*self.gateway).arg(ask.seq).arg(ask.keep);
            pipe.arg(ask.want).arg(ask.ahead).arg(ask.slots);
            pipe.arg(self.lease).arg(CHANNEL).arg(&**endpoint);
        }
        let answers: Vec<(u32, u64, u32, u32, u32)> =
            pipe.query_async(&mut self.connection).await?;
        if answers.len() != questions.len() {
            return Err(RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "not as many answers as questions",
            )));
        }
        let answers = answers.into_iter().map(|it| {
            let (slots, version, others, fair, limit) = it;
            Answer {
                grant: Grant {
                    slots,
                    version,
                    others,
                    fair,
                },
                slots: limit,
            }
        });
        Ok(answers.collect())
    }

    /// Records that this gateway is present, or that it is going. Returns the number of gateways that are present.
    pub(super) async fn present(&mut self, is_going: bool) -> RedisResult<u32> {
        let lease = if is_going { 0 } else { self.lease };
        let mut command = redis::cmd("EVALSHA");
        command.arg(PRESENCE.get_hash()).arg(1).arg(GATEWAYS);
        command.arg(&*self.gateway).arg(lease);
        command.query_async(&mut self.connection).await
    }
}

fn read_push(push: PushInfo) -> Option<News> {
    match push.kind {
        PushKind::Disconnection => Some(News::Lost),
        PushKind::Message => match push.data.last() {
            Some(Value::BulkString(text)) => read_notice(text),
            _ => None,
        },
        _ => None,
    }
}

fn read_notice(text: &[u8]) -> Option<News> {
    let mut parts = std::str::from_utf8(text).ok()?.splitn(5, ' ');
    let grant = Grant {
        slots: parts.next()?.parse().ok()?,
        version: parts.next()?.parse().ok()?,
        others: parts.next()?.parse().ok()?,
        fair: parts.next()?.parse().ok()?,
    };
    Some(News::Notice(parts.next()?.to_owned(), grant))
}

#[cfg(test)]
#[path = "../../tests/support/redis_server.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod redis_server;

#[cfg(test)]
#[path = "../../tests/support/redis_cluster.rs"]
mod redis_cluster;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::FutureExt;

    use super::redis_cluster::Cluster;
    use super::redis_server::Server;
    use super::*;
    use crate::shared_limits::Ledger;

    /// The time limit for events that a test waits for.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn a_notice_names_its_endpoint_last() {
        let grant = Grant {
            slots: 2,
            version: 17,
            others: 3,
            fair: 1,
        };
        let notice = News::Notice("my gpu".to_owned(), grant);
        assert_eq!(read_notice(b"2 17 3 1 my gpu"), Some(notice));
        assert_eq!(read_notice(b"2 17 3"), None);
    }

    /// Returns a grant without its version, because the script derives the version from a clock.
    fn said(grant: Grant) -> (u32, u32, u32) {
        (grant.slots, grant.others, grant.fair)
    }

    #[tokio::test]
    async fn the_script_answers_as_the_model_does() {
        let server = Server::with(&[]);
        answers_as_the_model_does(&server.url()).await;
        // Endpoints without leased slots leave no keys behind.
        assert_eq!(server.ask("DBSIZE").as_deref(), Some(":0\r\n"));
    }

    #[tokio::test]
    async fn the_script_answers_as_the_model_does_in_a_cluster() {
        let cluster = Cluster::start(3, 0).await;
        answers_as_the_model_does(&cluster.url()).await;
    }

    async fn answers_as_the_model_does(url: &str) {
        let mut gateways = Vec::new();
        for id in 0..5 {
            let lease = Duration::from_secs(3_600);
            let redis = Redis::new(url, format!("gateway-{id}"), lease).unwrap();
            gateways.push(redis.connect().await.unwrap());
        }
        let mut rng = fastrand::Rng::with_seed(1);
        let endpoints: [Arc<str>; 3] = ["a".into(), "b {}".into(), "c%".into()];
        let mut ledgers: BTreeMap<Arc<str>, Ledger<usize>> = BTreeMap::new();
        let mut held = BTreeMap::new();
        for seq in 1..3_000_u64 {
            let (id, endpoint) = (rng.usize(..5), rng.choice(&endpoints).unwrap());
            let mine: u32 = held.get(&(endpoint.clone(), id)).copied().unwrap_or(0);
            let want = if rng.bool() { rng.u32(..12) } else { 0 };
            let ask = Ask {
                seq: seq - rng.u64(..20).saturating_sub(18),
                keep: rng.u32(..=mine),
                want,
                ahead: rng.u32(..3),
                slots: if rng.u32(..20) == 0 { 5 } else { 8 },
            };
            let ledger = ledgers.entry(endpoint.clone()).or_default();
            let (grant, notices) = ledger.answer(&id, &ask, 1, 0);
            let questions = [(endpoint.clone(), ask)];
            let answers = gateways[id].0.ask(&questions).await.unwrap();
            assert_eq!(said(answers[0].grant), said(grant), "{seq} {id} {ask:?}");
            held.insert((endpoint.clone(), id), grant.slots);
            for (other, grant) in notices {
                held.insert((endpoint.clone(), other), grant.slots);
                let news = tokio::time::timeout(SOON, gateways[other].1.next());
                let News::Notice(name, notice) = news.await.unwrap() else {
                    panic!("the connection is lost");
                };
                assert_eq!((&*name, said(notice)), (&**endpoint, said(grant)), "{seq}");
            }
        }
        for (_, news) in &mut gateways {
            assert!(news.next().now_or_never().is_none(), "a notice too many");
        }
        for (connection, _) in &mut gateways {
            for endpoint in &endpoints {
                let nothing = Ask {
                    seq: 10_000,
                    keep: 0,
                    want: 0,
                    ahead: 0,
                    slots: 8,
                };
                let asked = connection.ask(&[(endpoint.clone(), nothing)]).await;
                assert_eq!(asked.unwrap()[0].grant.slots, 0);
            }
        }
    }

    #[tokio::test]
    async fn a_lease_ends_by_the_clock_of_redis() {
        let server = Server::with(&[]);
        let endpoints: [Arc<str>; 1] = ["a".into()];
        let connect = async |name: &str, lease| {
            let redis = Redis::new(&server.url(), name.to_owned(), lease).unwrap();
            redis.connect().await.unwrap().0
        };
        let mut holder = connect("holder", Duration::from_secs(60)).await;
        let mut other = connect("other", Duration::from_secs(60)).await;
        let ask = |seq| Ask {
            seq,
            keep: 8,
            want: 8,
            ahead: 0,
            slots: 8,
        };
        let taken = holder.ask(&[(endpoints[0].clone(), ask(1))]).await.unwrap();
        assert_eq!(taken[0].grant.slots, 8);
        assert_eq!(holder.present(false).await.unwrap(), 1);
        assert_eq!(other.present(false).await.unwrap(), 2);
        let asked = other.ask(&[(endpoints[0].clone(), ask(1))]).await;
        assert!(asked.unwrap()[0].grant.slots < 8, "they are taken");
        // The last renewal is for a short time, which begins now.
        let mut last = connect("holder", Duration::from_millis(50)).await;
        last.present(false).await.unwrap();
        last.ask(&[(endpoints[0].clone(), ask(2))]).await.unwrap();
        let freed = async {
            for seq in 2.. {
                let asked = other.ask(&[(endpoints[0].clone(), ask(seq))]).await;
                if asked.unwrap()[0].grant.slots == 8 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, freed).await.unwrap();
        assert_eq!(other.present(false).await.unwrap(), 1);
        assert_eq!(other.present(true).await.unwrap(), 0);
    }
}
