//! The end of requests: by a result, a cancellation or a deadline. Also the return of failed requests into their
//! queues.

use super::super::archive::Archive;
use super::super::time::Time;
use super::super::write::Write;
use super::State;
use super::record::Phase;
use tower_triage_durable::reason::{DEADLINE_EXCEEDED, REQUEST_CANCELED};
use tower_triage_durable::{QueueEvent, RequestId, RequestInfo, RequestStatus, StoreError};

impl State {
    /// Cancels a request that has not ended yet. Returns the request as it is afterwards, or `None` if it is unknown.
    pub(crate) fn cancel(
        &mut self,
        id: RequestId,
        archive: Archive<'_>,
        now: Time,
    ) -> Result<Option<RequestInfo>, StoreError> {
        let Some(slot) = self.slot(id) else {
            let archived = self.archived(archive, id, now)?;
            return Ok(archived.map(|stored| stored.info()));
        };
        if !self.record(slot).has_ended() {
            let reason = Some(REQUEST_CANCELED);
            self.end(slot, RequestStatus::Canceled, reason, now);
        }
        Ok(Some(self.info(slot)))
    }

    /// Puts a failed request back into its queue. A request in any other state is returned unchanged.
    pub(crate) fn retry(
        &mut self,
        id: RequestId,
        archive: Archive<'_>,
        now: Time,
    ) -> Result<Option<RequestInfo>, StoreError> {
        let slot = match self.slot(id) {
            Some(slot) => slot,
            None => match self.archived(archive, id, now)? {
                None => return Ok(None),
                Some(stored) if stored.status() == RequestStatus::Failed => {
                    let slot = self.insert(stored.segment, &stored.row);
                    self.restore(slot, stored.state, 0);
                    slot
                }
                Some(stored) => return Ok(Some(stored.info())),
            },
        };
        if self.record(slot).phase == Phase::Ended(RequestStatus::Failed) {
            self.revive(slot, now);
        }
        Ok(Some(self.info(slot)))
    }

    /// Resets a failed request to the state of a new one, except that readers learn of its earlier attempts by a gap.
    fn revive(&mut self, slot: u32, now: Time) {
        if let Some(until) = self.forgotten_at(slot) {
            self.forgets.remove(&(until, slot));
        }
        let record = &mut self.requests[slot as usize];
        record.deadline = None;
        record.phase = Phase::Outside;
        // The next response takes the place of this one.
        let bytes = std::mem::take(&mut record.extra_mut().response_bytes);
        let tenant = self.tenants.name(record.tenant);
        self.segments.undo_bytes(record.segment, tenant, bytes);
        let extra = record.extra_mut();
        extra.attempts = 0;
        extra.tries = 0;
        extra.retries = extra.retries.saturating_add(1);
        extra.not_before = None;
        extra.started = None;
        extra.response_status = None;
        extra.reason = None;
        extra.dropped = extra.chunks;
        extra.ended = None;
        if let Some(due) = extra.webhook_due.take() {
            self.webhooks.remove(&(due, slot));
        }
        let record = self.record(slot);
        if record.is_listed {
            self.writes.push(Write::Unlisted {
                segment: record.segment,
                seq: record.seq,
                tenant: self.tenants.name(record.tenant).to_vec(),
                status: RequestStatus::Failed,
            });
        }
        self.begin(slot);
        self.enter_order(slot, now);
        self.write_state(slot);
    }

    /// Ends a request at its deadline. The request counts as aborted before its first attempt, and as canceled
    /// afterwards.
    pub(super) fn expire(&mut self, slot: u32, now: Time) {
        let status = match self.record(slot).extra().attempts {
            0 => RequestStatus::Aborted,
            _ => RequestStatus::Canceled,
        };
        self.end(slot, status, Some(DEADLINE_EXCEEDED), now);
    }

    /// Ends a request that has not ended yet, and schedules its webhook and the time at which it is forgotten.
    pub(super) fn end(
        &mut self,
        slot: u32,
        status: RequestStatus,
        reason: Option<&str>,
        now: Time,
    ) {
        match self.record(slot).phase {
            Phase::Running { .. } => self.stop_running(slot, now),
            _ => {
                self.leave_order(slot);
                self.let_next_in(self.record(slot).tenant, now);
            }
        }
        self.settle(slot);
        let queue = self.queues.name(self.record(slot).queue);
        let event = QueueEvent::Ended {
            status,
            reason: reason.map(str::to_owned),
        };
        self.totals.add(queue, event);
        let retention = self.config.retention;
        let record = self.record_mut(slot);
        record.phase = Phase::Ended(status);
        let (id, segment) = (record.id, record.segment);
        let extra = record.extra_mut();
        extra.ended = Some(now);
        extra.not_before = None;
        extra.reason = reason.map(str::to_owned);
        if extra.webhook.is_some() {
            extra.webhook_due = Some(now);
            self.webhooks.insert((now, slot));
        }
        let until = self.forgotten_at(slot);
        self.forgets.extend(until.map(|until| (until, slot)));
        self.segments.keep(segment, now.after(retention));
        self.write_state(slot);
        self.ended.push(id);
        self.news.requests.push(id);
    }

    /// Removes a request from the counts and indexes of the requests that have not ended.
    pub(super) fn settle(&mut self, slot: u32) {
        let record = &self.requests[slot as usize];
        if let Some(deadline) = record.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.listed.remove(&(record.tenant, record.seq));
        self.live -= 1;
        self.tenants[record.tenant].live -= 1;
    }
}
