//! What tenants without waiters owe: service that they had and were charged for when they had none that waits.
//!
//! A flow that begins where its tenant owes something begins later than others. A debt ends once virtual time has passed
//! it. It outlasts the moments in which no request waits: otherwise a tenant would pay for what it used only while others
//! happen to wait at that very moment. While none waits, virtual time stands still, and no debt grows.

use std::collections::HashMap;

use crate::admit::Tenant;

/// The virtual times before which tenants have had their share, if they are ahead of the clock.
#[derive(Debug, Default)]
pub(super) struct Debts(HashMap<Tenant, u128>);

/// How many are kept at most: the largest. Names of tenants come from clients.
const MAX: usize = 256;

impl Debts {
    /// The virtual time at which a flow of this tenant begins that would begin at `clock`.
    pub(super) fn start(&self, tenant: &Tenant, clock: u128) -> u128 {
        // Nearly always: spares hashing.
        if self.0.is_empty() {
            return clock;
        }
        self.0.get(tenant).map_or(clock, |&debt| debt.max(clock))
    }

    /// Notes that a tenant has had its share until `start`.
    pub(super) fn set(&mut self, tenant: &Tenant, start: u128, clock: u128) {
        if start <= clock {
            self.0.remove(tenant);
        } else if let Some(debt) = self.0.get_mut(tenant) {
            *debt = start;
        } else if self.make_room(start, clock) {
            self.0.insert(tenant.clone(), start);
        }
    }

    /// Makes room for a debt, unless there are many that are larger. O(debts) if there are many.
    fn make_room(&mut self, start: u128, clock: u128) -> bool {
        if self.0.len() < MAX {
            return true;
        }
        self.0.retain(|_, debt| *debt > clock);
        if self.0.len() < MAX {
            return true;
        }
        let least = self.0.iter().min_by_key(|&(_, &debt)| debt);
        let Some(least) = least
            .filter(|&(_, &debt)| debt < start)
            .map(|(tenant, _)| tenant.clone())
        else {
            return false;
        };
        self.0.remove(&least);
        true
    }

    /// Takes over the debts of another queue, whose clock stood at `old_clock` when this one's stands at `clock`.
    pub(super) fn inherit(&mut self, old: &Self, old_clock: u128, clock: u128) {
        for (tenant, &debt) in &old.0 {
            if debt > old_clock {
                self.set(tenant, clock + (debt - old_clock), clock);
            }
        }
    }

    /// Gives back memory.
    pub(super) fn trim(&mut self) {
        self.0.shrink_to_fit();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn debts_end_when_the_clock_has_passed_them() {
        let (mut debts, tenant) = (Debts::default(), Tenant::from("a"));
        debts.set(&tenant, 10, 5);
        assert_eq!(debts.start(&tenant, 7), 10);
        assert_eq!(debts.start(&tenant, 12), 12);
        assert_eq!(debts.start(&"b".into(), 7), 7);
        debts.set(&tenant, 12, 12);
        assert!(debts.0.is_empty());
    }

    #[test]
    fn tenants_without_end_take_no_more_memory() {
        let mut debts = Debts::default();
        debts.set(&"large".into(), 1 << 40, 0);
        for nth in 1..10_000_u128 {
            debts.set(&nth.to_string().into(), nth, 0);
        }
        assert_eq!(debts.0.len(), MAX);
        assert_eq!(debts.start(&"large".into(), 0), 1 << 40);
        // Smaller than all that are kept.
        debts.set(&"small".into(), 1, 0);
        assert_eq!(debts.start(&"small".into(), 0), 0);
        // All but one are over.
        debts.set(&"late".into(), 1 << 30, 1 << 20);
        assert_eq!(debts.0.len(), 2);
    }

    #[test]
    fn another_queue_takes_over_what_is_not_over() {
        let (mut old, mut new) = (Debts::default(), Debts::default());
        old.set(&"a".into(), 10, 0);
        old.set(&"b".into(), 20, 0);
        new.inherit(&old, 15, 100);
        assert_eq!(new.start(&"a".into(), 100), 100);
        assert_eq!(new.start(&"b".into(), 100), 105);
    }
}
