//! The flows that had less than their share of the slots lately. Flows are tenants with the discipline `fair`, and
//! levels if levels have weights.
//!
//! In overload some requests have to be refused. If one flow sends more than its share, its own requests should be
//! refused. The slots that it used beyond its share therefore count as idle for the other flows.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::admit::flow::{FlowKey, FlowTable, FlowWeights};
use crate::admit::nanos::{Nanos, seconds};

/// The use of the slots by the flows that were served lately.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// The weights of the flows that used the most, ranked by their use.
    flows: FlowTable<Used, Weight>,
    pub(super) flow_weights: Arc<FlowWeights>,
    /// The sum of the weights of all flows that were served lately.
    weights: f64,
    /// The sum of the use by all of them.
    total: f64,
    /// The share of the slots that flows used beyond their own shares.
    excess: f64,
    summed_at: Nanos,
    /// The time constant with which use fades, in seconds.
    memory: f64,
    /// The time up to `at`, in time constants, by which the use of all flows has faded since the ranks were last
    /// rewritten.
    faded: f64,
    at: Nanos,
}

/// The use of the slots by a flow, as the sum of its requests' costs. Older costs count less. The value is scaled to
/// the instant at which `faded` was 0, so all flows fade together while their entries and their order stay as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Used(f64);

type Weight = f64;

impl Ord for Used {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Used {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Used {}

/// The time, in time constants, after which all ranks are rewritten. This is long before their scale leaves the range
/// of an `f64`, and so rare that its cost does not matter.
const MAX_FADED: f64 = 100.0;
/// The use per time constant below which a flow does not count as served lately.
const LATELY: f64 = 0.05;
/// The excess from which on flows within their shares are admitted for as long as their callers wait.
const EXCESS: f64 = 0.1;
/// The number of times per time constant that the sums are computed.
const SUMS: f64 = 64.0;

impl Shares {
    pub(crate) fn new(flow_weights: Arc<FlowWeights>) -> Self {
        Self {
            flow_weights,
            ..Self::default()
        }
    }

    /// Applies the weights of a changed configuration.
    pub(crate) fn set_weights(&mut self, flow_weights: Arc<FlowWeights>) {
        let flows = self.flows.iter();
        let weights: Vec<_> = flows
            .map(|(index, flow, _)| (index, flow_weights.of(flow)))
            .collect();
        for (index, weight) in weights {
            self.flows[index] = weight.into();
        }
        self.flow_weights = flow_weights;
    }

    /// Records that a request of this flow got a slot. O(log flows).
    pub(crate) fn on_served(&mut self, flow: FlowKey<'_>, cost: f64, now: Nanos) {
        self.fade_to(now);
        // Scales the cost up by the factor that has faded since `faded` was 0.
        let cost = cost * self.faded.exp();
        match self.flows.find(flow) {
            Some(index) => {
                let Used(used) = self.used(index);
                self.flows.set_rank(index, Used(used + cost));
            }
            None => {
                let weight = self.flow_weights.of(flow).into();
                self.flows.insert_bounded(flow, Used(cost), weight);
            }
        }
    }

    fn used(&self, index: u32) -> Used {
        // Every flow in this table has a rank.
        self.flows.rank(index).unwrap_or(Used(0.0))
    }

    /// Lets the use of all flows fade up to `now`.
    fn fade_to(&mut self, now: Nanos) {
        self.faded = self.faded_at(now);
        self.at = self.at.max(now);
        if self.faded > MAX_FADED {
            // The factor is 0 after a very long time.
            let left = (-self.faded).exp();
            let flows: Vec<u32> = self.flows.iter().map(|(index, ..)| index).collect();
            for index in flows {
                let Used(used) = self.used(index);
                self.flows.set_rank(index, Used(used * left));
            }
            self.faded = 0.0;
        }
    }

    fn faded_at(&self, now: Nanos) -> f64 {
        let time = seconds(now.saturating_sub(self.at));
        match self.memory > 0.0 {
            true => self.faded + time / self.memory,
            // Before the first arrival that had to wait, there is no time constant.
            false => self.faded,
        }
    }

    /// Computes the sums over the flows, if the last ones are old enough. `memory` is the time constant in seconds.
    pub(crate) fn observe(&mut self, now: Nanos, memory: f64) {
        let time = seconds(now.saturating_sub(self.summed_at));
        if time * SUMS < memory || !memory.is_finite() {
            return;
        }
        // The old time constant applies up to now.
        self.fade_to(now);
        (self.summed_at, self.memory) = (now, memory);
        let left = (-self.faded).exp();
        let present = || {
            let all = self.flows.iter();
            all.map(|(index, _, &weight)| (weight, self.used(index).0 * left))
                .filter(|&(_, used)| used > LATELY)
        };
        let (weights, total) = present().fold((0.0, 0.0), |(weights, total), (weight, used)| {
            (weights + weight, total + used)
        });
        // The divisors are above 0, because the sum has summands only if a flow is present.
        let excess: f64 = present()
            .map(|(weight, used)| (used / total - weight / weights).max(0.0))
            .sum();
        (self.weights, self.total, self.excess) = (weights, total, excess);
    }

