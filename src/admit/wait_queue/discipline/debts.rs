//! What flows without waiters owe: service that their tenants had and were charged for when none of them waited.
//!
//! A flow that begins where something is owed begins later than others. A debt ends once virtual time has passed
//! it. It outlasts the moments in which no request waits: otherwise a tenant would pay for what it used only while others
//! happen to wait at that very moment. While none waits, virtual time stands still, and no debt grows. A lane that is closed,
//! because there are many without waiters, forgets what is owed in it.

use crate::admit::flow::FlowKey;
use crate::admit::largest_flows::LargestFlows;

/// The virtual times before which flows have had their share, if they are ahead of the clock: the latest ones.
#[derive(Debug, Default)]
pub(super) struct Debts(LargestFlows<u128, ()>);

impl Debts {
    /// The virtual time at which a flow begins that would begin at `clock`.
    pub(super) fn start(&self, flow: FlowKey<'_>, clock: u128) -> u128 {
        // Nearly always: spares hashing.
        if self.0.is_empty() {
            return clock;
        }
        self.0.get(flow).map_or(clock, |(debt, ())| debt.max(clock))
    }

    /// Notes that a flow has had its share until `start`.
    pub(super) fn set(&mut self, flow: FlowKey<'_>, start: u128, clock: u128) {
        if start <= clock {
            self.0.remove(flow);
        } else if !self.0.set_rank(flow, start) {
            // A debt that the clock has passed moves no flow later. O(1) amortised over the debts.
            while self.0.smallest().is_some_and(|debt| debt <= clock) {
                self.0.remove_smallest();
            }
            if !self.0.is_full() || self.0.smallest() < Some(start) {
                self.0.insert(flow, start, ());
            }
        }
    }

    /// Takes over the debts of another queue. `old_clock` and `clock`: the virtual times there and here.
    pub(super) fn inherit(&mut self, old: &Self, old_clock: u128, clock: u128) {
        for (flow, debt, ()) in old.0.iter() {
            if debt > old_clock {
                self.set(flow, clock + (debt - old_clock), clock);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back memory.
    pub(super) fn trim(&mut self) {
        self.0.trim();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Tenant;
    use crate::admit::largest_flows::MAX_FLOWS;

    fn flow(tenant: &Tenant) -> FlowKey<'_> {
        FlowKey {
            level: 0,
            tenant: Some(tenant),
        }
    }

    #[test]
    fn debts_end_when_the_clock_has_passed_them() {
        let (mut debts, tenant) = (Debts::default(), Tenant::from("a"));
        debts.set(flow(&tenant), 10, 5);
        assert_eq!(debts.start(flow(&tenant), 7), 10);
        assert_eq!(debts.start(flow(&tenant), 12), 12);
        assert_eq!(debts.start(flow(&"b".into()), 7), 7);
        debts.set(flow(&tenant), 12, 12);
        assert!(debts.0.is_empty());
    }

    #[test]
    fn tenants_without_end_take_no_more_memory() {
        let mut debts = Debts::default();
        debts.set(flow(&"large".into()), 1 << 40, 0);
        for nth in 1..10_000_u128 {
            debts.set(flow(&nth.to_string().into()), nth, 0);
        }
        assert_eq!(debts.0.len(), MAX_FLOWS);
        assert_eq!(debts.start(flow(&"large".into()), 0), 1 << 40);
        // Smaller than all that are kept.
        debts.set(flow(&"small".into()), 1, 0);
        assert_eq!(debts.start(flow(&"small".into()), 0), 0);
        // All but one are over.
        debts.set(flow(&"late".into()), 1 << 30, 1 << 20);
        assert_eq!(debts.0.len(), 2);
    }

    #[test]
    fn another_queue_takes_over_what_is_not_over() {
        let (mut old, mut new) = (Debts::default(), Debts::default());
        old.set(flow(&"a".into()), 10, 0);
        old.set(flow(&"b".into()), 20, 0);
        new.inherit(&old, 15, 100);
        assert_eq!(new.start(flow(&"a".into()), 100), 100);
        assert_eq!(new.start(flow(&"b".into()), 100), 105);
    }
}
