//! Descriptions of requests and queues for callers.

use super::super::rows::Stored;
use super::super::time::Time;
use super::State;
use super::record::Phase;
use tower_triage_durable::{
    Backlog, Page, QueueDepth, QueueHead, QueueTotal, RequestId, RequestInfo, RequestStatus,
};

/// The range of pieces of a response that a reader can load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// The segment and the number of the request, under which its pieces are stored.
    pub(crate) place: (u32, u64),
    /// The number of the first piece to read.
    pub(crate) first: u64,
    /// The number of the last piece. It is below `first` while there is no piece to read.
    pub(crate) last: u64,
    /// `true` if the pieces that the reader has seen belong to an attempt that is over.
    pub(crate) has_gap: bool,
    /// `true` if the request has ended.
    pub(crate) is_end: bool,
}

impl Pieces {
    /// Returns the pieces with numbers above `after`. The first `dropped` pieces belong to earlier attempts and are
    /// skipped.
    fn new(place: (u32, u64), after: u64, dropped: u64, chunks: u64, is_end: bool) -> Self {
        Self {
            place,
            first: after.max(dropped) + 1,
            last: chunks,
            // A new reader begins with the latest attempt, so it misses no piece of it.
            has_gap: after > 0 && after <= dropped,
            is_end,
        }
    }

    /// Returns the pieces of an ended request with numbers above `after`.
    pub(crate) fn of_stored(stored: &Stored, after: u64) -> Self {
        let state = stored.state.as_ref();
        let (dropped, chunks) = state.map_or((0, 0), |state| (state.dropped, state.chunks));
        Self::new(stored.place(), after, dropped, chunks, true)
    }

    /// Returns `true` if a reader can go on at once, because there is a piece to read or the request has ended.
    pub(crate) fn is_ready(&self) -> bool {
        self.last >= self.first || self.is_end
    }
}

impl State {
    /// Returns a request, or `None` if it is not in memory.
    pub(crate) fn get(&self, id: RequestId) -> Option<RequestInfo> {
        self.slot(id).map(|slot| self.info(slot))
    }

    pub(super) fn info(&self, slot: u32) -> RequestInfo {
        let record = self.record(slot);
        let extra = record.extra();
        let mut info = RequestInfo::queued(record.id, record.created().to_system());
        info.queue = self.queues.name(record.queue).to_owned();
        info.level = record.level;
        info.tenant = self.tenants.name(record.tenant).to_vec();
        info.status = record.status();
        info.attempts = extra.attempts;
        info.started = extra.started.map(Time::to_system);
        info.ended = extra.ended.map(Time::to_system);
        info.deadline = record.deadline.map(Time::to_system);
        info.not_before = extra.not_before.map(Time::to_system);
        info.reason.clone_from(&extra.reason);
        info.response_status = extra.response_status;
        info.is_listed = record.is_listed;
        info
    }

    /// Returns `true` if a request has ended, or is not in memory.
    pub(crate) fn has_ended(&self, id: RequestId) -> bool {
        let slot = self.slot(id);
        slot.is_none_or(|slot| self.record(slot).has_ended())
    }

    /// Returns the segment and the number of a request, under which its body and response are stored.
    pub(crate) fn place(&self, id: RequestId) -> Option<(u32, u64)> {
        let record = self.record(self.slot(id)?);
        Some((record.segment, record.seq))
    }

    /// Returns the bytes of the requests of a tenant and their responses.
    pub(crate) fn stored_bytes(&self, tenant: &[u8]) -> u64 {
        self.segments.bytes_of(tenant)
    }

    /// Returns the pieces of a response with numbers above `after`, or `None` if the request is not in memory.
    pub(crate) fn pieces(&self, id: RequestId, after: u64) -> Option<Pieces> {
        let record = self.record(self.slot(id)?);
        let (extra, is_end) = (record.extra(), record.has_ended());
        let place = (record.segment, record.seq);
        Some(Pieces::new(
            place,
            after,
            extra.dropped,
            extra.chunks,
            is_end,
        ))
    }

