//! The store: each operation is a script.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redis::{Client, Script, Value};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use super::leases::Leases;
use super::link::{Call, Link};
use super::replicas::Replicas;
use super::reply::{self, Unexpected};
use super::watchers::Watchers;
use super::{ConnectError, RedisConfig, scripts, upkeep};
use crate::Discipline;
use crate::durable::{
    Backlog, Chunk, Chunks, DueWebhook, Enqueued, Fetched, Lease, Listing, NewRequest, Outcome,
    Page, Pause, PauseScope, QueueDepth, QueueHead, RequestId, RequestInfo, Stop, Store,
    StoreError, StoreFuture,
};

/// The shards of a level into which new requests go.
const SHARDS: u64 = 4;

/// A [`Store`] on Redis, for many fronts and workers.
///
/// It needs Redis 7.0 or later, with `appendonly yes` and `maxmemory-policy noeviction`; with other settings it logs a
/// warning that names them. Requests of one level go in the order of their arrival.
///
/// While Redis is away, operations give [`StoreError::Unavailable`] with its host and port, and the store connects again by
/// itself. An operation whose reply was lost is repeated once; the scripts know what they have done. A lost request of a
/// worker is found by the other processes after the [lease](crate::durable::StoreConfig::lease) and half of it more at most.
///
/// A failover loses what the new master did not have, unless [`RedisConfig::replicas`] is set.
pub struct RedisStore {
    shared: Arc<Shared>,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("redis", &self.shared.link.address())
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// The state that the store and its tasks share.
pub(super) struct Shared {
    pub(super) link: Link,
    replicas: Option<Replicas>,
    pub(super) config: RedisConfig,
    /// The beginning of all keys, with their hash tag.
    pub(super) namespace: String,
    /// The name of this process among the consumers.
    pub(super) process: String,
    /// The first argument of each script: the retention, and whether the order is fair.
    header: String,
    /// The weights of the levels from level 0 on, or empty.
    weights: String,
    pub(super) watchers: Watchers,
    pub(super) leases: Leases,
    /// The number of changes of the backlog.
    version: watch::Sender<u64>,
    /// Wakes the task that renews leases.
    pub(super) claim: Notify,
}

impl RedisStore {
    /// Opens the store. Redis need not be there yet: until then, operations give [`StoreError::Unavailable`].
    ///
    /// # Errors
    ///
    /// If the configuration can't work, or there is no Tokio runtime.
    pub fn connect(config: RedisConfig) -> Result<Self, ConnectError> {
        config.store.validate()?;
        if config.queue.is_empty() || config.queue.contains(['{', '}']) {
            return Err(ConnectError::Queue(config.queue));
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConnectError::NoRuntime);
        }
        let client = Client::open(config.url.as_str())
            .map_err(|error| ConnectError::Url(error.category().to_owned()))?;
        let process = process_name().map_err(|error| ConnectError::Random(error.to_string()))?;
        let shared = Arc::new(Shared {
            replicas: (config.replicas > 0)
                .then(|| Replicas::new(client.clone(), config.replicas, config.replica_timeout)),
            link: Link::new(client, Duration::ZERO),
            namespace: format!("triage:{{{}}}", config.queue),
            process,
            header: header(&config),
            weights: weights(&config),
            watchers: Watchers::default(),
            leases: Leases::default(),
            version: watch::Sender::new(0),
            claim: Notify::new(),
            config,
        });
        let tasks = Mutex::new(upkeep::start(&shared));
        Ok(Self { shared, tasks })
    }
}

/// Returns a name that no other process has, or ever had.
fn process_name() -> std::io::Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_else(|_| "host".to_owned());
    Ok(format!(
        "{}:{}:{}",
        host.trim(),
        std::process::id(),
        RequestId::random()?
    ))
}

fn header(config: &RedisConfig) -> String {
    let order = match config.store.order.discipline {
        Discipline::Fair => "fair",
        _ => "fifo",
    };
    format!("{} {order}", ms(config.store.retention))
}

fn weights(config: &RedisConfig) -> String {
    let order = &config.store.order;
    if order.level_weights.is_empty() {
        return String::new();
    }
    let weights: Vec<String> = order
        .levels
        .names()
        .map(|name| {
            order
                .level_weights
                .get(name)
                .map_or(1, |weight| (*weight).max(1))
        })
        .map(|weight| weight.to_string())
        .collect();
    weights.join(",")
}

/// Returns whole milliseconds, rounded up, so that nothing is due before its time.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_or(MAX_MS, |ms| ms.min(MAX_MS))
}

/// A thousand years: with it, times stay within what Lua counts exactly.
const MAX_MS: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;

