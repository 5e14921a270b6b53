//! The tasks of an open store, which renew leases, end requests at their deadline, and forget old requests.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::shared::Shared;
use super::{check, reader, reply, scripts};
use tower_triage_durable::{OnCrash, RequestId, Stop, StoreError};

/// The interval at which requests are ended at their deadline.
const CORDON: Duration = Duration::from_secs(1);
/// The interval at which the states of watched requests are read again.
const REREAD: Duration = Duration::from_secs(5);
/// The longest interval at which ended requests are forgotten.
const PRUNE: Duration = Duration::from_secs(60);
const PRUNE_CONSUMERS: Duration = Duration::from_secs(60 * 60);
/// The number of leases that one script call renews.
const RENEWED_AT_ONCE: usize = 256;
/// The number of messages that one script call looks at, which the script knows.
const LOOKED_AT_ONCE: usize = 100;
/// The number of writes between the two looks of a sweep.
const PROBES: u32 = 8;

/// Starts the tasks of a store. They end when the returned set is dropped.
pub(super) fn start(shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let of = |shared: &Arc<Shared>| Arc::clone(shared);
    let s = of(shared);
    tasks.spawn(async move { check::settings(&s).await });
    let s = of(shared);
    tasks.spawn(async move { reader::read(&s).await });
    let s = of(shared);
    tasks.spawn(async move { claim(&s).await });
    let s = of(shared);
    tasks.spawn(async move { sweep(&s).await });
    let s = of(shared);
    tasks.spawn(async move { cordon(&s).await });
    let s = of(shared);
    tasks.spawn(async move { prune(&s).await });
    let s = of(shared);
    tasks.spawn(async move { prune_consumers(&s).await });
    let s = of(shared);
    tasks.spawn(async move {
        loop {
            sleep(REREAD).await;
            s.reread_watched().await;
        }
    });
    tasks
}

/// Logs the failure of a pass. The next pass does the work.
fn note(shared: &Shared, pass: &'static str, result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::debug!(redis = %shared.link.address(), pass, %error, "a pass over the store failed");
    }
}

async fn claim(shared: &Shared) {
    let interval = shared.config.store.lease / 15;
    loop {
        let _ = tokio::time::timeout(interval, shared.claim.notified()).await;
        note(shared, "claim", claim_once(shared).await);
    }
}

async fn claim_once(shared: &Shared) -> Result<(), StoreError> {
    let held = shared.leases.held();
    for part in held.chunks(RENEWED_AT_ONCE) {
        let mut call = shared.call(&scripts::RENEW);
        for (id, fence) in part {
            call = call.arg(id.to_string()).arg(fence);
        }
        let gone = shared.items(shared.link.run(&call).await?)?;
        for pair in gone.chunks_exact(2) {
            let (id, kind) = shared.read_pair(pair)?;
            let Some((_, fence)) = part.iter().find(|(held, _)| *held == id) else {
                continue;
            };
            match kind.as_slice() {
                b"c" => shared.leases.stop(id, fence, Stop::Canceled),
                b"d" => shared.leases.forget(id, fence),
                _ => shared.leases.stop(id, fence, Stop::Lost),
            }
        }
    }
    let strays = shared.leases.strays(shared.owned().await?);
    shared.give_back(&strays).await
}

async fn sweep(shared: &Shared) {
    loop {
        let lease = shared.config.store.lease;
        sleep(lease.mul_f64(0.25 + 0.75 * fastrand::f64())).await;
        note(shared, "sweep", sweep_once(shared).await);
    }
}

/// Takes requests from workers that were silent at two looks, with half a lease between them in which the store took
/// writes. A live worker renews its leases in that time, whatever kept it from doing so before: an outage, or a step of
/// the clock of Redis.
async fn sweep_once(shared: &Shared) -> Result<(), StoreError> {
    let silent = look(shared).await?;
    if silent.is_empty() {
        return Ok(());
    }
    let wait = shared.config.store.lease / 2;
    for _ in 0..PROBES {
        sleep(wait / PROBES).await;
        shared.link.run(&shared.call(&scripts::PROBE)).await?;
    }
    if shared.link.was_away_within(wait).await {
        return Ok(());
    }
    take(shared, &silent).await
}

/// A stream, and the messages in it whose leases were not renewed, each with the time of its last renewal.
type Silent = (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);

