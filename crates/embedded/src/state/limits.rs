//! Limits on the number of running requests.

use super::super::time::Time;
use super::State;
use super::record::Phase;

impl State {
    /// Returns the number of further requests of a queue that may start now.
    pub(super) fn room_of_queue(&self, queue: u32) -> u64 {
        let running = self.queues[queue].levels.iter().map(|level| level.running);
        let all = room(self.config.max_running, self.running.len() as u64);
        all.min(room(self.config.max_running_per_queue, running.sum()))
    }

    /// Returns `true` if a tenant runs as many requests as it may.
    pub(super) fn is_tenant_full(&self, tenant: u32) -> bool {
        room(
            self.config.max_running_per_tenant,
            self.tenants[tenant].running,
        ) == 0
    }

    /// Sets a request aside that was taken from its queue, because its tenant runs as many requests as it may.
    pub(super) fn set_aside(&mut self, slot: u32) {
        let record = self.record_mut(slot);
        record.phase = Phase::Aside;
        let key = (record.tenant, record.queue, record.seq);
        self.aside.insert(key, slot);
    }

    /// Counts a request that starts to run.
    pub(super) fn count_start(&mut self, slot: u32) {
        let (tenant, seq) = (self.record(slot).tenant, self.record(slot).seq);
        self.level_mut(slot).running += 1;
        self.tenants[tenant].running += 1;
        self.running.insert(seq, slot);
    }

    /// Counts a request that has stopped running, and lets the next ones of its tenant back into their queues.
    pub(super) fn count_stop(&mut self, slot: u32, now: Time) {
        let (tenant, seq) = (self.record(slot).tenant, self.record(slot).seq);
        self.level_mut(slot).running -= 1;
        self.tenants[tenant].running -= 1;
        self.running.remove(&seq);
        self.news.has_backlog = true;
        self.let_next_in(tenant, now);
    }

    /// Puts one request of each queue back that was set aside for this tenant. Called when one of the tenant's requests
    /// has stopped running or waiting.
    pub(super) fn let_next_in(&mut self, tenant: u32, now: Time) {
        let mut queue = 0;
        while let Some((of, slot)) = self.next_aside(tenant, queue) {
            self.leave_order(slot);
            self.enter_order(slot, now);
            queue = of.saturating_add(1);
        }
    }

    /// Returns the first request of a tenant that is set aside, and its queue. Skips queues with numbers below `queue`.
    fn next_aside(&self, tenant: u32, queue: u32) -> Option<(u32, u32)> {
        let later = (tenant, queue, 0)..=(tenant, u32::MAX, u64::MAX);
        let (&(_, queue, _), &slot) = self.aside.range(later).next()?;
        Some((queue, slot))
    }
}

/// Returns the number of requests that may still start under a limit. A `limit` of 0 admits any number.
fn room(limit: u64, running: u64) -> u64 {
    match limit {
        0 => u64::MAX,
        limit => limit.saturating_sub(running),
    }
}
