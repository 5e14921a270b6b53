//! Which flows had less of the slots than their share of late: tenants, with the discipline `fair`, and levels that have
//! weights.
//!
//! In overload something has to be refused. If one flow sends more than its share, that should be its own requests: what
//! it had beyond its share is idle, as the others see it.

use crate::admit::WaitingRoomConfig;
use crate::admit::flow::{FlowKey, FlowMap};
use crate::admit::nanos::{Nanos, seconds};

/// What the flows had that were served lately.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    flows: FlowMap<Usage>,
    /// The weights of all flows that were served lately.
    weights: f64,
    /// What all of them had.
    total: f64,
    /// The share of the slots that went to flows beyond their own shares.
    excess: f64,
    summed_at: Nanos,
    /// The time constant of what they had, in seconds.
    memory: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    weight: f64,
    /// The costs of its requests, each the less the longer ago it was.
    used: f64,
    at: Nanos,
}

/// How many flows are known at most: those that had the most.
const MAX_FLOWS: usize = 256;
/// A flow that had less than this in the time constant is not counted: it has not been here lately.
const LATELY: f64 = 0.05;
/// From this excess on, flows within their shares are let in for as long as their callers wait.
const EXCESS: f64 = 0.1;
/// How often the sums are made in one time constant.
const SUMS: f64 = 64.0;

impl Shares {
    /// The weights of flows may have changed.
    pub(crate) fn set_config(&mut self, config: &WaitingRoomConfig) {
        for (flow, usage) in self.flows.iter_mut() {
            usage.weight = flow.weight(config).into();
        }
    }

    /// A request of this flow got a slot.
    pub(crate) fn on_served(
        &mut self,
        flow: FlowKey<'_>,
        cost: f64,
        config: &WaitingRoomConfig,
        now: Nanos,
    ) {
        let memory = self.memory;
        if self.flows.get(flow).is_none() {
            self.insert(flow, config, now);
        }
        let Some(usage) = self.flows.get_mut(flow) else {
            return;
        };
        usage.used = usage.at(now, memory) + cost;
        usage.at = now;
    }

    /// Adds a flow, in place of the one that had the least if there are many. O(flows that are known) then.
    fn insert(&mut self, flow: FlowKey<'_>, config: &WaitingRoomConfig, now: Nanos) {
        if self.flows.len() >= MAX_FLOWS {
            let used = |usage: &Usage| usage.at(now, self.memory);
            let all = self.flows.iter();
            let least = all.min_by(|(.., a), (.., b)| used(a).total_cmp(&used(b)));
            if let Some((level, tenant)) = least.map(|(level, tenant, _)| (level, tenant.clone())) {
                let tenant = Some(&tenant);
                self.flows.remove(FlowKey { level, tenant });
            }
        }
        let usage = Usage {
            weight: flow.weight(config).into(),
            used: 0.0,
            at: now,
        };
        self.flows.insert(flow, usage);
    }

    /// Sums up what the flows had, now and then. `memory`: the time constant, in seconds.
    pub(crate) fn observe(&mut self, now: Nanos, memory: f64) {
        let time = seconds(now.saturating_sub(self.summed_at));
        if time * SUMS < memory || !memory.is_finite() {
            return;
        }
        (self.summed_at, self.memory) = (now, memory);
        let present = || {
            let all = self.flows.iter();
            all.map(|(.., usage)| (usage.weight, usage.at(now, memory)))
                .filter(|&(_, used)| used > LATELY)
        };
        let (weights, total) = present().fold((0.0, 0.0), |(weights, total), (weight, used)| {
            (weights + weight, total + used)
        });
        // Never divides by 0: without a flow that is present there is no summand.
        let excess: f64 = present()
            .map(|(weight, used)| (used / total - weight / weights).max(0.0))
            .sum();
        (self.weights, self.total, self.excess) = (weights, total, excess);
    }

    /// The part of its share that this flow did not use, from 0 to 1, as far as others used more than theirs.
    pub(crate) fn unused(&self, flow: FlowKey<'_>, config: &WaitingRoomConfig, now: Nanos) -> f64 {
        if self.excess == 0.0 {
            return 0.0;
        }
        // One that was not here lately has a share from now on.
        let (weight, used) = match self.flows.get(flow) {
            Some(own) => (own.weight, own.at(now, self.memory)),
            None => (flow.weight(config).into(), 0.0),
        };
        // At most 1, also where the flow is not in the sum yet.
        let share = weight / self.weights.max(weight);
        // 1 if it had nothing, 0 from its share on.
        let unused = (1.0 - used / self.total / share).max(0.0);
        unused * (self.excess / EXCESS).min(1.0)
    }
}

impl Usage {
    fn at(&self, now: Nanos, memory: f64) -> f64 {
        let time = seconds(now.saturating_sub(self.at));
        match memory > 0.0 {
            true => self.used * (-time / memory).exp(),
            // No arrival has had to wait yet.
            false => self.used,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Tenant;

    fn flow(tenant: &Tenant) -> FlowKey<'_> {
        let tenant = Some(tenant);
        FlowKey { level: 0, tenant }
    }

    const SECOND: Nanos = 1_000_000_000;

    /// What is left of the shares of `a`, `b`, `c` and a newcomer after each was served so often in each of 100 s.
    fn unused(served: [u32; 3], config: &WaitingRoomConfig) -> [f64; 4] {
        let mut shares = Shares::default();
        for second in 1..=100 {
            shares.observe(second * SECOND, 20.0);
            for (tenant, count) in ["a", "b", "c"].into_iter().zip(served) {
                for _ in 0..count {
                    shares.on_served(flow(&tenant.into()), 1.0, config, second * SECOND);
                }
            }
        }
        shares.observe(200 * SECOND, 20.0);
        ["a", "b", "c", "d"].map(|tenant| {
            let unused = shares.unused(flow(&tenant.into()), config, 200 * SECOND);
            (unused * 100.0).round() / 100.0
        })
    }

    #[test]
    fn what_a_greedy_tenant_has_beyond_its_share_is_unused_by_the_others() {
        let config = WaitingRoomConfig::default();
        // The shares are 20 of 60 each.
        assert_eq!(unused([40, 10, 10], &config), [0.0, 0.5, 0.5, 1.0]);
        let weighted = config.weight("a", 4);
        assert_eq!(unused([40, 10, 10], &weighted), [0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn weights_that_change_hold_from_the_next_sums_on() {
        let (mut shares, config) = (Shares::default(), WaitingRoomConfig::default());
        for tenant in ["a", "b"] {
            shares.on_served(flow(&tenant.into()), 10.0, &config, SECOND);
        }
        let config = config.weight("b", 3);
        shares.set_config(&config);
        shares.observe(SECOND, 1.0);
        // It had a half, and three quarters are its share.
        let unused = shares.unused(flow(&"b".into()), &config, SECOND);
        assert!((unused - 1.0 / 3.0).abs() < 1e-9, "{unused}");
    }

    #[test]
    fn tenants_without_end_take_no_more_memory() {
        let (mut shares, config) = (Shares::default(), WaitingRoomConfig::default());
        shares.on_served(flow(&"a".into()), 1_000.0, &config, SECOND);
        for nth in 0..10_000 {
            shares.on_served(flow(&nth.to_string().into()), 1.0, &config, SECOND);
        }
        assert_eq!(shares.flows.len(), MAX_FLOWS);
        assert!(shares.flows.get(flow(&"a".into())).is_some());
    }

    #[test]
    fn among_equals_no_share_is_unused() {
        assert_eq!(
            unused([20, 20, 20], &WaitingRoomConfig::default()),
            [0.0; 4]
        );
    }
}
