//! Pauses, during which requests are kept from starting.

use super::super::time::Time;
use super::super::write::Write;
use super::State;
use super::record::Phase;
use tower_triage_durable::{Pause, PauseScope};

impl State {
    /// Starts a pause. It replaces an earlier pause of the same scope.
    pub(crate) fn pause(&mut self, pause: Pause, now: Time) {
        self.pauses.retain(|other| other.scope != pause.scope);
        if let PauseScope::Tenant(tenant) = &pause.scope {
            self.hold(tenant);
        }
        self.pauses.push(pause);
        self.pauses_changed();
        // The end of the pause may already have passed.
        self.end_pauses(now);
    }

    /// Ends a pause. Returns `false` if the scope was not paused.
    pub(crate) fn resume(&mut self, scope: &PauseScope, now: Time) -> bool {
        let before = self.pauses.len();
        self.pauses.retain(|pause| pause.scope != *scope);
        if self.pauses.len() == before {
            return false;
        }
        if let PauseScope::Tenant(tenant) = scope {
            self.release(tenant, now);
        }
        self.pauses_changed();
        true
    }

    /// Ends the pauses that have reached their end time.
    pub(super) fn end_pauses(&mut self, now: Time) {
        while let Some(pause) = self.pauses.iter().find(|pause| {
            let until = pause.until.map(Time::from_system);
            until.is_some_and(|until| until <= now)
        }) {
            let scope = pause.scope.clone();
            self.resume(&scope, now);
        }
    }

    pub(super) fn next_end_of_pause(&self) -> Option<Time> {
        let ends = self.pauses.iter().filter_map(|pause| pause.until);
        ends.map(Time::from_system).min()
    }

    /// Returns the pauses that are in force.
    pub(crate) fn pauses(&self) -> Vec<Pause> {
        self.pauses.clone()
    }

    /// Returns `true` if all requests of a queue are paused.
    pub(super) fn is_paused(&self, queue: &str) -> bool {
        self.pauses.iter().any(|pause| match &pause.scope {
            PauseScope::All => true,
            PauseScope::Queue(name) => name == queue,
            PauseScope::Tenant(_) => false,
        })
    }

    /// Returns `true` if all requests of a tenant are paused.
    pub(super) fn is_held(&self, tenant: u32) -> bool {
        let tenant = self.tenants.name(tenant);
        self.pauses
            .iter()
            .any(|pause| matches!(&pause.scope, PauseScope::Tenant(name) if name == tenant))
    }

    /// Takes the waiting requests of a tenant out of their queues.
    fn hold(&mut self, tenant: &[u8]) {
        for slot in self.waiting_of(tenant, |phase| {
            matches!(phase, Phase::Ready(_) | Phase::Aside)
        }) {
            self.leave_order(slot);
            self.waits(slot, Phase::Held);
        }
    }

    /// Puts the held requests of a tenant back into their queues, at their former positions.
    fn release(&mut self, tenant: &[u8], now: Time) {
        let mut held = self.waiting_of(tenant, |phase| *phase == Phase::Held);
        held.sort_by_key(|&slot| (self.record(slot).arrival(), self.record(slot).seq));
        for slot in held {
            self.leave_order(slot);
            self.enter_order(slot, now);
        }
    }

    fn waiting_of(&self, tenant: &[u8], is_meant: impl Fn(&Phase) -> bool) -> Vec<u32> {
        let Some(tenant) = self.tenants.number(tenant) else {
            return Vec::new();
        };
        let all = self.requests.iter();
        let meant = all.filter(|(_, record)| record.tenant == tenant && is_meant(&record.phase));
        meant.map(|(slot, _)| slot as u32).collect()
    }

    fn pauses_changed(&mut self) {
        self.news.has_backlog = true;
        let rows = self.pauses.iter().map(Into::into).collect();
        self.writes.push(Write::Pauses(rows));
    }
}
