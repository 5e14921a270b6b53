//! The arrival of new requests.

use super::super::archive::Archive;
use super::super::keys;
use super::super::rows::{KeyRow, RequestRow};
use super::super::time::Time;
use super::super::write::Write;
use super::record::{Phase, Record};
use super::{Queue, State, Tenant, Undo};
use tower_triage_durable::{Enqueued, NewRequest, QueueEvent, RequestId, RequestInfo, StoreError};

impl State {
    /// Returns the stored request with the same id, or with the same idempotency key and fingerprint. Fails if a
    /// request with the same key has another fingerprint.
    pub(crate) fn known(
        &self,
        request: &NewRequest,
        archive: Archive<'_>,
        now: Time,
    ) -> Result<Option<RequestInfo>, StoreError> {
        if let Some(slot) = self.slot(request.id) {
            return Ok(Some(self.info(slot)));
        }
        if let Some(stored) = self.archived(archive, request.id, now)? {
            return Ok(Some(stored.info()));
        }
        match key_row(request) {
            None => Ok(None),
            Some(key) => match self.by_key(&key, archive, now)? {
                Some((known, _)) if known != key.fingerprint => {
                    Err(StoreError::IdempotencyKeyReused)
                }
                found => Ok(found.map(|(_, info)| info)),
            },
        }
    }

    /// Stores a request, or returns the known request of the same id or key. Fails if the store or the tenant's queue
    /// is full.
    pub(crate) fn enqueue(
        &mut self,
        request: NewRequest,
        archive: Archive<'_>,
        now: Time,
    ) -> Result<Enqueued, StoreError> {
        if let Some(known) = self.known(&request, archive, now)? {
            return Ok(Enqueued::Known(known));
        }
        self.has_room(&request.tenant)?;
        let key = key_row(&request);
        // The number is unique, and keeps the order of arrival even if the clock stands still or goes back.
        let seq = now.nanos().max(self.latest + 1);
        let row = RequestRow {
            queue: request.queue,
            level: request.level.min(self.rules.lowest()),
            level_name: Some(self.rules.level_name(request.level)),
            tenant: request.tenant,
            cost: request.cost,
            deadline: request.cancel_after.map(|after| now.after(after)),
            not_before: request.delay.map(|delay| now.after(delay)),
            key,
            webhook: request.webhook,
            is_unlisted: !request.is_listed,
            body_bytes: request.request.len() as u64,
            ..RequestRow::new(request.id, seq)
        };
        let segment = self.segments.current(now);
        self.segments
            .add_bytes(segment, &row.tenant, row.body_bytes);
        let slot = self.insert(segment, &row);
        self.begin(slot);
        self.enter_order(slot, now);
        self.writes.push(Write::Request {
            segment,
            row: Box::new(row),
            body: request.request,
        });
        self.undo.push(Undo::Enqueue(request.id));
        // A deadline that has already passed ends the request at once.
        if self
            .record(slot)
            .deadline
            .is_some_and(|deadline| deadline <= now)
        {
            self.expire(slot, now);
        }
        Ok(Enqueued::New(self.info(slot)))
    }

    /// Returns the request that has this idempotency key, preceded by its fingerprint.
    fn by_key(
        &self,
        key: &KeyRow,
        archive: Archive<'_>,
        now: Time,
    ) -> Result<Option<([u8; 32], RequestInfo)>, StoreError> {
        if let Some(&slot) = self.by_key.get(&key.name) {
            let known = self.record(slot).extra().key.as_ref();
            return Ok(known.map(|known| (known.fingerprint, self.info(slot))));
        }
        let retention = self.retention(now);
        let found = archive.by_key(&key.name)?;
        let found = found.filter(|found| found.is_kept(retention));
        Ok(found.and_then(|found| {
            let known = found.row.key.as_ref()?;
            Some((known.fingerprint, found.info()))
        }))
    }

