//! Replacing the endpoints one by one leaves moments in which a model is nowhere.
//!
//! A change makes a whole new [`Fleet`] beside the old one, and swaps them. Endpoints that stay keep their
//! slots, health and measures; those that go finish what they have.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::fleet::Fleet;
use super::{EndpointRef, Endpoints};
use crate::admit::PoolId;
use crate::route::{Endpoint, InvalidRouting, Registry, RoutingConfig};

/// What a change of the registry changed, by the names of endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Those that are new.
    pub added: Vec<String>,
    /// Those that are gone, and finish what they have.
    pub removed: Vec<String>,
    /// Those that are configured differently.
    pub changed: Vec<String>,
}

impl Changes {
    /// Whether all is as it was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl Endpoints {
    /// The endpoints of `registry`, all well and idle.
    ///
    /// # Errors
    ///
    /// If the routing is invalid.
    pub fn with_routing(
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Self, InvalidRouting> {
        routing.validate()?;
        Ok(Self::routed(registry, routing, false))
    }

    /// The same for a router, which says what it hears of each: nothing is known of them yet.
    pub(in crate::route) fn of_router(
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Self, InvalidRouting> {
        routing.validate()?;
        Ok(Self::routed(registry, routing, true))
    }

    /// `routing` is known to be valid.
    pub(super) fn routed(registry: Registry, routing: RoutingConfig, answers_first: bool) -> Self {
        let endpoints = (0..)
            .zip(registry.endpoints())
            .map(|(index, endpoint)| {
                EndpointRef::new(endpoint.clone(), PoolId(index), answers_first)
            })
            .collect();
        let (registry, routing) = (Arc::new(registry), Arc::new(routing));
        let fleet = Fleet::new(registry, routing, endpoints, Vec::new(), None);
        Self {
            fleet: ArcSwap::from_pointee(fleet),
            changing: Mutex::default(),
            ejecting: Mutex::default(),
            leased: AtomicU64::new(0),
            answers_first,
            trial_abandoned: AtomicBool::new(false),
        }
    }

    /// Changes which endpoints there are, and how requests are routed, in one step. The gate is to be told.
    ///
    /// # Errors
    ///
    /// Those of `change`, which is given what is there. Nothing has changed then.
    pub(in crate::route) fn change<E>(
        &self,
        change: impl FnOnce(&Registry, &RoutingConfig) -> Result<(Registry, RoutingConfig), E>,
    ) -> Result<Changes, E> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.fleet.load_full();
        let (registry, routing) = change(&old.registry, &old.routing)?;
        let (changes, endpoints) = succession(&old, registry.endpoints(), self.answers_first);
        let gone: Vec<EndpointRef> = old
            .endpoints
            .iter()
            .filter(|old| !endpoints.iter().any(|new| new.is_same(old)))
            .cloned()
            .collect();
        let busy = |gone: &&EndpointRef| gone.in_flight() > 0;
        let is_back = |gone: &&EndpointRef| endpoints.iter().any(|new| new.is_same(gone));
        let leaving = old
            .leaving
            .iter()
            .filter(|gone| busy(gone) && !is_back(gone));
        let leaving = leaving.chain(&gone).cloned().collect();

        let (registry, routing) = (Arc::new(registry), Arc::new(routing));
        let fleet = Fleet::new(registry, routing, endpoints.into(), leaving, Some(&old));
        self.fleet.store(Arc::new(fleet));
        // Not before, or there would be a moment in which nobody serves what they served.
        gone.iter().for_each(|gone| gone.set_limit(0));
        Ok(changes)
    }
}

/// The endpoints that are configured from now on: those that there were, as far as they stay.
fn succession(
    old: &Fleet,
    configured: &[Endpoint],
    answers_first: bool,
) -> (Changes, Vec<EndpointRef>) {
    let mut changes = Changes::default();
    let mut pools = free_pools(old);
    let endpoints: Vec<EndpointRef> = configured
        .iter()
        .map(|endpoint| {
            let is_same =
                |old: &&EndpointRef| old.name() == endpoint.name && *old.url() == endpoint.url;
            if let Some(old) = old.endpoints.iter().find(is_same) {
                if old.config() == endpoint {
                    return old.clone();
                }
                changes.changed.push(endpoint.name.clone());
                if old.config().max_concurrent != endpoint.max_concurrent {
                    old.set_limit(endpoint.max_concurrent);
                }
                return old.changed_to(endpoint.clone());
            }
            let was_there = old.endpoints.iter().any(|old| old.name() == endpoint.name);
            let list = match was_there {
                true => &mut changes.changed,
                false => &mut changes.added,
            };
            list.push(endpoint.name.clone());
            if let Some(back) = old.leaving.iter().find(is_same) {
                back.set_limit(endpoint.max_concurrent);
                return back.changed_to(endpoint.clone());
            }
            let pool = pools.next().unwrap_or(PoolId(u32::MAX));
            EndpointRef::new(endpoint.clone(), pool, answers_first)
        })
        .collect();
    let is_gone = |old: &&EndpointRef| configured.iter().all(|new| new.name != old.name());
    let removed = old.endpoints.iter().filter(is_gone);
    changes.removed = removed.map(|old| old.name().to_owned()).collect();
    (changes, endpoints)
}

/// The pools that nobody uses, lowest first.
fn free_pools(old: &Fleet) -> impl Iterator<Item = PoolId> + use<> {
    let used = old.endpoints.iter().chain(&old.leaving);
    let mut used: Vec<PoolId> = used.map(EndpointRef::pool).collect();
    used.sort_unstable();
    (0..)
        .map(PoolId)
        .filter(move |pool| used.binary_search(pool).is_err())
}
