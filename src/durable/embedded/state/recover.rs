//! The state from what was written down.

use super::super::row::{PauseRow, RequestRow, StateRow};
use super::super::time::Time;
use super::State;
use super::record::Phase;
use crate::durable::{RequestId, RequestStatus};

/// A request as it was written down.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segment: u32,
    pub(crate) id: RequestId,
    pub(crate) row: RequestRow,
    pub(crate) state: Option<StateRow>,
    /// The number of the last piece of its response that is there.
    pub(crate) chunks: u64,
}

impl State {
    /// Takes over what was written down. What ran has lost its worker.
    pub(crate) fn recover(
        &mut self,
        mut requests: Vec<Recovered>,
        pauses: Vec<PauseRow>,
        segments: &[u32],
        now: Time,
    ) {
        self.pauses = pauses.into_iter().map(Into::into).collect();
        for &segment in segments {
            self.segments.requests.entry(segment).or_default();
        }
        requests.sort_unstable_by_key(|request| request.row.seq);
        let mut waiting = Vec::new();
        let mut lost = Vec::new();
        for request in requests {
            self.recover_one(request, now, &mut waiting, &mut lost);
        }
        waiting.sort_by_key(|&slot| (self.record(slot).arrival(), self.record(slot).seq));
        for slot in waiting {
            self.enter_order(slot, now);
        }
        for slot in lost {
            self.count_start(slot);
            self.lose(slot, now);
        }
        self.drop_empty_segments(now);
        self.advance(now);
    }

    fn recover_one(
        &mut self,
        request: Recovered,
        now: Time,
        waiting: &mut Vec<u32>,
        lost: &mut Vec<u32>,
    ) {
        let retention = self.config.retention;
        let state = request.state;
        let ended = state.as_ref().and_then(|state| state.ended);
        if ended.is_some_and(|ended| ended.after(retention) <= now) {
            return;
        }
        let slot = self.insert(request.id, request.segment, &request.row);
        let mut status = RequestStatus::Queued;
        if let Some(state) = state {
            status = state.status().unwrap_or(RequestStatus::Queued);
            self.restore(slot, state, request.chunks);
        }
        let record = self.record(slot);
        let (tenant, deadline) = (record.tenant, record.deadline);
        if let Some(ended) = ended {
            let due = record.extra.as_ref().and_then(|extra| extra.webhook_due);
            self.record_mut(slot).phase = Phase::Ended(status);
            self.forgets.insert((ended.after(retention), slot));
            if let Some(due) = due {
                self.webhooks.insert((due, slot));
            }
            return;
        }
        self.live += 1;
        self.tenants[tenant].live += 1;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, slot));
        }
        match status {
            RequestStatus::Queued => waiting.push(slot),
            _ => {
                self.starts += 1;
                let start = self.starts;
                self.record_mut(slot).phase = Phase::Running {
                    start,
                    is_called: true,
                };
                lost.push(slot);
            }
        }
    }

    fn restore(&mut self, slot: u32, state: StateRow, chunks: u64) {
        let record = self.record_mut(slot);
        record.attempts = state.attempts;
        record.started = state.started;
        record.ended = state.ended;
        record.deadline = state.deadline;
        record.not_before = state.not_before;
        record.response_status = state.response_status;
        let chunks = chunks.max(state.chunks);
        if state.reason.is_some() || chunks > 0 || record.extra.is_some() {
            let extra = record.extra();
            extra.reason = state.reason;
            extra.tries = state.tries;
            extra.webhook_due = state.webhook_due;
            extra.chunks = chunks;
            extra.dropped = state.dropped;
        }
    }
}
