//! The operations of fronts: requests come in, are listed, and are read as streams.

use redis::Value;

use super::reply::{self, Unexpected};
use super::scripts;
use super::shared::{Shared, ms};
use crate::durable::{
    Chunk, Chunks, Enqueued, Listing, NewRequest, Page, RequestId, RequestInfo, StoreError,
};

/// The shards of a level into which new requests go.
const SHARDS: u64 = 4;

/// Returns two shards for a tenant, so that no tenant fills all.
fn shards(tenant: &[u8]) -> (u64, u64) {
    // FNV-1a: all processes have to find the same.
    let hash = tenant.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let first = hash % SHARDS;
    (first, (first + 1 + (hash >> 32) % (SHARDS - 1)) % SHARDS)
}

/// Returns the key under which a request is known, which belongs to its tenant, and its fingerprint; empty without one.
fn idempotency(request: &NewRequest) -> (Vec<u8>, Vec<u8>) {
    match &request.idempotency {
        Some(idempotency) => (
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
    }
}

impl Shared {
    pub(super) async fn enqueue(&self, request: NewRequest) -> Result<Enqueued, StoreError> {
        let (shard, other_shard) = shards(&request.tenant);
        let (key, fingerprint) = idempotency(&request);
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

    /// Returns the stored request of the same name or key.
    pub(super) async fn known(
        &self,
        request: NewRequest,
    ) -> Result<Option<RequestInfo>, StoreError> {
        let (key, fingerprint) = idempotency(&request);
        let call = self.call(&scripts::KNOWN).arg(request.id.to_string());
        let call = call.arg(key).arg(fingerprint);
        let value = self.link.run(&call).await?;
        match value {
            Value::BulkString(_) | Value::SimpleString(_) => Err(StoreError::IdempotencyKeyReused),
            value => self.read(reply::maybe(value, reply::info)),
        }
    }

    pub(super) async fn list(&self, listing: Listing) -> Result<Page, StoreError> {
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

    pub(super) async fn chunks(
        &self,
        id: RequestId,
        after: u64,
    ) -> Result<Option<Chunks>, StoreError> {
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
}
