//! Descriptions of requests and queues for callers.

use super::super::time::Time;
use super::State;
use super::record::{Phase, Record};
use crate::durable::{Backlog, Listing, Page, QueueDepth, QueueHead, RequestId, RequestInfo};

/// The pieces of a response that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) segment: u32,
    /// The number of the first one to read.
    pub(crate) first: u64,
    /// The number of the last one; below `first` if there is none to read.
    pub(crate) last: u64,
    /// `true` if pieces before the first one belong to an attempt that is over.
    pub(crate) has_gap: bool,
    /// `true` if the request has ended.
    pub(crate) is_end: bool,
}

impl State {
    /// Returns a request.
    pub(crate) fn get(&self, id: RequestId) -> Option<RequestInfo> {
        self.slot(id).map(|slot| self.info(slot))
    }

    pub(super) fn info(&self, slot: u32) -> RequestInfo {
        let record = self.record(slot);
        let mut info = RequestInfo::queued(record.id, record.created.to_system());
        info.queue = self.queues.name(record.queue).to_owned();
        info.level = record.level;
        info.tenant = self.tenants.name(record.tenant).to_vec();
        info.status = record.status();
        info.attempts = record.attempts;
        info.started = record.started.map(Time::to_system);
        info.ended = record.ended.map(Time::to_system);
        info.deadline = record.deadline.map(Time::to_system);
        info.not_before = record.not_before.map(Time::to_system);
        info.reason = record.reason().map(str::to_owned);
        info.response_status = record.response_status;
        info.is_listed = record.is_listed;
        info
    }

    /// Returns `true` if a request has ended, or is not known.
    pub(crate) fn has_ended(&self, id: RequestId) -> bool {
        let slot = self.slot(id);
        slot.is_none_or(|slot| self.record(slot).ended.is_some())
    }

    /// Returns the segment that has a request's body.
    pub(crate) fn segment(&self, id: RequestId) -> Option<u32> {
        self.slot(id).map(|slot| self.record(slot).segment)
    }

    /// Returns the segment that has a request's response, if there is one.
    pub(crate) fn segment_of_response(&self, id: RequestId) -> Option<u32> {
        let record = self.record(self.slot(id)?);
        record.response_status.map(|_| record.segment)
    }

    /// Returns the pieces of a response with numbers above `after`; `None` if the request is not known.
    pub(crate) fn pieces(&self, id: RequestId, after: u64) -> Option<Pieces> {
        let record = self.record(self.slot(id)?);
        let extra = record.extra.as_ref();
        let dropped = extra.map_or(0, |extra| extra.dropped);
        Some(Pieces {
            segment: record.segment,
            first: after.max(dropped) + 1,
            last: extra.map_or(0, |extra| extra.chunks),
            // A reader that has seen none begins with the latest attempt, and misses nothing of it.
            has_gap: after > 0 && after <= dropped,
            is_end: record.ended.is_some(),
        })
    }

    /// Returns a request's position among those of its queue, while it waits.
    pub(crate) fn position(&self, id: RequestId) -> Option<u64> {
        let slot = self.slot(id)?;
        let record = self.record(slot);
        let queue = &self.queues[record.queue];
        match record.phase {
            Phase::Ready(_) => Some(queue.order.position(slot, record.seq, self.latest)),
            // It is behind all that may begin, as long as it may not.
            Phase::Delayed | Phase::Held | Phase::Aside => Some(queue.order.len() as u64 + 1),
            Phase::Outside | Phase::Running { .. } | Phase::Ended(_) => None,
        }
    }

    /// Returns listed requests, the newest first.
    pub(crate) fn list(&self, listing: &Listing) -> Page {
        let after = match listing.after {
            None => u64::MAX,
            Some(id) => match self.slot(id) {
                Some(slot) => self.record(slot).seq,
                None => return Page::default(),
            },
        };
        match &listing.tenant {
            None => {
                let slots = self.by_age.range(..after).rev();
                self.page(listing, slots.map(|(_, &slot)| slot))
            }
            Some(tenant) => match self.tenants.number(tenant) {
                None => Page::default(),
                Some(tenant) => {
                    let slots = self.by_tenant.range((tenant, 0)..(tenant, after)).rev();
                    self.page(listing, slots.map(|(_, &slot)| slot))
                }
            },
        }
    }

    fn page(&self, listing: &Listing, newest_first: impl Iterator<Item = u32>) -> Page {
        let is_meant = |record: &Record| {
            let status = listing.status;
            record.is_listed && status.is_none_or(|status| record.status() == status)
        };
        let mut slots = newest_first.filter(|&slot| is_meant(self.record(slot)));
        let requests = slots.by_ref().take(listing.limit);
        Page {
            requests: requests.map(|slot| self.info(slot)).collect(),
            has_more: slots.next().is_some(),
        }
    }

    /// Returns the queues that have a request which may begin.
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

    /// Returns the depth of each level of each queue that is not empty.
    pub(crate) fn depths(&self, now: Time) -> Vec<QueueDepth> {
        let mut depths = Vec::new();
        for (name, queue) in self.queues.iter() {
            for (level, held) in (0..).zip(&queue.levels) {
                if held.queued.is_empty() && held.running == 0 {
                    continue;
                }
                let oldest = held.queued.first().and_then(|seq| self.by_age.get(seq));
                let oldest = oldest.map(|&slot| self.record(slot).created);
                let mut depth = QueueDepth::empty(name.to_owned(), level);
                depth.queued = held.queued.len() as u64;
                depth.running = held.running;
                depth.oldest = oldest.map(|created| now.since(created));
                depths.push(depth);
            }
        }
        depths
    }
}
