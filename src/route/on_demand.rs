//! The part of a router that the launcher of on-demand endpoints uses.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use super::RouteHandle;
use super::shared::RouterShared;
use crate::endpoints::on_demand::LauncherSignal;
use crate::endpoints::{Changes, Endpoint, Registry, RoutingRules};

/// A reference that does not keep its router alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakRouter(Weak<RouterShared>);

impl WeakRouter {
    pub(crate) fn upgrade(&self) -> Option<RouteHandle> {
        self.0.upgrade().map(RouteHandle)
    }
}

impl RouteHandle {
    pub(crate) fn downgrade(&self) -> WeakRouter {
        WeakRouter(Arc::downgrade(&self.0))
    }

    /// Changes the endpoints that a launcher starts on demand. Their names must be unique, also among all other endpoints.
    pub(crate) fn change_on_demand(
        &self,
        launcher: &Arc<LauncherSignal>,
        change: impl FnOnce(&mut Vec<Endpoint>),
    ) {
        let changed = self.0.change_all(|registry| {
            let (on_demand, own) = registry.split_on_demand();
            let (mut of_launcher, mut all) = split(on_demand, launcher);
            change(&mut of_launcher);
            all.extend(of_launcher);
            Ok::<_, Infallible>((own.with_on_demand(all), None))
        });
        match changed {
            Ok(_) => {}
            Err(never) => match never {},
        }
    }

    /// Replaces the endpoints of a launcher, those without a launcher, and the routing in one step. Returns the changes of the
    /// endpoints that are not started on demand.
    pub(crate) fn replace_all(
        &self,
        registry: Registry,
        rules: RoutingRules,
        launcher: &Arc<LauncherSignal>,
        endpoints: Vec<Endpoint>,
    ) -> Changes {
        let names = |of: &Registry| -> Vec<String> {
            let endpoints = of.endpoints().iter();
            endpoints.map(|endpoint| endpoint.name.clone()).collect()
        };
        let (mut before, after) = (Vec::new(), names(&registry));
        let changed = self.0.change_all(|present| {
            let (on_demand, own) = present.split_on_demand();
            before = names(&own);
            let (_, mut all) = split(on_demand, launcher);
            all.extend(endpoints);
            Ok::<_, Infallible>((registry.with_on_demand(all), Some(rules)))
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

/// Returns the endpoints of a launcher, and those of others.
fn split(
    on_demand: Vec<Endpoint>,
    launcher: &Arc<LauncherSignal>,
) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let is_own = |it: &Endpoint| it.on_demand.as_ref().is_some_and(|it| it.is_of(launcher));
    on_demand.into_iter().partition(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouteLayer;
    use crate::endpoints::Model;
    use crate::endpoints::on_demand::{OnDemand, endpoint};

    #[test]
    fn a_launcher_changes_only_its_own_endpoints() {
        let handle = RouteLayer::builder(Registry::default()).build().handle();
        let launchers = [(); 2].map(|()| Arc::new(LauncherSignal::default()));
        for (launcher, name) in launchers.iter().zip(["a", "b"]) {
            let own = endpoint(name, &Model::new(name), 1, OnDemand::new(launcher));
            handle.change_on_demand(launcher, |endpoints| endpoints.push(own));
        }
        let names = || -> Vec<String> {
            let endpoints = handle.endpoints();
            endpoints.iter().map(|it| it.name().to_owned()).collect()
        };
        assert_eq!(names(), ["a", "b"]);
        handle.change_on_demand(&launchers[0], Vec::clear);
        assert_eq!(names(), ["b"]);
        let rules = RoutingRules::default();
        handle.replace_all(Registry::default(), rules, &launchers[0], Vec::new());
        assert_eq!(names(), ["b"]);
    }
}