/// Returns two shards for a tenant, so that no tenant fills all.
fn shards(tenant: &[u8]) -> (u64, u64) {
    // FNV-1a: all processes have to find the same.
    let hash = tenant.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let first = hash % SHARDS;
    (first, (first + 1 + (hash >> 32) % (SHARDS - 1)) % SHARDS)
}

fn scope_name(scope: &PauseScope) -> Vec<u8> {
    match scope {
        PauseScope::All => b"a".to_vec(),
        PauseScope::Queue(queue) => [b"q", queue.as_bytes()].concat(),
        PauseScope::Tenant(tenant) => [b"t", tenant.as_slice()].concat(),
    }
}

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

    pub(super) fn on_new_work(&self) {
        self.version.send_modify(|version| *version += 1);
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

    async fn info(&self, call: Call<'_>) -> Result<Option<RequestInfo>, StoreError> {
        let value = self.link.run(&call).await?;
        self.read(reply::maybe(value, reply::info))
    }

    async fn field(&self, id: RequestId, field: &str) -> Result<Option<Bytes>, StoreError> {
        let key = format!("{}:j:{id}", self.namespace);
        let mut command = redis::cmd("HGET");
        let value = self.link.command(command.arg(key).arg(field)).await?;
        self.read(reply::maybe(value, reply::data))
    }

    async fn enqueue(&self, request: NewRequest) -> Result<Enqueued, StoreError> {
        let (shard, other_shard) = shards(&request.tenant);
        let (key, fingerprint) = match &request.idempotency {
            Some(idempotency) => (
                // A key belongs to its tenant.
                [
                    request.tenant.len().to_string().as_bytes(),
                    b":",
                    &request.tenant,
                    idempotency.key.as_bytes(),
                ]
                .concat(),
                idempotency.fingerprint.to_vec(),
            ),
            None => (Vec::new(), Vec::new()),
        };
        let config = &self.config.store;
        // A level that there is not is the lowest.
        let lowest = u8::try_from(config.order.levels.names().len() - 1).unwrap_or(u8::MAX);
        let call = self
            .call(&scripts::ENQUEUE)
            .arg(request.id.to_string())
            .arg(&request.queue)
            .arg(request.level.min(lowest))
            .arg(&request.tenant)
            .arg(request.cost)
            .maybe(request.cancel_after.map(ms))
            .maybe(request.delay.map(ms))
            .arg(key)
            .arg(fingerprint)
            .arg(request.webhook.as_deref().unwrap_or(""))
            .arg(u8::from(request.is_listed))
            .arg(config.max_size)
            .arg(config.max_size_per_tenant)
            .arg(shard)
            .arg(other_shard)
            .arg(u8::from(self.config.replicas > 0))
            .arg(request.request.as_ref());
        let value = match &self.replicas {
            Some(replicas) => {
                // Only a request that is stored comes with its state.
                let is_stored =
                    |value: &Value| matches!(value, Value::Array(parts) if parts.len() == 2);
                replicas.run(&call, is_stored).await?
            }
            None => self.link.run(&call).await?,
        };
        let mut parts = self.items(value)?.into_iter();
        let kind = self.read(reply::bytes(parts.next().unwrap_or(Value::Nil)))?;
        let info = parts.next().map(reply::info);
        match (kind.as_slice(), info) {
            (b"new", Some(info)) => Ok(Enqueued::New(self.read(info)?)),
            (b"known", Some(info)) => Ok(Enqueued::Known(self.read(info)?)),
            (b"full", _) => Err(StoreError::QueueFull {
                max_size: config.max_size,
            }),
            (b"tenant_full", _) => Err(StoreError::TenantQueueFull {
                max_size: config.max_size_per_tenant,
            }),
            (b"reused", _) => Err(StoreError::IdempotencyKeyReused),
            _ => Err(self.link.unexpected(Unexpected)),
        }
    }

    async fn list(&self, listing: Listing) -> Result<Page, StoreError> {
        let key = match &listing.tenant {
            Some(tenant) => [self.namespace.as_bytes(), b":list:", tenant].concat(),
            None => format!("{}:list", self.namespace).into_bytes(),
        };
        let status = listing.status.map_or("", |status| status.as_str());
        let mut after = listing.after.map(|id| id.to_string()).unwrap_or_default();
        let mut before = Vec::new();
        let mut requests = Vec::new();
        // One more than is asked for tells whether there are more.
        let wanted = listing.limit.saturating_add(1);
        while requests.len() < wanted {
            let call = self
                .call(&scripts::LIST)
                .arg(&key)
                .arg(&before)
                .arg(wanted - requests.len())
                .arg(status)
                .arg(&after);
            let value = self.link.run(&call).await?;
            let [next, found] = self.read(reply::parts(value))?;
            for info in self.items(found)? {
                requests.push(self.read(reply::info(info))?);
            }
            after.clear();
            match self.read(reply::maybe(next, reply::bytes))? {
                Some(next) => before = next,
                None => break,
            }
        }
        let has_more = requests.len() > listing.limit;
        requests.truncate(listing.limit);
        Ok(Page { requests, has_more })
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        let version = *self.version.borrow();
        let call = self.call(&scripts::BACKLOG).arg(&self.weights);
        let value = self.link.run(&call).await?;
        let [next, heads] = self.read(reply::parts(value))?;
        let mut queues = Vec::new();
        for head in self.items(heads)? {
            let [info, cost, runnable] = self.read(reply::parts(head))?;
            let mut head = QueueHead::new(self.read(reply::info(info))?);
            head.cost = self.read(reply::number(cost))?;
            head.runnable = self.read(reply::number(runnable))?;
            queues.push(head);
        }
        Ok(Backlog {
            version,
            queues,
            next: self.read(reply::maybe(next, reply::time))?,
        })
    }

    /// Takes requests. They are given back if the caller has left.
    async fn fetch(
        self: Arc<Self>,
        queue: String,
        max: usize,
        caller: oneshot::Sender<Result<Handover, StoreError>>,
    ) {
        let number = self.leases.begin_fetch();
        let result = self.fetch_once(&queue, max).await;
        let fetched = result.as_deref().unwrap_or_default();
        self.leases
            .end_fetch(number, fetched.iter().map(|fetched| &fetched.lease));
        if result.is_err() {
            // What it took all the same is found there.
            self.claim.notify_one();
        }
        // Without a caller, it comes back, and is dropped.
        let _ = caller.send(result.map(|fetched| Handover {
            fetched,
            shared: self,
        }));
    }

    async fn fetch_once(&self, queue: &str, max: usize) -> Result<Vec<Fetched>, StoreError> {
        let mut call = self
            .call(&scripts::FETCH)
            .arg(queue)
            .arg(max)
            .arg(&self.weights);
        for (tenant, weight) in &self.config.store.order.weights {
            call = call.arg(tenant.as_bytes()).arg((*weight).max(1));
        }
        let mut taken = Vec::new();
        for fetched in self.items(self.link.run(&call).await?)? {
            let [info, fence, request] = self.read(reply::parts(fetched))?;
            let info = self.read(reply::info(info))?;
            let lease = Lease::new(info.id, info.attempts, self.read(reply::text(fence))?);
            let request = self.read(reply::data(request))?;
            taken.push(Fetched::new(lease, info, request));
        }
        Ok(taken)
    }

    async fn finish(&self, lease: Lease, outcome: Outcome) -> Result<bool, StoreError> {
        let call = self
            .call(&scripts::FINISH)
            .arg(lease.id().to_string())
            .arg(lease.fence());
        let call = match &outcome {
            Outcome::Responded { status, response } => {
                call.arg("responded").arg(*status).arg(response.as_ref())
            }
            Outcome::Failed { reason } => call.arg("failed").arg(reason).arg(""),
            Outcome::Retry { after, counts } => {
                call.arg("retry").arg(ms(*after)).arg(u8::from(*counts))
            }
        };
        let has_effect = self.link.run(&call).await? == Value::Int(1);
        self.leases.remove(&lease);
        Ok(has_effect)
    }

    async fn append(&self, lease: &Lease, data: Bytes) -> Result<(), StoreError> {
        let call = self
            .call(&scripts::APPEND)
            .arg(lease.id().to_string())
            .arg(lease.fence())
            .arg(self.leases.number_piece(lease, &data))
            .arg(data.as_ref());
        self.link.run(&call).await?;
        self.leases.on_piece_sent(lease);
        Ok(())
    }

    async fn chunks(&self, id: RequestId, after: u64) -> Result<Option<Chunks>, StoreError> {
        let mut watcher = self.watchers.watch(id);
        loop {
            watcher.seen();
            let call = self.call(&scripts::CHUNKS).arg(id.to_string()).arg(after);
            let value = self.link.run(&call).await?;
            if value == Value::Nil {
                return Ok(None);
            }
            let [ended, pieces, last, dropped] = self.read(reply::parts(value))?;
            let mut chunks: Vec<Chunk> = Vec::new();
            for piece in self.items(pieces)? {
                let [number, data] = self.read(reply::parts(piece))?;
                chunks.push(Chunk {
                    number: self.read(reply::number(number))?,
                    data: self.read(reply::data(data))?,
                });
            }
            let is_end = self.read(reply::number::<u8>(ended))? == 1;
            if chunks.is_empty() && !is_end {
                watcher.changed().await;
                continue;
            }
            let last: u64 = self.read(reply::number(last))?;
            let dropped: u64 = self.read(reply::number(dropped))?;
            // A reader of an earlier attempt goes on with another one; pieces of this one may be gone, too.
            let is_of_earlier = after > 0 && after <= dropped;
            let expected = after.max(dropped).saturating_add(1);
            let next = chunks
                .first()
                .map_or(last.saturating_add(1), |first| first.number);
            return Ok(Some(Chunks {
                has_gap: is_of_earlier || next > expected,
                chunks,
                is_end,
            }));
        }
    }

    async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let mut pauses = Vec::new();
        let fields = self.link.run(&self.call(&scripts::PAUSES)).await?;
        let mut fields = self.items(fields)?.into_iter();
        while let (Some(scope), Some(pause)) = (fields.next(), fields.next()) {
            let scope = self.read(reply::bytes(scope))?;
            let pause = self.read(reply::text(pause))?;
            let scope = match scope.split_first() {
                Some((b'q', queue)) => {
                    PauseScope::Queue(String::from_utf8_lossy(queue).into_owned())
                }
                Some((b't', tenant)) => PauseScope::Tenant(tenant.to_vec()),
                _ => PauseScope::All,
            };
            let (until, reason) = pause.split_once(' ').unwrap_or(("", ""));
            let until = until.parse().ok().map(Duration::from_millis);
            pauses.push(Pause {
                scope,
                reason: reason.to_owned(),
                until: until.and_then(|until| SystemTime::UNIX_EPOCH.checked_add(until)),
            });
        }
        Ok(pauses)
    }

    async fn depths(&self) -> Result<Vec<QueueDepth>, StoreError> {
        let value = self.link.run(&self.call(&scripts::DEPTHS)).await?;
        let [now, levels] = self.read(reply::parts(value))?;
        let now = self.read(reply::time(now))?;
        let mut depths = Vec::new();
        for level in self.items(levels)? {
            let [queue, level, queued, running, oldest] = self.read(reply::parts(level))?;
            let queue = self.read(reply::text(queue))?;
            let mut depth = QueueDepth::empty(queue, self.read(reply::number(level))?);
            depth.queued = self.read(reply::number(queued))?;
            depth.running = self.read(reply::number(running))?;
            let oldest = self.read(reply::maybe(oldest, reply::time))?;
            depth.oldest = oldest.map(|oldest| now.duration_since(oldest).unwrap_or_default());
            depths.push(depth);
        }
        Ok(depths)
    }

    async fn due_webhooks(&self, max: usize) -> Result<Vec<DueWebhook>, StoreError> {
        let call = self.call(&scripts::DUE_WEBHOOKS).arg(max);
        let mut due = Vec::new();
        for webhook in self.items(self.link.run(&call).await?)? {
            let [info, url, tries] = self.read(reply::parts(webhook))?;
            due.push(DueWebhook {
                info: self.read(reply::info(info))?,
                url: self.read(reply::text(url))?,
                tries: self.read(reply::number(tries))?,
            });
        }
        Ok(due)
    }

    async fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let begin = match after {
            Some(after) if after >= prefix => [b"(", after.as_bytes()].concat(),
            _ => [b"[", prefix.as_bytes()].concat(),
        };
        // No key has this byte.
        let end = [b"(", prefix.as_bytes(), b"\xff"].concat();
        let call = self.call(&scripts::VALUES).arg(begin).arg(end).arg(max);
        let mut values = Vec::new();
        for pair in self.items(self.link.run(&call).await?)? {
            let [key, value] = self.read(reply::parts(pair))?;
            values.push((self.read(reply::text(key))?, self.read(reply::data(value))?));
        }
        Ok(values)
    }
}

