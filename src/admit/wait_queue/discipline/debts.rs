//! The debts of flows without waiters. A flow is in debt if its tenant was charged for service while none of its
//! requests waited.
//!
//! A flow that opens with a debt begins later than others, and the debt ends once virtual time has passed it. The debt
//! outlasts the moments in which the queue is empty. Otherwise a tenant would pay for its use only if others happened
//! to wait at that very moment. While the queue is empty, virtual time stands still, and debts stay as they are. If a
//! lane is closed because many lanes are without waiters, the debts in it are forgotten.

use crate::admit::flow::FlowKey;
use crate::admit::largest_flows::LargestFlows;

/// The virtual times until which flows have already had their share, for flows that are ahead of the clock. If there
/// are too many, only the latest times are kept.
#[derive(Debug, Default)]
pub(super) struct Debts(LargestFlows<u128, ()>);

impl Debts {
    /// Returns the virtual time at which a flow begins, which is `clock` unless the flow has a debt.
    pub(super) fn start(&self, flow: FlowKey<'_>, clock: u128) -> u128 {
        // The map is nearly always empty, so this spares hashing.
        if self.0.is_empty() {
            return clock;
        }
        self.0.get(flow).map_or(clock, |(debt, ())| debt.max(clock))
    }

    /// Records that a flow has had its share until `start`.
    pub(super) fn set(&mut self, flow: FlowKey<'_>, start: u128, clock: u128) {
        if start <= clock {
            self.0.remove(flow);
        } else if !self.0.set_rank(flow, start) {
            // A debt that the clock has passed delays its flow no longer, so it can go. This takes O(1), amortised over
            // the debts.
            while self.0.smallest().is_some_and(|debt| debt <= clock) {
                self.0.remove_smallest();
            }
            if !self.0.is_full() || self.0.smallest() < Some(start) {
                self.0.insert(flow, start, ());
            }
        }
    }

    /// Takes over the debts of another queue. `old_clock` and `clock` are the virtual times there and here.
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

    /// Gives back memory that the present debts can do without.
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
