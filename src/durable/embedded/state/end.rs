//! A request ends, comes back, or is forgotten.

use super::super::time::Time;
use super::super::write::Write;
use super::State;
use super::record::Phase;
use crate::durable::reason::{DEADLINE_EXCEEDED, REQUEST_CANCELED};
use crate::durable::{RequestId, RequestInfo, RequestStatus};

impl State {
    /// Ends a request that has not ended.
    pub(crate) fn cancel(&mut self, id: RequestId, now: Time) -> Option<RequestInfo> {
        let slot = self.slot(id)?;
        if self.record(slot).ended.is_none() {
            let reason = Some(REQUEST_CANCELED);
            self.end(slot, RequestStatus::Canceled, reason, now);
        }
        Some(self.info(slot))
    }

    /// Puts a request that has failed back into its queue.
    pub(crate) fn retry(&mut self, id: RequestId, now: Time) -> Option<RequestInfo> {
        let slot = self.slot(id)?;
        if self.record(slot).phase == Phase::Ended(RequestStatus::Failed) {
            self.revive(slot, now);
        }
        Some(self.info(slot))
    }

    fn revive(&mut self, slot: u32, now: Time) {
        let retention = self.config.retention;
        let record = self.record_mut(slot);
        record.attempts = 0;
        record.deadline = None;
        record.not_before = None;
        record.started = None;
        record.response_status = None;
        let (ended, tenant) = (record.ended.take(), record.tenant);
        let mut due = None;
        if let Some(extra) = &mut record.extra {
            extra.reason = None;
            extra.tries = 0;
            extra.dropped = extra.chunks;
            due = extra.webhook_due.take();
        }
        if let Some(ended) = ended {
            self.forgets.remove(&(ended.after(retention), slot));
        }
        if let Some(due) = due {
            self.webhooks.remove(&(due, slot));
        }
        self.live += 1;
        self.tenants[tenant].live += 1;
        self.enter_order(slot, now);
        self.write_state(slot);
    }

    /// Ends a request whose time is up.
    pub(super) fn expire(&mut self, slot: u32, now: Time) {
        let status = match self.record(slot).attempts {
            0 => RequestStatus::Aborted,
            _ => RequestStatus::Canceled,
        };
        self.end(slot, status, Some(DEADLINE_EXCEEDED), now);
    }

    /// Ends a request that has not ended.
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
        let until = now.after(self.config.retention);
        let record = self.record_mut(slot);
        record.phase = Phase::Ended(status);
        record.ended = Some(now);
        record.not_before = None;
        if let Some(reason) = reason {
            record.extra().reason = Some(reason.to_owned());
        }
        let id = record.id;
        if let Some(extra) = &mut record.extra
            && extra.webhook.is_some()
        {
            extra.webhook_due = Some(now);
            self.webhooks.insert((now, slot));
        }
        self.forgets.insert((until, slot));
        self.write_state(slot);
        self.news.requests.push(id);
    }

    /// Notes that a request counts no more among those that have not ended.
    pub(super) fn settle(&mut self, slot: u32) {
        let record = &self.requests[slot as usize];
        if let Some(deadline) = record.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.live -= 1;
        self.tenants[record.tenant].live -= 1;
    }

    /// Forgets an ended request.
    pub(super) fn forget(&mut self, slot: u32, now: Time) {
        let id = self.record(slot).id;
        self.writes.push(Write::Forget { id });
        self.remove(slot, now);
    }
}
