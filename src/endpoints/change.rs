//! Changes of the registry and the rules: a new routing table is built, and replaces the old one in one store.
//!
//! Endpoints that stay keep their slots, health and latency; those that leave finish what they have in flight.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::table::RoutingTable;
use super::{Endpoint, EndpointRef, Endpoints, Registry, RoutingRules};
use crate::admit::PoolId;

/// What a change of the registry changed, as names of endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Changes {
    /// The new ones.
    pub added: Vec<String>,
    /// Those that have left, and finish what they have in flight.
    pub removed: Vec<String>,
    /// Those that are configured differently.
    pub changed: Vec<String>,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl Endpoints {
    /// The endpoints of `registry`, all healthy and idle.
    ///
    /// ```
    /// use tower_triage::endpoints::{Endpoints, Registry};
    /// use tower_triage::route::RoutingConfig;
    ///
    /// let routing = RoutingConfig::default().alias("gpt-4", "llama3:70b");
    /// let endpoints = Endpoints::with_rules(Registry::new(vec![])?, routing.rules()?);
    /// assert!(endpoints.endpoints().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_rules(registry: Registry, rules: RoutingRules) -> Self {
        Self::routed(registry, rules, false)
    }

    /// With `answers_first`, an endpoint gets one request at a time until it has answered one or passed a check.
    pub(crate) fn routed(registry: Registry, rules: RoutingRules, answers_first: bool) -> Self {
        let endpoints = (0..)
            .zip(registry.endpoints())
            .map(|(index, endpoint)| {
                EndpointRef::new(endpoint.clone(), PoolId(index), answers_first, false)
            })
            .collect();
        let table = RoutingTable::new(Arc::new(registry), rules, endpoints, Vec::new(), None);
        Self {
            table: ArcSwap::from_pointee(table),
            changing: Mutex::default(),
            ejecting: Mutex::default(),
            leased: AtomicU64::new(0),
            answers_first,
            leases_slots: AtomicBool::new(false),
            probe_abandoned: AtomicBool::new(false),
            #[cfg(feature = "swap")]
            demand_notifier: Default::default(),
        }
    }

    /// Takes all slots away but those that are leased to the endpoints from now on. Endpoints that are started on demand
    /// keep theirs.
    pub(crate) fn lease_slots(&self) {
        // No endpoint is added meanwhile.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // First, so that no slot of a lease is taken without a look at its end.
        self.leases_slots.store(true, SeqCst);
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        for endpoint in endpoints.filter(|it| !it.config().is_on_demand()) {
            let state = endpoint.state();
            state.cold.lease.begin(&state.word);
        }
    }

    /// Changes the endpoints, and the rules if there are new ones, in one step. Call
    /// [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards.
    ///
    /// # Errors
    ///
    /// Those of `change`, which is given the present registry. Nothing has changed then.
    pub(crate) fn change<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        // One change at a time: each is based on the table before.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.table.load_full();
        let (registry, rules) = change(&old.registry)?;
        let rules = rules.unwrap_or_else(|| old.rules.clone());
        let (changes, endpoints) = succession(
            &old,
            registry.endpoints(),
            self.answers_first,
            self.leases_slots.load(SeqCst),
        );
        let is_gone = |it: &&EndpointRef| !endpoints.iter().any(|new| new.is_same(it));
        let gone: Vec<EndpointRef> = old.endpoints.iter().filter(is_gone).cloned().collect();
        // Of those that left earlier, the ones that are still busy and did not come back.
        let leaving = old.leaving.iter().filter(is_gone);
        let leaving = leaving.filter(|leaving| leaving.in_flight() > 0);
        let leaving = leaving.chain(&gone).cloned().collect();

        let table = RoutingTable::new(
            Arc::new(registry),
            rules,
            endpoints.into(),
            leaving,
            Some(&old),
        );
        self.table.store(Arc::new(table));
        #[cfg(feature = "swap")]
        self.demand_notifier.on_new_table();
        // After the swap, or for a moment no endpoint would serve their models.
        gone.iter().for_each(|gone| gone.set_limit(0));
        Ok(changes)
    }
}

/// The endpoints of the new configuration, and what changed. An endpoint with the name and the URL of a present one, or
/// of one that is leaving, keeps its state.
fn succession(
    old: &RoutingTable,
    configured: &[Endpoint],
    answers_first: bool,
    leases_slots: bool,
) -> (Changes, Vec<EndpointRef>) {
    let mut changes = Changes::default();
    let mut pools = free_pools(old);
    let endpoints: Vec<EndpointRef> = configured
        .iter()
        .map(|endpoint| {
            let is_same =
                |old: &&EndpointRef| old.name() == endpoint.name && is_same_server(old, endpoint);
            if let Some(old) = old.endpoints.iter().find(is_same) {
                if old.config() == endpoint {
                    return old.clone();
                }
                changes.changed.push(endpoint.name.clone());
                // Only if configured differently: `set_limit` may have changed it since, or measurements.
                let slots = |endpoint: &Endpoint| (endpoint.max_concurrent, endpoint.limit);
                let changed = old.changed_to(endpoint.clone());
                if endpoint.limit.is_none() && slots(old.config()) != slots(endpoint) {
                    changed.set_limit(endpoint.max_concurrent);
                }
                return changed;
            }
            let was_there = old.endpoints.iter().any(|old| old.name() == endpoint.name);
            let list = match was_there {
                true => &mut changes.changed,
                false => &mut changes.added,
            };
            list.push(endpoint.name.clone());
            // It left while busy and comes back: its leases still count.
            if let Some(back) = old.leaving.iter().find(is_same) {
                // An operator that had drained it to take it out has put it back.
                _ = back.state().word.set_draining(false);
                back.set_limit(endpoint.initial_slots());
                return back.changed_to(endpoint.clone());
            }
            let pool = pools.next().unwrap_or(PoolId(u32::MAX));
            EndpointRef::new(endpoint.clone(), pool, answers_first, leases_slots)
        })
        .collect();
    let is_gone = |old: &&EndpointRef| configured.iter().all(|new| new.name != old.name());
    let removed = old.endpoints.iter().filter(is_gone);
    changes.removed = removed.map(|old| old.name().to_owned()).collect();
    (changes, endpoints)
}

/// Whether an endpoint is at the place that is configured; for those that are started on demand, wherever that is. One that
/// ran on demand shares nothing with an endpoint at the same place: what started it stops it, and closes it for good.
fn is_same_server(old: &EndpointRef, endpoint: &Endpoint) -> bool {
    #[cfg(feature = "swap")]
    if old.on_demand().is_some() || endpoint.on_demand.is_some() {
        return old.config().on_demand == endpoint.on_demand;
    }
    *old.url() == endpoint.url
}

/// The pools that no endpoint uses, lowest first.
fn free_pools(old: &RoutingTable) -> impl Iterator<Item = PoolId> + use<> {
    let used = old.endpoints.iter().chain(&old.leaving);
    let mut used: Vec<PoolId> = used.map(EndpointRef::pool).collect();
    used.sort_unstable();
    (0..)
        .map(PoolId)
        .filter(move |pool| used.binary_search(pool).is_err())
}
