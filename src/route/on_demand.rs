//! The part of a router that the launcher of on-demand endpoints uses.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use super::RouterHandle;
use super::shared::RouterShared;
use crate::endpoints::{Changes, Endpoint, Registry, RoutingRules};

/// A reference that does not keep its router alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakRouter(Weak<RouterShared>);

impl WeakRouter {
    pub(crate) fn upgrade(&self) -> Option<RouterHandle> {
        self.0.upgrade().map(RouterHandle)
    }
}

impl RouterHandle {
    pub(crate) fn downgrade(&self) -> WeakRouter {
        WeakRouter(Arc::downgrade(&self.0))
    }

    /// Changes the endpoints that are started on demand. Their names must be unique, also among all other endpoints.
    pub(crate) fn change_on_demand(&self, change: impl FnOnce(&mut Vec<Endpoint>)) {
        let changed = self.0.change_all(|registry| {
            let (mut on_demand, own) = registry.split_on_demand();
            change(&mut on_demand);
            Ok::<_, Infallible>((own.with_on_demand(on_demand), None))
        });
        match changed {
            Ok(_) => {}
            Err(never) => match never {},
        }
    }

    /// Replaces all endpoints and the routing in one step. Returns the changes of the endpoints that are not started on
    /// demand.
    pub(crate) fn replace_all(
        &self,
        registry: Registry,
        rules: RoutingRules,
        on_demand: Vec<Endpoint>,
    ) -> Changes {
        let names = |of: &Registry| -> Vec<String> {
            let endpoints = of.endpoints().iter();
            endpoints.map(|endpoint| endpoint.name.clone()).collect()
        };
        let (mut before, after) = (Vec::new(), names(&registry));
        let changed = self.0.change_all(|present| {
            before = names(&present.split_on_demand().1);
            Ok::<_, Infallible>((registry.with_on_demand(on_demand), Some(rules)))
        });
        let mut changes = match changed {
            Ok(changes) => changes,
            Err(never) => match never {},
        };
        let without = |names: &[String], others: &[String]| -> Vec<String> {
            let names = names.iter().filter(|name| !others.contains(name));
            names.cloned().collect()
        };
        changes.added = without(&after, &before);
        changes.removed = without(&before, &after);
        changes
            .changed
            .retain(|name| before.contains(name) && after.contains(name));
        changes
    }
}
