//! The debts of flows without waiters. A flow is in debt if its tenant was charged for service while none of its
//! requests waited.
//!
//! A flow that opens with a debt begins later than others, and the debt ends once virtual time has passed it. While the
//! queue is empty, virtual time stands still, and debts stay as they are. Otherwise a tenant would pay for its use only
//! if others happened to wait at that very moment. If a lane is closed because many lanes are without waiters, the
//! debts in it are forgotten.

use crate::admit::flow::{FlowKey, FlowTable, MAX_FLOWS};

/// The virtual times until which flows have already had their share, for flows that are ahead of the clock. If there
/// are too many, only the latest times are kept.
#[derive(Debug, Default)]
pub(crate) struct Debts(FlowTable<u128, ()>);

impl Debts {
    /// Returns the virtual time at which a flow begins, which is `clock` unless the flow has a debt.
    pub(super) fn start(&self, flow: FlowKey<'_>, clock: u128) -> u128 {
        // The map is nearly always empty, so this spares hashing.
        if self.is_empty() {
            return clock;
        }
        let debt = self.0.find(flow).and_then(|index| self.0.rank(index));
        debt.map_or(clock, |debt| debt.max(clock))
    }

    /// Records that a flow has had its share until `start`.
    pub(super) fn set(&mut self, flow: FlowKey<'_>, start: u128, clock: u128) {
        match self.0.find(flow) {
            Some(index) if start <= clock => self.0.remove(index),
            Some(index) => self.0.set_rank(index, start),
            None if start <= clock => {}
            None => self.open(flow, start, clock),
        }
    }

    fn open(&mut self, flow: FlowKey<'_>, start: u128, clock: u128) {
        // A debt that the clock has passed delays its flow no longer, so it can go. This takes O(1), amortised over the
        // debts.
        while let Some((debt, index)) = self.0.first()
            && debt <= clock
        {
            self.0.remove(index);
        }
        let smallest = self.0.first().map(|(debt, _)| debt);
        if self.0.len() < MAX_FLOWS || smallest < Some(start) {
            self.0.insert_bounded(flow, start, ());
        }
    }

    /// Takes over the debts of another queue. `old_clock` and `clock` are the virtual times there and here.
    pub(super) fn inherit(&mut self, old: &Self, old_clock: u128, clock: u128) {
        for (index, flow, ()) in old.0.iter() {
            let debt = old.0.rank(index).unwrap_or(0);
            if debt > old_clock {
                self.set(flow, clock + (debt - old_clock), clock);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Gives back the memory of past debts.
    pub(super) fn trim(&mut self) {
        if self.is_empty() {
            self.0 = FlowTable::default();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Tenant;

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
        assert!(debts.is_empty());
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