/// Returns the messages whose leases are over, by stream.
async fn look(shared: &Shared) -> Result<Vec<Silent>, StoreError> {
    let lease = shared.config.store.lease.as_millis() as u64;
    let mut silent = Vec::new();
    for stream in shared.streams().await? {
        let mut messages: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let from = match messages.last() {
                None => b"-".to_vec(),
                Some((last, _)) => [b"(", &last[..]].concat(),
            };
            let call = shared
                .call(&scripts::LOOK)
                .arg(&stream)
                .arg(from)
                .arg(lease);
            let found = shared.items(shared.link.run(&call).await?)?;
            let is_last = found.len() < 2 * LOOKED_AT_ONCE;
            let mut found = found.into_iter().map(reply::bytes);
            while let (Some(message), Some(renewed)) = (found.next(), found.next()) {
                messages.push((shared.read(message)?, shared.read(renewed)?));
            }
            if is_last {
                break;
            }
        }
        if !messages.is_empty() {
            silent.push((stream, messages));
        }
    }
    Ok(silent)
}

/// Takes the requests of these messages from their workers, unless they were renewed since.
async fn take(shared: &Shared, silent: &[Silent]) -> Result<(), StoreError> {
    let config = &shared.config.store;
    let max_attempts = match config.on_crash {
        OnCrash::Fail => 1,
        OnCrash::Retry { max_attempts } => max_attempts,
    };
    for (stream, messages) in silent {
        for part in messages.chunks(LOOKED_AT_ONCE) {
            let call = shared.call(&scripts::SWEEP).arg(stream);
            let call = call.arg(config.lease.as_millis() as u64).arg(max_attempts);
            let call = part.iter().fold(call, |call, (message, renewed)| {
                call.arg(message).arg(renewed)
            });
            let swept = reply::number::<u64>(shared.link.run(&call).await?);
            let swept = shared.read(swept)?;
            if swept > 0 {
                tracing::warn!(swept, "requests of silent workers were taken away");
            }
        }
    }
    Ok(())
}

/// Runs a script repeatedly until it reports that all work is done.
async fn run_to_end(shared: &Shared, script: &'static redis::Script) -> Result<(), StoreError> {
    while shared.link.run(&shared.call(script)).await? == Value::Int(1) {}
    Ok(())
}

async fn cordon(shared: &Shared) {
    loop {
        note(shared, "cordon", run_to_end(shared, &scripts::CORDON).await);
        sleep(CORDON).await;
    }
}

async fn prune(shared: &Shared) {
    let interval = (shared.config.store.retention / 2).clamp(Duration::from_millis(100), PRUNE);
    loop {
        sleep(interval.mul_f64(0.5 + fastrand::f64())).await;
        note(shared, "prune", run_to_end(shared, &scripts::PRUNE).await);
    }
}

async fn prune_consumers(shared: &Shared) {
    loop {
        sleep(PRUNE_CONSUMERS.mul_f64(0.5 + fastrand::f64())).await;
        let pass = async {
            for stream in shared.streams().await? {
                let call = shared.call(&scripts::PRUNE_CONSUMERS).arg(&stream);
                shared.link.run(&call).await?;
            }
            Ok(())
        };
        note(shared, "prune consumers", pass.await);
    }
}

impl Shared {
    /// Reads again all that notifications may have announced while this process was not listening.
    pub(super) async fn on_lost_hints(&self) {
        self.on_new_work(None);
        self.watchers.on_lost_hints();
        self.claim.notify_one();
        self.reread_watched().await;
    }

    /// Reads the states of the requests that this process watches.
    async fn reread_watched(&self) {
        let unfinished = self.watchers.unfinished();
        for part in unfinished.chunks(RENEWED_AT_ONCE) {
            note(self, "reread", self.reread(part).await);
        }
    }

    /// Registers for the ends of requests, and records the requests that have already ended.
    pub(super) async fn reread(&self, ids: &[RequestId]) -> Result<(), StoreError> {
        let mut call = self.call(&scripts::WATCH);
        for id in ids {
            call = call.arg(id.to_string());
        }
        let replies = self.items(self.link.run(&call).await?)?;
        for (id, reply) in ids.iter().zip(replies) {
            self.on_watch(*id, &reply);
        }
        Ok(())
    }

    /// Registers for the end of a request, and records it if the request has already ended.
    pub(super) async fn watch(self: &Arc<Self>, id: RequestId) -> Result<(), StoreError> {
        let item = vec![id.to_string().into_bytes()];
        let reply = self
            .run_batched(|batches| &batches.watch, item, None)
            .await?;
        self.on_watch(id, &reply);
        Ok(())
    }

    fn on_watch(&self, id: RequestId, reply: &Value) {
        if *reply == Value::Int(1) {
            self.watchers.on_end(id);
        }
    }
}
