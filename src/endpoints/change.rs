//! Changes of the registry and the rules. A change builds a new routing table and replaces the old one in one store.
//!
//! Endpoints that stay keep their slots, health and latency. Endpoints that leave finish their requests in flight.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::gate_notice::GateNotice;
use super::table::RoutingTable;
use super::{Endpoint, EndpointRef, Endpoints, Registry, RoutingRules};
use crate::admit::PoolId;

/// The names of the endpoints that a change of the registry has affected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Changes {
    /// The endpoints that are new.
    pub added: Vec<String>,
    /// The endpoints that have left. They finish their requests in flight.
    pub removed: Vec<String>,
    /// The endpoints that have another configuration under the same name.
    pub changed: Vec<String>,
}

impl Changes {
    /// Returns `true` if the change left all endpoints as they were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl Endpoints {
    /// Makes a capacity of the endpoints of `registry`, all healthy and idle, with these `rules`.
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

    /// Makes a capacity. With `answers_first`, a new endpoint gets one request at a time until it has answered one or
    /// passed a check.
    pub(crate) fn routed(registry: Registry, rules: RoutingRules, answers_first: bool) -> Self {
        let gate_notice = GateNotice::default();
        let endpoints = (0..)
            .zip(registry.endpoints())
            .map(|(index, endpoint)| {
                let (endpoint, pool) = (endpoint.clone(), PoolId(index));
                EndpointRef::new(endpoint, pool, answers_first, false, &gate_notice)
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
            gate_notice,
            #[cfg(feature = "swap")]
            demand_notifier: Default::default(),
        }
    }

    /// Takes all slots away from the endpoints, which from now on have only the slots that are leased to them.
    /// Endpoints that are started on demand keep their slots.
    pub(crate) fn lease_slots(&self) {
        // The lock keeps a change of the registry from adding an endpoint meanwhile.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // The flag is set first, so that every slot of a lease is taken with a look at the end of the lease.
        self.leases_slots.store(true, SeqCst);
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        for endpoint in endpoints.filter(|it| !it.config().is_on_demand()) {
            let state = endpoint.state();
            state.cold.lease.begin(&state.word);
        }
    }

    /// Changes the endpoints, and the rules if there are new ones, in one step.
    ///
    /// Call [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`, which gets the current registry. The endpoints and the rules are then unchanged.
    pub(crate) fn change<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        // Changes run one at a time, because each is based on the table before.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.table.load_full();
        let (registry, rules) = change(&old.registry)?;
        let rules = rules.unwrap_or_else(|| old.rules.clone());
        let (changes, endpoints) = succession(
            &old,
            registry.endpoints(),
            self.answers_first,
            self.leases_slots.load(SeqCst),
            &self.gate_notice,
        );
        let is_gone = |it: &&EndpointRef| !endpoints.iter().any(|new| new.is_same(it));
        let gone: Vec<EndpointRef> = old.endpoints.iter().filter(is_gone).cloned().collect();
        // An endpoint that left earlier is kept while it is busy, unless it has come back.
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
        // The slots go after the swap. Otherwise the models would have a moment without an endpoint.
        gone.iter().for_each(|gone| gone.set_own_limit(0));
        Ok(changes)
    }
}

/// Returns the endpoints of the new configuration, and a list of the changes.
///
/// An endpoint keeps its state if its name and URL are those of a current endpoint or of one that is leaving.
fn succession(
    old: &RoutingTable,
    configured: &[Endpoint],
    answers_first: bool,
    leases_slots: bool,
    gate_notice: &GateNotice,
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
                // The limit changes only with its configuration, because an operator or measurements may have changed
                // it since.
                let slots = |endpoint: &Endpoint| (endpoint.max_concurrent, endpoint.limit);
                let changed = old.changed_to(endpoint.clone());
                // Measurements leave a limit of 0 as it is.
                let had_none = slots(old.config()) == (0, None);
                let begins = endpoint.limit.is_none() || had_none;
                if begins && slots(old.config()) != slots(endpoint) {
                    changed.set_own_limit(endpoint.initial_slots());
                }
                return changed;
            }
            let was_there = old.endpoints.iter().any(|old| old.name() == endpoint.name);
            let list = match was_there {
                true => &mut changes.changed,
                false => &mut changes.added,
            };
            list.push(endpoint.name.clone());
            // The endpoint left while it was busy and comes back now, so its leases still count.
            if let Some(back) = old.leaving.iter().find(is_same) {
                // An operator may have drained it before it was taken out, and has now put it back.
                _ = back.state().word.set_draining(false);
                back.set_own_limit(endpoint.initial_slots());
                return back.changed_to(endpoint.clone());
            }
            let pool = pools.next().unwrap_or(PoolId(u32::MAX));
            EndpointRef::new(
                endpoint.clone(),
                pool,
                answers_first,
                leases_slots,
                gate_notice,
            )
        })
        .collect();
    let is_gone = |old: &&EndpointRef| configured.iter().all(|new| new.name != old.name());
    let removed = old.endpoints.iter().filter(is_gone);
    changes.removed = removed.map(|old| old.name().to_owned()).collect();
    (changes, endpoints)
}

/// Returns `true` if the endpoint runs at the place that the configuration names.
///
/// An endpoint that is started on demand is matched by its link to the driver, because its URL may change. Another
/// endpoint at the same URL gets a state of its own, because the driver stops and closes the old one for good.
fn is_same_server(old: &EndpointRef, endpoint: &Endpoint) -> bool {
    #[cfg(feature = "swap")]
    if old.on_demand().is_some() || endpoint.on_demand.is_some() {
        return old.config().on_demand == endpoint.on_demand;
    }
    *old.url() == endpoint.url
}

/// Returns the pools that are unused, in ascending order.
fn free_pools(old: &RoutingTable) -> impl Iterator<Item = PoolId> + use<> {
    let used = old.endpoints.iter().chain(&old.leaving);
    let mut used: Vec<PoolId> = used.map(EndpointRef::pool).collect();
    used.sort_unstable();
    (0..)
        .map(PoolId)
        .filter(move |pool| used.binary_search(pool).is_err())
}
