//! Changes of the registry and the rules, which replace the routing table in one store. Endpoints that stay keep their slots,
//! health and latency. Endpoints that leave finish their requests in flight.

use std::convert::Infallible;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::endpoint_ref::GateNotice;
use super::endpoint_word::HealthFlags;
use super::on_demand::Launchers;
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
    #[must_use]
    pub fn with_rules(registry: Registry, rules: RoutingRules) -> Self {
        Self::routed(registry, rules, false)
    }

    /// Makes a capacity. With `answers_first`, a new endpoint with a check gets one request at a time until it has answered
    /// one or passed a check.
    pub(crate) fn routed(registry: Registry, rules: RoutingRules, answers_first: bool) -> Self {
        let empty = RoutingTable::new(Arc::default(), rules, [].into(), Vec::new(), None);
        let endpoints = Self {
            table: ArcSwap::from_pointee(empty),
            changing: Mutex::default(),
            ejecting: Mutex::default(),
            leased: AtomicU64::new(0),
            answers_first,
            leases_slots: AtomicBool::new(false),
            probe_abandoned: AtomicBool::new(false),
            gate_notice: GateNotice::default(),
            launchers: Launchers::default(),
        };
        let Ok(_) = endpoints.change(|_| Ok::<_, Infallible>((registry, None)));
        endpoints
    }

    /// Takes all slots away from the endpoints, except those that are leased to them from now on, and those of endpoints that
    /// are started on demand.
    pub(crate) fn lease_slots(&self) {
        // The lock keeps a change of the registry from adding an endpoint meanwhile.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // The flag is set first, so that every slot of a lease is taken with a look at the end of the lease.
        self.leases_slots.store(true, SeqCst);
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        for endpoint in endpoints.filter(|it| !it.is_on_demand()) {
            let state = endpoint.state();
            state.cold.lease.begin(&state.word);
        }
    }

    /// Changes the endpoints, and the rules if there are new ones, in one step. The gate has to be notified afterwards.
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
        let (changes, endpoints) = self.succession(&old, registry.endpoints());
        let is_gone = |it: &&EndpointRef| !endpoints.iter().any(|new| new == *it);
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
        // The slots go after the swap. Otherwise the models would have a moment without an endpoint.
        gone.iter().for_each(|gone| gone.set_own_limit(0));
        Ok(changes)
    }

    /// Returns the endpoints of the new configuration, and a list of the changes. An endpoint keeps its state if its name and
    /// URL are those of a current endpoint or of one that is leaving.
    fn succession(
        &self,
        old: &RoutingTable,
        configured: &[Endpoint],
    ) -> (Changes, Vec<EndpointRef>) {
        let mut changes = Changes::default();
        let mut pools = free_pools(old);
        let mut successor = |endpoint: &Endpoint| {
            let is_same =
                |old: &&EndpointRef| old.name() == endpoint.name && is_same_server(old, endpoint);
            let present = old.endpoints.iter().find(is_same);
            if let Some(present) = present.filter(|present| present.config() == endpoint) {
                return present.clone();
            }
            let was_there = old.endpoints.iter().any(|old| old.name() == endpoint.name);
            let list = match was_there {
                true => &mut changes.changed,
                false => &mut changes.added,
            };
            list.push(endpoint.name.clone());
            if let Some(present) = present {
                return reconfigured(present, endpoint);
            }
            if let Some(leaving) = old.leaving.iter().find(is_same) {
                return come_back(leaving, endpoint);
            }
            self.enter(endpoint, pools.next().unwrap_or(PoolId(u32::MAX)))
        };
        let endpoints = configured.iter().map(&mut successor).collect();
        let is_gone = |old: &&EndpointRef| configured.iter().all(|new| new.name != old.name());
        let removed = old.endpoints.iter().filter(is_gone);
        changes.removed = removed.map(|old| old.name().to_owned()).collect();
        (changes, endpoints)
    }

    /// Returns a new endpoint with its slots in `pool`.
    fn enter(&self, endpoint: &Endpoint, pool: PoolId) -> EndpointRef {
        let endpoint = EndpointRef::new(endpoint.clone(), pool, self.gate_notice.clone());
        let state = endpoint.state();
        if let Some(on_demand) = endpoint.on_demand() {
            on_demand.enter(state);
            return endpoint;
        }
        // An endpoint without a check is healthy until requests fail. Its first answer may take minutes, in which its other
        // slots would stay idle.
        if self.answers_first && endpoint.config().health.is_some() {
            _ = state.word.set(HealthFlags::UNKNOWN, true);
        }
        if self.leases_slots.load(SeqCst) {
            state.cold.lease.begin(&state.word);
        }
        endpoint
    }
}

/// Returns the endpoint with another configuration.
fn reconfigured(old: &EndpointRef, endpoint: &Endpoint) -> EndpointRef {
    // The limit changes only with its configuration, because an operator or measurements may have changed it since.
    let slots = |endpoint: &Endpoint| (endpoint.max_concurrent, endpoint.limit);
    // Measurements begin as configured if there were no slots, and otherwise from the limit that there was.
    let had_none = old.config().limit.is_none() && old.own_limit() == 0;
    let changed = old.changed_to(endpoint.clone());
    let begins = endpoint.limit.is_none() || had_none;
    if begins && slots(old.config()) != slots(endpoint) {
        changed.set_own_limit(endpoint.initial_slots());
    }
    changed
}

/// Returns an endpoint that left while it was busy and comes back now, so its leases still count.
fn come_back(leaving: &EndpointRef, endpoint: &Endpoint) -> EndpointRef {
    // An operator may have drained it before it was taken out, and has now put it back.
    _ = leaving.state().word.set(HealthFlags::DRAINING, false);
    leaving.set_own_limit(endpoint.initial_slots());
    leaving.changed_to(endpoint.clone())
}

/// Returns `true` if the endpoint runs at the place that the configuration names. An endpoint that is started on demand is
/// matched by its link to the driver, because its URL may change, and the driver closes an old one for good.
fn is_same_server(old: &EndpointRef, endpoint: &Endpoint) -> bool {
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
