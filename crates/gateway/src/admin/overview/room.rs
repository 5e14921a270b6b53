//! The waiting room: its levels, and the models and tenants that wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use tower_triage::RouteHandle;
use tower_triage::admit::RoomStats;
use tower_triage::endpoints::{EndpointRef, HealthState};
use tower_triage::gate::{GateStatus, LevelStatus};

use super::{rounded, rows, seconds};
use crate::live::LONGEST_NAME;
use crate::text::truncated;

/// The number of tenants and of models that are shown, those with the most waiters.
const SHOWN: usize = 10;

pub(super) fn room(status: &GateStatus, slots: u64) -> Value {
    let oldest = status.levels.iter().filter_map(|level| level.oldest).max();
    json!({
        "waiting": status.depth,
        "max_size": status.max_size,
        "running": status.running,
        "limit": slots,
        "oldest_seconds": seconds(oldest),
        "estimated_wait_seconds": seconds(status.estimated_wait),
        "served_per_second": status.slots_per_second.map(rounded),
    })
}

/// Returns the slots of the endpoints that are in service.
pub(super) fn slots(endpoints: &[EndpointRef]) -> u64 {
    let in_service = |endpoint: &&EndpointRef| {
        let state = endpoint.health().state;
        matches!(state, HealthState::Healthy | HealthState::Unchecked) && !endpoint.draining()
    };
    let endpoints = endpoints.iter().filter(in_service);
    endpoints.map(|endpoint| u64::from(endpoint.limit())).sum()
}

pub(super) fn levels(levels: &[LevelStatus]) -> Value {
    rows(levels.iter().map(|level| {
        let row = json!({
            "waiting": level.waiting,
            "oldest_seconds": seconds(level.oldest),
            "estimated_wait_seconds": seconds(level.estimated_wait),
            "target_wait_seconds": seconds(level.target_wait),
            "reserved": level.reserved,
            "refused": by_code(&level.stats),
        });
        (level.name.clone(), row)
    }))
}

/// Returns the refusals of a level by the code of the error, without those that there were none of.
fn by_code(stats: &RoomStats) -> BTreeMap<&'static str, u64> {
    let all = stats.by_code();
    all.into_iter().filter(|&(_, count)| count > 0).collect()
}

/// The waiters, counted by the model that they ask for and by their tenant.
pub(super) struct Waiting {
    models: HashMap<String, Group>,
    tenants: HashMap<Vec<u8>, Group>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    waiting: usize,
    oldest: Duration,
}

impl Group {
    fn add(&mut self, age: Duration) {
        self.waiting += 1;
        self.oldest = self.oldest.max(age);
    }

    fn row(self) -> Value {
        json!({ "waiting": self.waiting, "oldest_seconds": seconds(Some(self.oldest)) })
    }
}

impl Waiting {
    pub(super) fn of(router: &RouteHandle) -> Self {
        let mut counted = Self {
            models: HashMap::new(),
            tenants: HashMap::new(),
        };
        // Only a new name is copied, because the room is locked.
        router.gate().for_each_waiter(|waiter| {
            let model = waiter.demand.model();
            match counted.models.get_mut(model) {
                Some(group) => group.add(waiter.age),
                None => counted
                    .models
                    .entry(model.to_owned())
                    .or_default()
                    .add(waiter.age),
            }
            let tenant = waiter.tenant.as_bytes();
            match counted.tenants.get_mut(tenant) {
                Some(group) => group.add(waiter.age),
                None => counted
                    .tenants
                    .entry(tenant.to_owned())
                    .or_default()
                    .add(waiter.age),
            }
        });
        counted
    }

    pub(super) fn models(&self) -> Value {
        top(self
            .models
            .iter()
            .map(|(model, group)| (model.clone(), *group)))
    }

    /// Returns the waiters by tenant. Those without one have an empty name.
    pub(super) fn tenants(&self) -> Value {
        top(self
            .tenants
            .iter()
            .map(|(tenant, group)| (String::from_utf8_lossy(tenant).into_owned(), *group)))
    }
}

fn top(groups: impl Iterator<Item = (String, Group)>) -> Value {
    let mut groups: Vec<_> = groups.collect();
    groups.sort_unstable_by(|a, b| (b.1.waiting, &a.0).cmp(&(a.1.waiting, &b.0)));
    groups.truncate(SHOWN);
    let mut names = HashSet::new();
    rows(groups.into_iter().map(|(name, group)| {
        let mut name = truncated(&name, LONGEST_NAME).to_owned();
        while !names.insert(name.clone()) {
            name.push('…'); // another name begins alike
        }
        (name, group.row())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_with_the_most_waiters_are_shown() {
        let groups = (1..=12).map(|n| {
            let mut group = Group::default();
            (0..n).for_each(|age| group.add(Duration::from_secs(age)));
            (format!("team-{n}"), group)
        });
        let shown = top(groups);
        assert_eq!(shown.as_object().unwrap().len(), SHOWN);
        assert_eq!(
            shown["team-12"],
            json!({ "nth": 0, "waiting": 12, "oldest_seconds": 11.0 })
        );
        assert!(shown.get("team-2").is_none());
    }
}
