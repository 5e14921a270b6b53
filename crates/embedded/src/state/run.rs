//! The run of a request: a worker takes it, reports its progress, and reports its outcome.

use bytes::Bytes;

use super::super::time::Time;
use super::super::write::Write;
use super::record::Phase;
use super::{State, Undo};
use tower_triage_durable::reason::{ERROR_RESPONSE, WORKER_LOST};
use tower_triage_durable::{
    Lease, OnCrash, Outcome, QueueEvent, RequestId, RequestInfo, RequestStatus, Stop,
};

/// A request that was started, without its body.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) lease: Lease,
    pub(crate) info: RequestInfo,
    /// The segment and the number of the request, under which its body is stored.
    pub(crate) place: (u32, u64),
}

impl State {
    /// Starts the most urgent requests of a queue, at most `max` of them. Returns an empty list while the queue is
    /// paused.
    pub(crate) fn fetch(&mut self, queue: &str, max: usize, now: Time) -> Vec<Started> {
        let mut started = Vec::new();
        if self.is_paused(queue) {
            return started;
        }
        let Some(queue) = self.queues.number(queue) else {
            return started;
        };
        while started.len() < max
            && self.room_of_queue(queue) > 0
            && let Some(slot) = self.queues[queue].order.pop()
        {
            match self.is_tenant_full(self.record(slot).tenant) {
                true => self.set_aside(slot),
                false => started.push(self.start(slot, now)),
            }
        }
        started
    }

    fn start(&mut self, slot: u32, now: Time) -> Started {
        self.left_order(slot);
        self.count_start(slot);
        self.starts += 1;
        let start = self.starts;
        let record = self.record_mut(slot);
        record.phase = Phase::Running {
            start,
            is_called: false,
        };
        let extra = record.extra_mut();
        extra.attempts += 1;
        extra.started = Some(now);
        extra.not_before = None;
        extra.dropped = extra.chunks;
        self.write_state(slot);
        let record = self.record(slot);
        Started {
            lease: Lease::new(record.id, record.extra().attempts, self.fence(start)),
            info: self.info(slot),
            place: (record.segment, record.seq),
        }
    }

    /// Returns the secret of a lease, which names this opening of the store and the start within it.
    fn fence(&self, start: u64) -> String {
        format!("{:x}.{start:x}", self.opening)
    }

    /// Returns the request of a lease, if the lease is still valid.
    fn leased(&self, lease: &Lease) -> Option<u32> {
        let slot = self.slot(lease.id())?;
        match self.record(slot).phase {
            Phase::Running { start, .. } if self.fence(start) == lease.fence() => Some(slot),
            _ => None,
        }
    }

    /// Records that the inner service was called. This stays in memory only, because a crash treats each started
    /// request as called.
    pub(crate) fn called(&mut self, lease: &Lease) {
        if let Some(slot) = self.leased(lease)
            && let Phase::Running { is_called, .. } = &mut self.record_mut(slot).phase
        {
            *is_called = true;
        }
    }

    /// Returns the reason why an attempt must stop, or `None` while its lease is valid.
    pub(crate) fn stop(&self, lease: &Lease) -> Option<Stop> {
        if self.leased(lease).is_some() {
            return None;
        }
        let slot = self.slot(lease.id());
        let phase = slot.map(|slot| self.record(slot).phase);
        Some(match phase {
            Some(Phase::Ended(RequestStatus::Canceled)) => Stop::Canceled,
            _ => Stop::Lost,
        })
    }

    /// Records the end of an attempt. Returns `false` without an effect if the lease has become invalid.
    pub(crate) fn finish(&mut self, lease: &Lease, outcome: Outcome, now: Time) -> bool {
        let Some(slot) = self.leased(lease) else {
            return false;
        };
        match outcome {
            Outcome::Responded { status, response } => {
                self.add_response_bytes(slot, response.len() as u64);
                let record = self.record_mut(slot);
                record.extra_mut().response_status = Some(status);
                let (segment, seq) = (record.segment, record.seq);
                self.writes.push(Write::Response {
                    segment,
                    seq,
                    response,
                });
                match status {
                    ..400 => self.end(slot, RequestStatus::Succeeded, None, now),
                    _ => self.end(slot, RequestStatus::Failed, Some(ERROR_RESPONSE), now),
                }
            }
            Outcome::Failed { reason } => {
                self.end(slot, RequestStatus::Failed, Some(&reason), now);
            }
            Outcome::Retry { after, counts } => {
                self.stop_running(slot, now);
                let extra = self.record_mut(slot).extra_mut();
                if !counts {
                    extra.attempts -= 1;
                }
                extra.not_before = (!after.is_zero()).then(|| now.after(after));
                self.put_back(slot, now);
            }
        }
        true
    }

