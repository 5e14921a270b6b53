//! The store as its users see it: how it is opened, and its operations.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redis::Value;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use super::batch::Batches;
use super::direct::IdleWorkers;
use super::leases::Leases;
use super::link::Link;
use super::operators::scope_name;
use super::replicas::Replicas;
use super::shared::{Shared, ms};
use super::watchers::Watchers;
use super::{ConnectError, RedisConfig, check, level, reply, scripts, upkeep};
use tower_triage::Discipline;
use tower_triage_durable::{
    Backlog, BacklogChange, Chunks, Drain, DueWebhook, Enqueued, Fetched, Found, IdleWorker,
    KeyValues, Lease, Listing, NewRequest, Operate, Outcome, Page, Pause, PauseScope, QueueDepth,
    QueueTotal, RequestId, RequestInfo, ResponsePart, Stop, Store, StoreError, StoreFuture,
    Streams, Webhooks,
};

/// A [`Store`] on Redis, for many front ends and workers.
///
/// It needs Redis 7.0 or later, or Valkey, with `appendonly yes` and `maxmemory-policy noeviction`. With other
/// settings, it logs a warning that names them. Requests of one level start in the order of their arrival.
///
/// While Redis is away, operations fail with [`StoreError::Unavailable`], which names its host and port, and the store
/// reconnects by itself. An operation that lost its reply is repeated once, and the scripts recognize their own earlier
/// work. If a worker dies, other processes find its requests after the [lease](tower_triage_durable::StoreConfig::lease), and
/// at most one and a half leases later.
///
/// [`Store::stored_bytes`] counts for all processes together, and [`Store::free_bytes`] is what is left of Redis'
/// `maxmemory`, or `None` if that is not set.
///
/// A failover loses the requests that the new master does not have, unless [`RedisConfig::replicas`] is set. The store
/// never uses a replica. It waits until its address, or its cluster, has a master with its keys, and continues there.
///
/// In a cluster (`redis+cluster://`) all keys of a store are in one slot, so one master carries the store. Stores with
/// different [queues](RedisConfig::queue) spread over the masters. While a slot is being moved to another master, its
/// store is unavailable, so that a script can't see half of its keys.
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

impl RedisStore {
    /// Opens the store. Redis may still be unreachable; until it is there, operations fail with
    /// [`StoreError::Unavailable`].
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, or if this is called outside a Tokio runtime.
    pub fn connect(config: RedisConfig) -> Result<Self, ConnectError> {
        config.validate()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConnectError::NoRuntime);
        }
        let nodes = Arc::new(config.nodes()?);
        let process = process_name().map_err(|error| ConnectError::Random(error.to_string()))?;
        let shared = Arc::new(Shared {
            replicas: (config.replicas > 0).then(|| {
                Replicas::new(Arc::clone(&nodes), config.replicas, config.replica_timeout)
            }),
            link: Link::new(nodes, Duration::ZERO),
            namespace: config.namespace(),
            process,
            header: header(&config),
            weights: weights(&config),
            batches: Batches::new(),
            watchers: Watchers::default(),
            leases: Leases::default(),
            workers: IdleWorkers::default(),
            version: watch::Sender::default(),
            claim: Notify::new(),
            config,
        });
        let tasks = Mutex::new(upkeep::start(&shared));
        Ok(Self { shared, tasks })
    }
}

/// Returns a name for this process that is unique over all hosts and times.
fn process_name() -> std::io::Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_else(|_| "host".to_owned());
    let host = host.trim().replace(',', "-"); // commas separate the watchers of a request
    // Half an id is unique enough within one process of one host, and Redis stores this name often.
    let id = RequestId::random()?.to_string();
    Ok(format!("{host}:{}:{}", std::process::id(), &id[..16]))
}