    /// Returns the unused part of this flow's share, from 0 to 1, scaled down if the other flows exceeded their shares
    /// only a little.
    pub(crate) fn unused(&self, flow: FlowKey<'_>, now: Nanos) -> f64 {
        if self.excess == 0.0 {
            return 0.0;
        }
        // A flow without use lately has a share from now on.
        let (weight, used) = match self.flows.find(flow) {
            Some(index) => {
                let Used(used) = self.used(index);
                (self.flows[index], used * (-self.faded_at(now)).exp())
            }
            None => (self.flow_weights.of(flow).into(), 0.0),
        };
        // The share is at most 1, even if the flow is missing from the sum.
        let share = weight / self.weights.max(weight);
        // The part is 1 if the flow used nothing, and 0 if it used its share or more.
        let unused = (1.0 - used / self.total / share).max(0.0);
        unused * (self.excess / EXCESS).min(1.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::flow::MAX_FLOWS;
    use crate::admit::{Tenant, WaitingRoomConfig};

    fn flow(tenant: &Tenant) -> FlowKey<'_> {
        let tenant = Some(tenant);
        FlowKey { level: 0, tenant }
    }

    const SECOND: Nanos = 1_000_000_000;

    /// Returns the unused shares of `a`, `b`, `c` and a newcomer, after each was served this many times in each of 100
    /// s.
    fn unused(served: [u32; 3], config: &WaitingRoomConfig) -> [f64; 4] {
        let mut shares = Shares::new(FlowWeights::new(config));
        for second in 1..=100 {
            shares.observe(second * SECOND, 20.0);
            for (tenant, count) in ["a", "b", "c"].into_iter().zip(served) {
                for _ in 0..count {
                    shares.on_served(flow(&tenant.into()), 1.0, second * SECOND);
                }
            }
        }
        shares.observe(200 * SECOND, 20.0);
        ["a", "b", "c", "d"].map(|tenant| {
            let unused = shares.unused(flow(&tenant.into()), 200 * SECOND);
            (unused * 100.0).round() / 100.0
        })
    }

    #[test]
    fn what_a_greedy_tenant_has_beyond_its_share_is_unused_by_the_others() {
        let config = WaitingRoomConfig::default();
        // Each of the three has a share of 20 out of 60.
        assert_eq!(unused([40, 10, 10], &config), [0.0, 0.5, 0.5, 1.0]);
        let weighted = config.weight("a", 4);
        assert_eq!(unused([40, 10, 10], &weighted), [0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn weights_that_change_hold_from_the_next_sums_on() {
        let mut shares = Shares::default();
        for tenant in ["a", "b"] {
            shares.on_served(flow(&tenant.into()), 10.0, SECOND);
        }
        let config = WaitingRoomConfig::default().weight("b", 3);
        shares.set_weights(FlowWeights::new(&config));
        shares.observe(SECOND, 1.0);
        // The tenant used a half, and its share is three quarters.
        let unused = shares.unused(flow(&"b".into()), SECOND);
        assert!((unused - 1.0 / 3.0).abs() < 1e-9, "{unused}");
    }

    #[test]
    fn tenants_without_end_take_no_more_memory() {
        let mut shares = Shares::default();
        shares.on_served(flow(&"a".into()), 1_000.0, SECOND);
        for nth in 0..10_000 {
            shares.on_served(flow(&nth.to_string().into()), 1.0, SECOND);
        }
        assert_eq!(shares.flows.len(), MAX_FLOWS);
        assert!(shares.flows.find(flow(&"a".into())).is_some());
    }

    #[test]
    fn what_flows_had_fades_over_any_time() {
        let mut shares = Shares::default();
        shares.observe(SECOND, 1.0);
        for seconds in [1, 90, 100_000] {
            let now = seconds * SECOND;
            shares.on_served(flow(&"a".into()), 10.0, now);
            shares.on_served(flow(&"b".into()), 30.0, now);
            shares.observe(now + SECOND / 10, 1.0);
            let unused = shares.unused(flow(&"a".into()), now);
            assert!((unused - 0.5).abs() < 0.05, "{unused} after {seconds} s");
        }
    }

    #[test]
    fn among_equals_no_share_is_unused() {
        assert_eq!(
            unused([20, 20, 20], &WaitingRoomConfig::default()),
            [0.0; 4]
        );
    }
}