    /// Puts a request that ran back into its queue.
    pub(super) fn put_back(&mut self, slot: u32, now: Time) {
        let record = self.record_mut(slot);
        let id = record.id;
        let extra = record.extra_mut();
        if extra.attempts == 0 {
            extra.started = None;
        }
        self.enter_order(slot, now);
        self.write_state(slot);
        self.news.requests.push(id);
    }

    /// Records that a request has left its worker.
    pub(super) fn stop_running(&mut self, slot: u32, now: Time) {
        self.count_stop(slot, now);
        self.record_mut(slot).phase = Phase::Outside;
    }

    /// Puts a request back that a worker took but did not call. The attempt does not count.
    pub(crate) fn give_back(&mut self, lease: &Lease, now: Time) {
        let after = std::time::Duration::ZERO;
        self.finish(
            lease,
            Outcome::Retry {
                after,
                counts: false,
            },
            now,
        );
    }

    /// Puts all requests back that workers took but did not call.
    pub(crate) fn give_back_starting(&mut self, now: Time) {
        let running = self.running.values().copied();
        let starting =
            running.filter(|&slot| self.record(slot).status() == RequestStatus::Starting);
        for slot in starting.collect::<Vec<_>>() {
            self.stop_running(slot, now);
            self.record_mut(slot).extra_mut().attempts -= 1;
            self.put_back(slot, now);
        }
    }

    /// Handles the loss of a request's worker: the request fails, or goes back into its queue for another attempt.
    pub(super) fn lose(&mut self, slot: u32, now: Time) {
        let record = self.record(slot);
        let (attempts, queue) = (record.extra().attempts, self.queues.name(record.queue));
        self.totals.add(queue, QueueEvent::WorkerLost);
        match self.config.on_crash {
            OnCrash::Retry { max_attempts } if attempts < max_attempts => {
                self.stop_running(slot, now);
                self.put_back(slot, now);
            }
            _ => self.end(slot, RequestStatus::Failed, Some(WORKER_LOST), now),
        }
    }

    /// Adds a piece to a response. Returns `false` if the lease has become invalid.
    pub(crate) fn append(&mut self, lease: &Lease, data: Bytes) -> bool {
        let Some(slot) = self.leased(lease) else {
            return false;
        };
        let bytes = data.len() as u64;
        self.add_response_bytes(slot, bytes);
        let record = self.record_mut(slot);
        let (segment, seq, id) = (record.segment, record.seq, record.id);
        let extra = record.extra_mut();
        extra.chunks += 1;
        let number = extra.chunks;
        self.writes.push(Write::Chunk {
            segment,
            seq,
            number,
            data,
        });
        self.undo.push(Undo::Append(id, bytes));
        self.news.requests.push(id);
        true
    }

    /// Counts bytes of the response of a request.
    fn add_response_bytes(&mut self, slot: u32, bytes: u64) {
        let record = &mut self.requests[slot as usize];
        record.extra_mut().response_bytes += bytes;
        let tenant = self.tenants.name(record.tenant);
        self.segments.add_bytes(record.segment, tenant, bytes);
    }

    pub(super) fn undo_append(&mut self, id: RequestId, bytes: u64) {
        let Some(slot) = self.slot(id) else { return };
        let record = &mut self.requests[slot as usize];
        let extra = record.extra_mut();
        extra.chunks -= 1;
        // A retry may have taken them back.
        let bytes = bytes.min(extra.response_bytes);
        extra.response_bytes -= bytes;
        let tenant = self.tenants.name(record.tenant);
        self.segments.undo_bytes(record.segment, tenant, bytes);
    }
}