/// Requests on their way to their caller. If they don't arrive, they are given back.
struct Handover {
    fetched: Vec<Fetched>,
    shared: Arc<Shared>,
}

impl Drop for Handover {
    fn drop(&mut self) {
        if self.fetched.is_empty() {
            return;
        }
        let fetched = self.fetched.drain(..).map(|fetched| fetched.lease);
        let leases: Vec<_> = fetched
            .inspect(|lease| self.shared.leases.remove(lease))
            .map(|lease| (lease.id(), lease.fence().to_owned()))
            .collect();
        // What is not given back now is found as a stray.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            runtime.spawn(async move { shared.give_back(&leases).await });
        }
    }
}

impl Store for RedisStore {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        Box::pin(self.shared.enqueue(request))
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let call = self.shared.call(&scripts::GET).arg(id.to_string());
        Box::pin(self.shared.info(call))
    }

    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            let call = self.shared.call(&scripts::POSITION).arg(id.to_string());
            let value = self.shared.link.run(&call).await?;
            self.shared.read(reply::maybe(value, reply::number))
        })
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.shared.field(id, "b"))
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.shared.field(id, "rb"))
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut watcher = self.shared.watchers.watch(id);
            self.shared.reread(&[id]).await?;
            watcher.ended().await;
            Ok(())
        })
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let call = self.shared.call(&scripts::CANCEL).arg(id.to_string());
        Box::pin(self.shared.info(call))
    }

    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let call = self.shared.call(&scripts::RETRY).arg(id.to_string());
        Box::pin(self.shared.info(call))
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        Box::pin(self.shared.list(listing))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(self.shared.backlog())
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut changes = self.shared.version.subscribe();
            // The sender lives as long as the store.
            let _ = changes.wait_for(|current| *current != version).await;
            Ok(())
        })
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        let queue = queue.to_owned();
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (caller, reply) = oneshot::channel();
            // A task of its own: if this future is dropped, the requests are given back.
            tokio::spawn(shared.fetch(queue, max, caller));
            let mut handover = reply.await.unwrap_or_else(|_| {
                Err(StoreError::Unavailable(
                    "the runtime is shutting down".to_owned(),
                ))
            })?;
            Ok(std::mem::take(&mut handover.fetched))
        })
    }

    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()> {
        let call = self.shared.call(&scripts::CALLED);
        let call = call.arg(lease.id().to_string()).arg(lease.fence());
        Box::pin(async move { self.shared.link.run(&call).await.map(drop) })
    }

    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        let stop = self.shared.leases.stopped(lease);
        Box::pin(async move {
            let Some(mut stop) = stop else {
                return Ok(Stop::Lost);
            };
            let stop = stop.wait_for(Option::is_some).await;
            // The sender goes with the lease.
            Ok(stop.ok().and_then(|stop| *stop).unwrap_or(Stop::Lost))
        })
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        Box::pin(self.shared.finish(lease, outcome))
    }

    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()> {
        let lease = lease.clone();
        Box::pin(async move { self.shared.append(&lease, data).await })
    }

    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>> {
        Box::pin(self.shared.chunks(id, after))
    }

    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let until = pause.until.map(|until| {
                let since = until.duration_since(SystemTime::UNIX_EPOCH);
                ms(since.unwrap_or_default())
            });
            let call = self
                .shared
                .call(&scripts::PAUSE)
                .arg(scope_name(&pause.scope))
                .maybe(until)
                .arg(pause.reason);
            self.shared.link.run(&call).await.map(drop)
        })
    }

    fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let mut was_there = false;
            loop {
                let call = self.shared.call(&scripts::RESUME).arg(scope_name(&scope));
                let value = self.shared.link.run(&call).await?;
                let [there, more] = self.shared.read(reply::parts(value))?;
                was_there |= there == Value::Int(1);
                if more != Value::Int(1) {
                    return Ok(was_there);
                }
            }
        })
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>> {
        Box::pin(self.shared.pauses())
    }

    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        Box::pin(self.shared.depths())
    }

    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        Box::pin(self.shared.due_webhooks(max))
    }

    fn settle_webhook(&self, id: RequestId, again: Option<Duration>) -> StoreFuture<'_, ()> {
        let call = self.shared.call(&scripts::SETTLE_WEBHOOK);
        let call = call.arg(id.to_string()).maybe(again.map(ms));
        Box::pin(async move { self.shared.link.run(&call).await.map(drop) })
    }

    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        let call = self.shared.call(&scripts::PUT).arg(key).arg(value.as_ref());
        Box::pin(async move { self.shared.link.run(&call).await.map(drop) })
    }

    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        let values = format!("{}:values", self.shared.namespace);
        let mut command = redis::cmd("HGET");
        command.arg(values).arg(key);
        Box::pin(async move {
            let value = self.shared.link.command(&command).await?;
            self.shared.read(reply::maybe(value, reply::data))
        })
    }

    fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        let call = self.shared.call(&scripts::REMOVE).arg(key);
        Box::pin(async move { Ok(self.shared.link.run(&call).await? == Value::Int(1)) })
    }

    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move { self.shared.values(&prefix, after.as_deref(), max).await })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .abort_all();
            self.shared.leases.clear();
            let owned = self.shared.owned().await?;
            self.shared.give_back(&owned).await
        })
    }
}
