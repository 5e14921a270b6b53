//! The state that the store and its tasks share, and the call of a script.

use std::time::Duration;

use bytes::Bytes;
use redis::{Script, Value};
use tokio::sync::{Notify, watch};

use super::batch::Batches;
use super::leases::Leases;
use super::link::{Call, Link};
use super::replicas::Replicas;
use super::reply::{self, Unexpected};
use super::watchers::Watchers;
use super::{RedisConfig, scripts};
use crate::durable::{BacklogChange, QueueHead, RequestId, RequestInfo, StoreError};

/// The state that the store and its tasks share.
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) replicas: Option<Replicas>,
    pub(super) config: RedisConfig,
    /// The beginning of all keys, with their hash tag.
    pub(super) namespace: String,
    /// The name of this process among the consumers.
    pub(super) process: String,
    /// The first argument of each script: the retention, the kind of order, and the limits of running requests.
    pub(super) header: String,
    /// The weights of the levels from level 0 on, or empty.
    pub(super) weights: String,
    pub(super) batches: Batches,
    pub(super) watchers: Watchers,
    pub(super) leases: Leases,
    pub(super) version: watch::Sender<Version>,
    /// Wakes the task that renews leases.
    pub(super) claim: Notify,
}

/// The number of changes of the backlog that this process knows of.
#[derive(Default)]
pub(super) struct Version {
    pub(super) number: u64,
    /// The head of a queue that had none, if the latest change consists of that.
    pub(super) new_head: Option<Box<QueueHead>>,
}

impl Version {
    /// Returns the change since another version.
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

/// Returns whole milliseconds, rounded up, so that nothing is due before its time.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_or(MAX_MS, |ms| ms.min(MAX_MS))
}

/// A thousand years: with it, times stay within what Lua counts exactly.
const MAX_MS: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;

impl Shared {
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

    /// Notes a change of the backlog. `new_head`: the head of a queue that had none, if it consists of that.
    pub(super) fn on_new_work(&self, new_head: Option<QueueHead>) {
        self.version.send_modify(|version| {
            version.number += 1;
            version.new_head = new_head.map(Box::new);
        });
    }

    /// Returns the leases that this process has, as Redis knows them: id and fence.
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

    /// Puts requests that were not started back into their queues.
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
        self.read(reply::maybe(value, reply::info))
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

    /// Returns a request as it is now; `None` if it is not known.
    pub(super) async fn get(&self, id: RequestId) -> Result<Option<RequestInfo>, StoreError> {
        let key = format!("{}:j:{id}", self.namespace);
        let mut command = redis::cmd("HMGET");
        let fields = self
            .link
            .command(command.arg(key).arg(reply::FIELDS))
            .await?;
        let mut fields = self.items(fields)?;
        if fields.first().is_none_or(|queue| *queue == Value::Nil) {
            return Ok(None);
        }
        fields.push(Value::BulkString(id.to_string().into_bytes()));
        self.read(reply::info(Value::Array(fields))).map(Some)
    }
}
