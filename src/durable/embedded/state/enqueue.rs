//! A request comes in.

use super::super::row::{KeyRow, RequestRow};
use super::super::time::Time;
use super::super::write::Write;
use super::record::{Extra, Phase, Record};
use super::{Queue, State, Tenant, Undo};
use crate::durable::{Enqueued, NewRequest, RequestId, RequestInfo, StoreError};

impl State {
    /// Returns the stored request of the same name, or of the same key and fingerprint.
    pub(crate) fn known(&self, request: &NewRequest) -> Result<Option<RequestInfo>, StoreError> {
        if let Some(slot) = self.slot(request.id) {
            return Ok(Some(self.info(slot)));
        }
        if let (Some(tenant), Some(key)) =
            (self.tenants.number(&request.tenant), &request.idempotency)
            && let Some(&slot) = self.by_key.get(&(tenant, key.key.clone()))
        {
            let extra = self.record(slot).extra.as_ref();
            let known = extra.and_then(|extra| extra.key.as_ref());
            return match known.is_some_and(|(_, known)| *known == key.fingerprint) {
                true => Ok(Some(self.info(slot))),
                false => Err(StoreError::IdempotencyKeyReused),
            };
        }
        Ok(None)
    }

    /// Stores a request.
    pub(crate) fn enqueue(
        &mut self,
        request: NewRequest,
        now: Time,
    ) -> Result<Enqueued, StoreError> {
        if let Some(known) = self.known(&request)? {
            return Ok(Enqueued::Known(known));
        }
        let tenant = self.tenants.number(&request.tenant);
        self.has_room(tenant)?;
        // Unique, and in the order in which requests came, also where the clock stands still or goes back.
        let seq = now.nanos().max(self.latest + 1);
        let row = RequestRow {
            seq,
            created: now,
            queue: request.queue,
            level: request.level.min(self.rules.lowest()),
            tenant: request.tenant,
            cost: request.cost,
            deadline: request.cancel_after.map(|after| now.after(after)),
            not_before: request.delay.map(|delay| now.after(delay)),
            key: request.idempotency.map(|key| KeyRow {
                key: key.key,
                fingerprint: key.fingerprint,
            }),
            webhook: request.webhook,
            is_unlisted: !request.is_listed,
        };
        let segment = self.segments.at(now);
        let slot = self.insert(request.id, segment, &row);
        self.live += 1;
        let record = self.record(slot);
        let (tenant, deadline) = (record.tenant, record.deadline);
        self.tenants[tenant].live += 1;
        self.enter_order(slot, now);
        self.writes.push(Write::Request {
            segment,
            id: request.id,
            row: Box::new(row),
            body: request.request,
        });
        self.undo.push(Undo::Enqueue(request.id));
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, slot));
            if deadline <= now {
                self.expire(slot, now);
            }
        }
        Ok(Enqueued::New(self.info(slot)))
    }

    /// Checks that one more request of a tenant may be stored.
    fn has_room(&self, tenant: Option<u32>) -> Result<(), StoreError> {
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

    /// Adds a request that is in no order yet.
    pub(super) fn insert(&mut self, id: RequestId, segment: u32, row: &RequestRow) -> u32 {
        let tenant = self.tenants.acquire(&row.tenant, Tenant::default);
        let queue = self.queues.acquire(&row.queue, || Queue::new(&self.rules));
        let mut record = Record {
            id,
            seq: row.seq,
            created: row.created,
            deadline: row.deadline,
            not_before: row.not_before,
            started: None,
            ended: None,
            phase: Phase::Outside,
            extra: None,
            queue,
            tenant,
            cost: row.cost,
            attempts: 0,
            segment,
            response_status: None,
            level: row.level.min(self.rules.lowest()),
            is_listed: !row.is_unlisted,
        };
        if row.key.is_some() || row.webhook.is_some() {
            let key = row.key.as_ref();
            record.extra = Some(Box::new(Extra {
                key: key.map(|key| (key.key.clone(), key.fingerprint)),
                webhook: row.webhook.clone(),
                ..Extra::default()
            }));
        }
        self.latest = self.latest.max(row.seq);
        let slot = self.requests.insert(record) as u32;
        self.by_id.insert(id, slot);
        self.by_age.insert(row.seq, slot);
        self.by_tenant.insert((tenant, row.seq), slot);
        if let Some(key) = &row.key {
            self.by_key.insert((tenant, key.key.clone()), slot);
        }
        self.segments.add(segment);
        slot
    }

    pub(super) fn undo_enqueue(&mut self, id: RequestId, now: Time) {
        if let Some(slot) = self.slot(id) {
            self.remove(slot, now);
        }
    }

    /// Removes all trace of a request.
    pub(super) fn remove(&mut self, slot: u32, now: Time) {
        if self.record(slot).ended.is_none() {
            self.leave_order(slot);
            self.settle(slot);
        }
        let record = self.requests.remove(slot as usize);
        self.by_id.remove(&record.id);
        self.by_age.remove(&record.seq);
        self.by_tenant.remove(&(record.tenant, record.seq));
        if let Some(ended) = record.ended {
            let until = ended.after(self.config.retention);
            self.forgets.remove(&(until, slot));
        }
        if let Some(extra) = record.extra {
            if let Some((key, _)) = extra.key {
                self.by_key.remove(&(record.tenant, key));
            }
            if let Some(due) = extra.webhook_due {
                self.webhooks.remove(&(due, slot));
            }
        }
        self.tenants.release(record.tenant);
        self.queues.release(record.queue);
        self.segments.remove(record.segment);
        self.drop_empty_segments(now);
        self.news.requests.push(record.id);
    }
}
