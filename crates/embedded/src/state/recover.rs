//! The recovery of the state from the rows on the disk.

use super::super::rows::{PauseRow, SealedRow, StateRow, Stored};
use super::super::time::Time;
use super::State;
use super::record::Phase;
use tower_triage_durable::RequestStatus;

/// A state that is being rebuilt from the rows on the disk.
pub(crate) struct Recovery<'a> {
    state: &'a mut State,
    now: Time,
    waiting: Vec<u32>,
    /// Requests that ran when the store stopped, and have lost their workers.
    lost: Vec<u32>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(state: &'a mut State, now: Time) -> Self {
        Self {
            state,
            now,
            waiting: Vec::new(),
            lost: Vec::new(),
        }
    }

    pub(crate) fn pauses(&mut self, pauses: Vec<PauseRow>) {
        self.state.pauses = pauses.into_iter().map(Into::into).collect();
    }

    /// Adds a segment. The caller then adds its requests.
    pub(crate) fn segment(&mut self, segment: u32) {
        self.state.segments.recover(segment);
    }

    /// Adds a sealed segment, in which all requests have ended.
    pub(crate) fn sealed(&mut self, segment: u32, row: &SealedRow) {
        self.state.segments.recover_sealed(segment, row.until);
        self.state.latest = self.state.latest.max(row.latest);
        for (tenant, bytes) in &row.bytes {
            self.bytes(segment, tenant, *bytes);
        }
    }

    /// Adds a request that has ended and needs no further work, such as a webhook. Returns `false` if it is forgotten.
    pub(crate) fn ended(&mut self, segment: u32, seq: u64, ended: Time) -> bool {
        let until = ended.after(self.state.config.retention);
        self.state.segments.keep(segment, until);
        self.state.latest = self.state.latest.max(seq);
        until > self.now
    }

    /// Adds the bytes of an ended request and its response.
    pub(crate) fn bytes(&mut self, segment: u32, tenant: &[u8], bytes: u64) {
        self.state.segments.add_bytes(segment, tenant, bytes);
    }

    /// Adds a request. `chunks` is the number of the last piece of its response that is on the disk.
    pub(crate) fn add(&mut self, stored: Stored, chunks: u64) {
        let (ended, status) = (stored.ended(), stored.status());
        let slot = self.state.insert(stored.segment, &stored.row);
        self.bytes(stored.segment, &stored.row.tenant, stored.bytes());
        self.state.restore(slot, stored.state, chunks);
        if let Some(ended) = ended {
            let retention = self.state.config.retention;
            self.state
                .segments
                .keep(stored.segment, ended.after(retention));
            let until = self.state.forgotten_at(slot);
            self.state.forgets.extend(until.map(|until| (until, slot)));
            let due = self.state.record(slot).extra().webhook_due;
            self.state.webhooks.extend(due.map(|due| (due, slot)));
            return;
        }
        self.state.begin(slot);
        match status {
            RequestStatus::Queued => self.waiting.push(slot),
            _ => self.lost.push(slot),
        }
    }

    /// Puts all waiting requests into their queues, and retries or fails the requests that have lost their workers.
    pub(crate) fn finish(self) {
        let (state, now, mut waiting) = (self.state, self.now, self.waiting);
        waiting.sort_by_key(|&slot| (state.record(slot).arrival(), state.record(slot).seq));
        for slot in waiting {
            state.enter_order(slot, now);
        }
        for slot in self.lost {
            state.starts += 1;
            let start = state.starts;
            state.record_mut(slot).phase = Phase::Running {
                start,
                is_called: true,
            };
            state.count_start(slot);
            state.lose(slot, now);
        }
        state.advance(now);
    }
}

impl State {
    /// Sets the fields of a request that can change. `chunks` is the number of the last piece of its response on the
    /// disk.
    pub(super) fn restore(&mut self, slot: u32, state: Option<StateRow>, chunks: u64) {
        let Some(state) = state else { return };
        let record = self.record_mut(slot);
        if let Some(status) = state.status()
            && state.ended.is_some()
        {
            record.phase = Phase::Ended(status);
        }
        record.deadline = state.deadline;
        let extra = record.extra_mut();
        extra.attempts = state.attempts;
        extra.started = state.started;
        extra.ended = state.ended;
        extra.not_before = state.not_before;
        extra.response_status = state.response_status;
        extra.reason = state.reason;
        extra.tries = state.tries;
        extra.retries = state.retries;
        extra.webhook_due = state.webhook_due;
        extra.chunks = chunks.max(state.chunks);
        extra.dropped = state.dropped;
        extra.response_bytes = state.response_bytes;
    }
}
