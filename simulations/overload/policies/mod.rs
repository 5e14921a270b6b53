//! The policies, each in a file of its own.

mod adaptive_lifo;
mod dynamo;
mod estimate;
mod failsafe;
mod failsafe_limiter;
mod gradient2;
mod haproxy;
mod ours;
mod rolling;
mod slot_queue;
mod smg;
#[cfg(test)]
mod tests;
mod tower_limit;
mod tower_load_shed;
mod tower_timeout;
mod waiters;

use std::time::Duration;

use crate::policy::Policy;
use crate::workload::{Until, Workload};

/// What a policy may be configured with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) slots: usize,
    pub(crate) patience: Duration,
    pub(crate) until: Until,
    pub(crate) is_fair: bool,
    pub(crate) seed: u64,
}

impl Setting {
    pub(crate) fn of(workload: &Workload, seed: u64) -> Self {
        Self {
            slots: workload.slots,
            patience: workload.patience,
            until: workload.until,
            is_fair: workload.is_fair,
            seed,
        }
    }
}

/// A policy of the tables.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&Setting) -> Box<dyn Policy>,
}

impl Entry {
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> &'static Self {
        let named = POLICIES.iter().find(|entry| entry.name == name);
        named.unwrap_or_else(|| panic!("no policy is named {name:?}"))
    }
}

pub(crate) const BEFORE: &str = "tower-triage before";
pub(crate) const AFTER: &str = "tower-triage after";

pub(crate) const POLICIES: &[Entry] = &[
    Entry {
        name: BEFORE,
        make: |setting| Box::new(ours::Ours::new(setting, ours::before(setting))),
    },
    Entry {
        name: "before, max_wait = patience",
        make: |setting| {
            let config = ours::before(setting).max_wait(setting.patience);
            Box::new(ours::Ours::new(setting, config))
        },
    },
    Entry {
        name: AFTER,
        make: |setting| Box::new(ours::Ours::new(setting, ours::after(setting))),
    },
    Entry {
        name: "after, max_wait = patience",
        make: |setting| {
            let config = ours::after(setting).max_wait(setting.patience);
            Box::new(ours::Ours::new(setting, config))
        },
    },
    Entry {
        name: "FIFO, estimate > 0.2 patience",
        make: |setting| Box::new(estimate::Estimate::new(setting, 0.2)),
    },
    Entry {
        name: "FIFO, estimate > patience",
        make: |setting| Box::new(estimate::Estimate::new(setting, 1.0)),
    },
    Entry {
        name: "tower ConcurrencyLimit",
        make: |setting| Box::new(tower_limit::TowerLimit::new(setting)),
    },
    Entry {
        name: "tower LoadShed + it",
        make: |setting| Box::new(tower_load_shed::TowerLoadShed::new(setting)),
    },
    Entry {
        name: "tower Timeout + it",
        make: |setting| Box::new(tower_timeout::TowerTimeout::new(setting)),
    },
    Entry {
        name: "HAProxy maxconn",
        make: |setting| Box::new(haproxy::HaProxy::new(setting)),
    },
    Entry {
        name: "adaptive LIFO + CoDel, 5 ms",
        make: |setting| Box::new(adaptive_lifo::AdaptiveLifo::published(setting)),
    },
    Entry {
        name: "adaptive LIFO + CoDel, scaled",
        make: |setting| Box::new(adaptive_lifo::AdaptiveLifo::scaled(setting)),
    },
    Entry {
        name: "Netflix Gradient2",
        make: |_| Box::new(gradient2::Gradient2::without_queue()),
    },
    Entry {
        name: "Gradient2 + LIFO backlog",
        make: |_| Box::new(gradient2::Gradient2::with_backlog()),
    },
    Entry {
        name: "failsafe-go, queueing",
        make: |setting| Box::new(failsafe::Failsafe::queueing(setting.seed)),
    },
    Entry {
        name: "failsafe-go, prioritizer",
        make: |setting| Box::new(failsafe::Failsafe::prioritized(setting.seed)),
    },
    Entry {
        name: "SMG classes",
        make: |setting| Box::new(smg::Smg::new(setting)),
    },
    Entry {
        name: "Dynamo WSPT",
        make: |setting| Box::new(dynamo::Dynamo::new(setting)),
    },
];