    /// Returns the position of a waiting request in its queue.
    pub(crate) fn position(&self, id: RequestId) -> Option<u64> {
        let slot = self.slot(id)?;
        let record = self.record(slot);
        let queue = &self.queues[record.queue];
        match record.phase {
            Phase::Ready(_) => Some(queue.order.position(slot, record.seq, self.latest)),
            // A held request counts as behind all requests that may start.
            Phase::Delayed | Phase::Held | Phase::Aside => Some(queue.order.len() as u64 + 1),
            Phase::Outside | Phase::Running { .. } | Phase::Ended(_) => None,
        }
    }

    /// Returns listed requests of a status that is not final, the newest first. Only requests with numbers below
    /// `before` count.
    pub(crate) fn list(
        &self,
        status: RequestStatus,
        tenant: Option<&[u8]>,
        limit: usize,
        before: u64,
    ) -> Page {
        let tenant = match tenant.map(|tenant| self.tenants.number(tenant)) {
            Some(None) => return Page::default(),
            number => number.flatten(),
        };
        let is_meant = |&slot: &u32| {
            let record = self.record(slot);
            let is_of_tenant = tenant.is_none_or(|tenant| tenant == record.tenant);
            record.is_listed && record.status() == status && is_of_tenant
        };
        // One request more than `limit` is looked up, to find out whether another page follows.
        let most = limit.saturating_add(1);
        let mut found: Vec<u32> = match status {
            RequestStatus::Queued => {
                let of = |tenant| {
                    let waiting = self.listed.range((tenant, 0)..(tenant, before)).rev();
                    let waiting = waiting.map(|(_, &slot)| slot);
                    waiting.filter(is_meant).take(most)
                };
                match tenant {
                    Some(tenant) => of(tenant).collect(),
                    None => self.tenants.numbers().flat_map(of).collect(),
                }
            }
            _ => {
                let running = self.running.range(..before).rev();
                let running = running.map(|(_, &slot)| slot);
                running.filter(is_meant).take(most).collect()
            }
        };
        found.sort_unstable_by_key(|&slot| std::cmp::Reverse(self.record(slot).seq));
        let requests = found.iter().take(limit);
        Page {
            requests: requests.map(|&slot| self.info(slot)).collect(),
            has_more: found.len() > limit,
        }
    }

    /// Returns the queues that have at least one request which may start now.
    pub(crate) fn backlog(&self, version: u64) -> Backlog {
        let queues = self.queues.iter();
        let queues = queues.filter(|(name, _)| {
            let number = self.queues.number(name);
            !self.is_paused(name) && number.is_some_and(|queue| self.room_of_queue(queue) > 0)
        });
        let heads = queues.filter_map(|(_, queue)| {
            let slot = queue.order.peek()?;
            let mut head = QueueHead::new(self.info(slot));
            head.cost = self.record(slot).cost;
            head.runnable = queue.order.len() as u64;
            Some(head)
        });
        let begin = self.delayed.first().map(|&(begin, _, _)| begin);
        let next = begin.into_iter().chain(self.next_end_of_pause()).min();
        Backlog {
            version,
            queues: heads.collect(),
            next: next.map(Time::to_system),
        }
    }

    /// Returns the totals of each queue.
    pub(crate) fn totals(&self) -> Vec<QueueTotal> {
        self.totals.to_vec()
    }

    /// Returns the depth of each level of each queue that is not empty.
    pub(crate) fn depths(&self, now: Time) -> Vec<QueueDepth> {
        let mut depths = Vec::new();
        for (name, queue) in self.queues.iter() {
            for (level, held) in (0..).zip(&queue.levels) {
                let queued = held.queued.len() as u64 + held.delayed;
                if queued == 0 && held.running == 0 {
                    continue;
                }
                let oldest = held.queued.first();
                let mut depth = QueueDepth::empty(name.to_owned(), level);
                depth.queued = queued;
                depth.running = held.running;
                depth.oldest = oldest.map(|&(arrival, _)| now.since(Time::of_seq(arrival)));
                depths.push(depth);
            }
        }
        depths
    }
}