    /// Adds a request to the counts and indexes of the requests that have not ended.
    pub(super) fn begin(&mut self, slot: u32) {
        let record = &self.requests[slot as usize];
        self.live += 1;
        self.tenants[record.tenant].live += 1;
        if record.is_listed {
            self.listed.insert((record.tenant, record.seq), slot);
        }
        if let Some(deadline) = record.deadline {
            self.deadlines.insert((deadline, slot));
        }
    }

    /// Checks that one more request of a tenant may be stored.
    fn has_room(&self, tenant: &[u8]) -> Result<(), StoreError> {
        let tenant = self.tenants.number(tenant);
        let max_size = self.config.max_size_per_tenant;
        if max_size > 0 && tenant.map_or(0, |tenant| self.tenants[tenant].live) >= max_size {
            return Err(StoreError::TenantQueueFull { max_size });
        }
        let max_size = self.config.max_size;
        if self.live >= max_size {
            return Err(StoreError::QueueFull { max_size });
        }
        Ok(())
    }

    /// Adds a record to memory and to the indexes by id and key. The request is in no queue yet.
    pub(super) fn insert(&mut self, segment: u32, row: &RequestRow) -> u32 {
        let new = || Tenant {
            name: bytes::Bytes::copy_from_slice(&row.tenant).into(),
            live: 0,
            running: 0,
        };
        let mut record = Record::new(row.id(), row.seq);
        record.deadline = row.deadline;
        record.queue = self.queues.acquire(&row.queue, || Queue::new(&self.rules));
        record.tenant = self.tenants.acquire(&row.tenant, new);
        record.cost = row.cost;
        record.segment = segment;
        record.body_bytes = row.body_bytes;
        record.level = row.level.min(self.rules.lowest());
        record.is_listed = !row.is_unlisted;
        if row.key.is_some() || row.webhook.is_some() || row.not_before.is_some() {
            let extra = record.extra_mut();
            extra.key.clone_from(&row.key);
            extra.webhook.clone_from(&row.webhook);
            extra.not_before = row.not_before;
        }
        self.latest = self.latest.max(row.seq);
        let slot = self.requests.insert(record) as u32;
        self.by_id.insert(&mut self.requests, slot);
        if let Some(key) = &row.key {
            self.by_key.insert(key.name, slot);
        }
        // A sealed segment that gets a live request again must be searched at the next recovery.
        if self.segments.enter(segment) {
            self.writes.push(Write::Unsealed { segment });
        }
        slot
    }

    pub(super) fn undo_enqueue(&mut self, id: RequestId) {
        let Some(slot) = self.slot(id) else { return };
        let record = &self.requests[slot as usize];
        if let Phase::Ended(status) = record.phase {
            let reason = record.extra().reason.clone();
            let queue = self.queues.name(record.queue);
            self.totals
                .undo(queue, &QueueEvent::Ended { status, reason });
        }
        let tenant = self.tenants.name(record.tenant);
        self.segments
            .undo_bytes(record.segment, tenant, record.body_bytes);
        self.remove(slot);
    }

    /// Removes a request and all its index entries from memory.
    pub(super) fn remove(&mut self, slot: u32) {
        if !self.record(slot).has_ended() {
            self.leave_order(slot);
            self.settle(slot);
        }
        if let Some(until) = self.forgotten_at(slot) {
            self.forgets.remove(&(until, slot));
        }
        self.by_id.remove(&mut self.requests, slot);
        let record = self.requests.remove(slot as usize);
        let extra = record.extra();
        if let Some(key) = &extra.key {
            self.by_key.remove(&key.name);
        }
        if let Some(due) = extra.webhook_due {
            self.webhooks.remove(&(due, slot));
        }
        self.tenants.release(record.tenant);
        self.queues.release(record.queue);
        self.segments.leave(record.segment);
    }
}

fn key_row(request: &NewRequest) -> Option<KeyRow> {
    let key = request.idempotency.as_ref()?;
    Some(KeyRow {
        name: keys::tenant_and_key(&request.tenant, &key.key),
        fingerprint: key.fingerprint,
    })
}
