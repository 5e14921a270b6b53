//! The operations of front ends, which store, list and look up requests and read their responses as streams.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use super::reply;
use super::scripts;
use super::shared::{Shared, ms};
use tower_triage::Priority;
use tower_triage_durable::{
    Chunk, Chunks, Enqueued, Listing, NewRequest, Page, RequestId, RequestInfo, ResponsePart,
    StoreError,
};

/// Returns the state of a request that was stored at `now`.
fn new_info(request: NewRequest, level: u8, now: SystemTime) -> RequestInfo {
    let after = |duration: Option<Duration>| {
        let ms = duration.map(ms).filter(|ms| *ms > 0)?;
        now.checked_add(Duration::from_millis(ms))
    };
    let mut info = RequestInfo::queued(request.id, now);
    // A timeout of 0 is a deadline that has already passed, so it must not be filtered out.
    info.deadline = request
        .cancel_after
        .map(|time| after(Some(time)).unwrap_or(now));
    info.not_before = after(request.delay);
    info.queue = request.queue;
    info.level = level;
    info.tenant = request.tenant;
    info.is_listed = request.is_listed;
    info
}

/// Returns the key and the fingerprint of a request, or empty values if it has no idempotency key. The key includes the
/// tenant, so that tenants can't see the requests of others.
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
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        request: NewRequest,
    ) -> Result<Enqueued, StoreError> {
        let (key, fingerprint) = idempotency(&request);
        let config = &self.config.store;
        // A request with an unknown level gets the lowest one.
        let level = self.levels().clamp(Priority(request.level)).0;
        let maybe = |duration: Option<Duration>| {
            let ms = duration.map(|duration| ms(duration).to_string());
            ms.unwrap_or_default().into_bytes()
        };
        let is_watched = self.watchers.is_watched(request.id);
        let item = vec![
            request.id.to_string().into_bytes(),
            reply::facts(&request, self.levels().name(Priority(level)), &key),
            maybe(request.cancel_after),
            maybe(request.delay),
            fingerprint,
            u8::from(is_watched).to_string().into_bytes(),
            request.request.to_vec(),
        ];
        let value = self.run_batched(
            |batches| &batches.enqueue,
            item,
            self.startable(&request, level),
        );
        let value = value.await?;
        if let Value::Array(_) = &value {
            return Ok(Enqueued::Known(
                self.read(reply::info(value, self.levels()))?,
            ));
        }
        match self.read(reply::text(value))?.as_str() {
            "full" => Err(StoreError::QueueFull {
                max_size: config.max_size,
            }),
            "tenant_full" => Err(StoreError::TenantQueueFull {
                max_size: config.max_size_per_tenant,
            }),
            "reused" => Err(StoreError::IdempotencyKeyReused),
            now => {
                let now = self.read(reply::parse_time(now))?;
                if is_watched {
                    self.watchers.on_asked(request.id);
                }
                Ok(Enqueued::New(new_info(request, level, now)))
            }
        }
    }

    /// Returns the stored request with the same id or idempotency key.
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
            value => self.read(reply::maybe(value, |value| {
                reply::info(value, self.levels())
            })),
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
        // One request more than the limit is asked for, to find out whether another page follows.
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
                requests.push(self.read(reply::info(info, self.levels()))?);
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
            // A reader that was within an earlier attempt has a gap. Old pieces of the current attempt may also be gone
            // from Redis.
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

    /// Returns at most `max` bytes of a response, beginning at byte `offset`.
    pub(super) async fn response_part(
        &self,
        id: RequestId,
        offset: u64,
        max: usize,
    ) -> Result<Option<ResponsePart>, StoreError> {
        let call = self.call(&scripts::RESPONSE_PART).arg(id.to_string());
        let call = call.arg(offset).arg(max);
        let value = self.link.run(&call).await?;
        if value == Value::Nil {
            return Ok(None);
        }
        let [data, length] = self.read(reply::parts(value))?;
        Ok(Some(ResponsePart {
            data: self.read(reply::data(data))?,
            length: self.read(reply::number(length))?,
        }))
    }
}
