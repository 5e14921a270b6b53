//! The state that the store and its tasks share, and helpers to call scripts.

use std::time::Duration;

use bytes::Bytes;
use redis::{Script, Value};
use tokio::sync::{Notify, watch};

use super::batch::Batches;
use super::direct::IdleWorkers;
use super::leases::Leases;
use super::link::{Call, Link};
use super::replicas::Replicas;
use super::reply::{self, Unexpected};
use super::watchers::Watchers;
use super::{RedisConfig, scripts};
use tower_triage::PriorityLevels;
use tower_triage_durable::{BacklogChange, QueueHead, RequestId, RequestInfo, StoreError};

/// The state that the store and its tasks share.
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) replicas: Option<Replicas>,
    pub(super) config: RedisConfig,
    /// The beginning of all keys, which includes their hash tag.
    pub(super) namespace: String,
    /// The name of this process among the consumers of the streams.
    pub(super) process: String,
    /// The first argument of each script: the retention, the kind of order, and the limits of running requests.
    pub(super) header: String,
    /// The weights of the levels, beginning with level 0. Empty if levels have strict priority.
    pub(super) weights: String,
    pub(super) batches: Batches,
    pub(super) watchers: Watchers,
    pub(super) leases: Leases,
    pub(super) workers: IdleWorkers,
    pub(super) version: watch::Sender<Version>,
    /// The signal that wakes the task that renews leases.
    pub(super) claim: Notify,
}

/// The number of changes of the backlog that this process knows of.
#[derive(Default)]
pub(super) struct Version {
    pub(super) number: u64,
    /// The new head of a queue that was empty, if this is the whole latest change.
    pub(super) new_head: Option<Box<QueueHead>>,
}

impl Version {
    /// Returns the change of the backlog since version `other`.
    pub(super) fn since(&self, other: u64) -> BacklogChange {
        match &self.new_head {
            Some(head) if self.number == other + 1 => BacklogChange::NewHead {
                version: self.number,
                head: head.clone(),
            },
            _ => BacklogChange::Any,
        }
    }
}

/// Returns whole milliseconds, rounded up so that a time is never too early.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_or(MAX_MS, |ms| ms.min(MAX_MS))
}

/// A thousand years. With this limit, times stay in the range in which Lua's numbers are exact.
const MAX_MS: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;

impl Shared {
    /// Returns the levels of requests, as this process has them.
    pub(super) fn levels(&self) -> &PriorityLevels {
        &self.config.store.order.levels
    }

    pub(super) fn call<'a>(&self, script: &'a Script) -> Call<'a> {
        Call::new(script, &self.namespace, &self.header, &self.process)
    }

    pub(super) fn read<T>(&self, result: Result<T, Unexpected>) -> Result<T, StoreError> {
        result.map_err(|unexpected| self.link.unexpected(unexpected))
    }

    pub(super) fn items(&self, value: Value) -> Result<Vec<Value>, StoreError> {
        self.read(reply::items(value))
    }

    pub(super) fn read_pair(&self, pair: &[Value]) -> Result<(RequestId, Vec<u8>), StoreError> {
        let [id, kind] = pair else {
            return Err(self.link.unexpected(Unexpected));
        };
        let id = self.read(reply::id(id.clone()))?;
        Ok((id, self.read(reply::bytes(kind.clone()))?))
    }

    /// Records a change of the backlog. `new_head` is the new head of a queue that was empty, if this is the whole
    /// change.
    pub(super) fn on_new_work(&self, new_head: Option<QueueHead>) {
        self.version.send_modify(|version| {
            version.number += 1;
            version.new_head = new_head.map(Box::new);
        });
    }

    /// Returns the ids and fences of the leases that this process has according to Redis.
    pub(super) async fn owned(&self) -> Result<Vec<(RequestId, String)>, StoreError> {
        let key = format!("{}:own:{}", self.namespace, self.process);
        let leases = self.link.command(redis::cmd("SMEMBERS").arg(key)).await?;
        let mut owned = Vec::new();
        for lease in self.items(leases)? {
            let lease = self.read(reply::text(lease))?;
            let lease = lease.split_once(' ').and_then(|(id, fence)| {
                let id = id.parse().ok()?;
                Some((id, fence.to_owned()))
            });
            owned.push(self.read(lease.ok_or(Unexpected))?);
        }
        Ok(owned)
    }

    pub(super) async fn streams(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let key = format!("{}:streams", self.namespace);
        let streams = self.link.command(redis::cmd("SMEMBERS").arg(key)).await?;
        let streams = self.items(streams)?.into_iter().map(reply::bytes);
        self.read(streams.collect())
    }

    /// Puts requests that were taken but not started back into their queues.
    pub(super) async fn give_back(&self, leases: &[(RequestId, String)]) -> Result<(), StoreError> {
        for part in leases.chunks(256) {
            let mut call = self.call(&scripts::GIVE_BACK);
            for (id, fence) in part {
                call = call.arg(format!("{id} {fence}"));
            }
            self.link.run(&call).await?;
        }
        Ok(())
    }

    pub(super) async fn info(&self, call: Call<'_>) -> Result<Option<RequestInfo>, StoreError> {
        let value = self.link.run(&call).await?;
        self.read(reply::maybe(value, |value| {
            reply::info(value, self.levels())
        }))
    }

    pub(super) async fn field(
        &self,
        id: RequestId,
        field: &str,
    ) -> Result<Option<Bytes>, StoreError> {
        let key = format!("{}:j:{id}", self.namespace);
        let mut command = redis::cmd("HGET");
        let value = self.link.command(command.arg(key).arg(field)).await?;
        self.read(reply::maybe(value, reply::data))
    }

    /// Returns the current state of a request, or `None` if the request is unknown.
    pub(super) async fn get(&self, id: RequestId) -> Result<Option<RequestInfo>, StoreError> {
        let key = format!("{}:j:{id}", self.namespace);
        let mut command = redis::cmd("HMGET");
        let fields = self
            .link
            .command(command.arg(key).arg("i").arg("s"))
            .await?;
        let [facts, state] = self.read(reply::parts(fields))?;
        if facts == Value::Nil {
            return Ok(None);
        }
        let name = Value::BulkString(id.to_string().into_bytes());
        let info = reply::info(Value::Array(vec![name, facts, state]), self.levels());
        self.read(info).map(Some)
    }
}