fn header(config: &RedisConfig) -> String {
    let order = match config.store.order.discipline {
        Discipline::Fair => "fair",
        _ => "fifo",
    };
    let store = &config.store;
    format!(
        "{} {order} {} {} {} {}",
        ms(store.retention),
        store.max_running,
        store.max_running_per_queue,
        store.max_running_per_tenant,
        level::all(&store.order.levels)
    )
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

impl Store for RedisStore {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        Box::pin(self.shared.enqueue(request))
    }

    fn register_worker(&self, worker: Weak<dyn IdleWorker>) {
        self.shared.workers.add(worker);
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.shared.get(id))
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.shared.field(id, "rb"))
    }

    fn response_part(
        &self,
        id: RequestId,
        offset: u64,
        max: usize,
    ) -> StoreFuture<'_, Option<ResponsePart>> {
        Box::pin(self.shared.response_part(id, offset, max))
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>> {
        // The wait is registered before the future runs. If the request is stored meanwhile, its end is announced
        // without another call.
        let mut watcher = self.shared.watchers.watch(id);
        let was_stored = watcher.is_asked();
        Box::pin(async move {
            let is_asked = watcher.is_asked();
            if !is_asked {
                self.shared.watch(id).await?;
            }
            let found = watcher.ended().await;
            // A later wait may see the end of an earlier run, after which the request was put back. So it returns no
            // result.
            Ok(found.filter(|_| is_asked && !was_stored))
        })
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let call = self.shared.call(&scripts::CANCEL).arg(id.to_string());
        Box::pin(self.shared.info(call))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(self.shared.backlog())
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange> {
        Box::pin(async move {
            let mut changes = self.shared.version.subscribe();
            let changed = changes.wait_for(|current| current.number != version).await;
            // The sender lives as long as the store.
            Ok(changed.map_or(BacklogChange::Any, |current| current.since(version)))
        })
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        let queue = queue.to_owned();
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (caller, reply) = oneshot::channel();
            // A task of its own fetches the requests, so that they are given back if this future is dropped.
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
        Box::pin(Arc::clone(&self.shared).called(lease.clone()))
    }

    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        let stop = self.shared.leases.stopped(lease);
        Box::pin(async move {
            let Some(mut stop) = stop else {
                return Ok(Stop::Lost);
            };
            let stop = stop.wait_for(Option::is_some).await;
            // The sender is dropped together with the lease, so a closed channel means that the lease is lost.
            Ok(stop.ok().and_then(|stop| *stop).unwrap_or(Stop::Lost))
        })
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        Box::pin(Arc::clone(&self.shared).finish(lease, outcome))
    }

    fn stored_bytes(&self, tenant: &[u8]) -> StoreFuture<'_, u64> {
        let tenants = format!("{}:tenants", self.shared.namespace);
        let mut command = redis::cmd("HGET");
        command.arg(tenants).arg([b"s", tenant].concat());
        Box::pin(async move {
            let value = self.shared.link.command(&command).await?;
            let bytes = self.shared.read(reply::maybe(value, reply::number))?;
            Ok(bytes.unwrap_or(0))
        })
    }

    fn free_bytes(&self) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move { Ok(check::free_bytes(&self.shared).await) })
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

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn webhooks(&self) -> Option<&dyn Webhooks> {
        Some(self)
    }

    fn key_values(&self) -> Option<&dyn KeyValues> {
        Some(self)
    }

    fn drain(&self) -> Option<&dyn Drain> {
        Some(self)
    }
}

impl Streams for RedisStore {
    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()> {
        let lease = lease.clone();
        Box::pin(async move { self.shared.append(&lease, data).await })
    }

    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>> {
        Box::pin(self.shared.chunks(id, after))
    }
}

impl Operate for RedisStore {
    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            let call = self.shared.call(&scripts::POSITION).arg(id.to_string());
            let value = self.shared.link.run(&call).await?;
            self.shared.read(reply::maybe(value, reply::number))
        })
    }

    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let call = self.shared.call(&scripts::RETRY).arg(id.to_string());
        Box::pin(self.shared.info(call))
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        Box::pin(self.shared.list(listing))
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

    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>> {
        Box::pin(self.shared.totals())
    }
}

impl Webhooks for RedisStore {
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        Box::pin(self.shared.due_webhooks(max))
    }

    fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()> {
        let call = self.shared.call(&scripts::SETTLE_WEBHOOK);
        let call = call.arg(id.to_string()).arg(retries);
        let call = call.maybe(again.map(ms));
        Box::pin(async move { self.shared.link.run(&call).await.map(drop) })
    }
}

impl KeyValues for RedisStore {
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
}

impl Drain for RedisStore {
    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.shared.known(request.clone()))
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.shared.field(id, "b"))
    }
}
