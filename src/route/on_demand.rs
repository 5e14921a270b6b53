//! Endpoints that a launcher starts when requests wait for them, as for busy ones.
//!
//! A **launcher** starts and stops what an endpoint serves: processes, pods, a machine that sleeps. It is a task with a loop of its own:
//! [`OnDemand::changed`] wakes it, [`OnDemand::waiting`] says which endpoints requests wait for, and [`OnDemand::start`] begins
//! a start. A router may have several launchers.
//!
//! ```text
//!     Stopped -- start() --> Starting -- ready(url) --> Running: open <----> closed
//!        ^ ^                    |                          |  close(), reopen(), close_if_idle(), a suspicion
//!        | +---- dropped -------+                          |
//!        |                      | failed(retry_at)         |
//!        |                      v                          |
//!        |                   Refused                       |
//!        +------------------ ended(how), dropped ----------+
//! ```
//!
//! Each state that has to end is a value that the launcher owns: [`Starting`], [`Running`], [`Refused`], [`Suspicion`]. Dropping one is a
//! correct transition, so a launcher whose task is cancelled or panics leaves no request behind. Each transition
//! takes the gate's lock, so no value is dropped within [`Gate::for_each_waiter`](crate::Gate::for_each_waiter) or a
//! [`Strategy`](crate::endpoints::Strategy).
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
//! use tokio::time::sleep;
//! use tower_triage::route::on_demand::{OnDemand, Running, Starting};
//!
//! async fn start(starting: Starting, started: UnboundedSender<Running>) {
//!     sleep(Duration::from_secs(2)).await; // a pod, a container or a magic packet would be here
//!     match starting.ready(http::Uri::from_static("http://127.0.0.1:9001")) {
//!         Ok(running) => _ = started.send(running),
//!         Err(error) => eprintln!("{error}"),
//!     }
//! }
//!
//! /// Starts endpoints for which requests wait, and stops those that are idle for 3 s.
//! async fn launch(mut on_demand: OnDemand) {
//!     let (started, mut servers) = unbounded_channel::<Running>();
//!     let mut running = Vec::new();
//!     loop {
//!         tokio::select! {
//!             is_there = on_demand.changed() => if !is_there { return },
//!             Some(server) = servers.recv() => running.push(server),
//!             () = sleep(Duration::from_secs(1)) => {}
//!         }
//!         for endpoint in on_demand.waiting().into_iter().filter_map(|lane| lane.to_start) {
//!             if let Ok(starting) = on_demand.start(endpoint.name(), None) {
//!                 tokio::spawn(start(starting, started.clone()));
//!             }
//!         }
//!         running.retain(|server: &Running| {
//!             let usage = server.endpoint().usage();
//!             let is_unused = usage.is_some_and(|it| it.last_end.elapsed() > Duration::from_secs(3));
//!             !(is_unused && server.close_if_idle()) // a server that is dropped here serves no request
//!         });
//!     }
//! }
//! ```

mod error;
mod guards;
mod launcher;
mod usage;
mod waiting;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Weak};

pub use error::{CannotStart, InvalidOnDemand, InvalidUrl};
pub use guards::{Refused, Running, Starting};
pub use launcher::{OnDemand, Watch};
pub use usage::Usage;
pub use waiting::WaitingLane;

use super::RouteHandle;
use super::shared::RouterShared;
pub use crate::endpoints::on_demand::{EndpointEnd, LoadProgress, Suspicion};
use crate::endpoints::on_demand::{LauncherSignal, OnDemand as Link, release_names};
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
        let Ok(_) = self.change_beside_others(launcher, None, |own, _| {
            change(own);
            Ok::<_, Infallible>(())
        });
    }

    /// Changes the endpoints of a launcher, in one step with the endpoints without a launcher and the routing if those are
    /// `replaced`. `change` gets the names of all other endpoints, too, but for those whose launcher is gone, which leave if
    /// their names are taken. Returns the changes of the endpoints without a launcher.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`. The router is unchanged then.
    pub(crate) fn change_beside_others<E>(
        &self,
        launcher: &Arc<LauncherSignal>,
        replaced: Option<(Registry, RoutingRules)>,
        change: impl FnOnce(&mut Vec<Endpoint>, &OtherNames) -> Result<(), E>,
    ) -> Result<Changes, E> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut changes = self.0.change_all(|present| {
            let (on_demand, present) = present.split_on_demand();
            let (mut own, mut all) = split(on_demand, launcher);
            before = names(present.endpoints());
            let (others, rules) = match replaced {
                Some((registry, rules)) => (registry, Some(rules)),
                None => (present, None),
            };
            after = names(others.endpoints());
            change(&mut own, &OtherNames::new(&all, others.endpoints()))?;
            release_names(&mut all, &own);
            all.extend(own);
            Ok((others.with_on_demand(all), rules))
        })?;
        // The name of an endpoint without a launcher may have been, or become, that of one with a launcher.
        changes.added = without(&after, &before);
        changes.removed = without(&before, &after);
        changes
            .changed
            .retain(|name| before.contains(name) && after.contains(name));
        Ok(changes)
    }
}

/// The names of endpoints that are not of a launcher.
pub(crate) struct OtherNames {
    /// The names of endpoints of other launchers.
    of_launchers: HashSet<String>,
    /// The names of endpoints without a launcher.
    of_others: HashSet<String>,
}

impl OtherNames {
    fn new(on_demand: &[Endpoint], others: &[Endpoint]) -> Self {
        let is_abandoned = |it: &&Endpoint| it.on_demand.as_ref().is_some_and(Link::is_abandoned);
        let present = on_demand.iter().filter(|it| !is_abandoned(it));
        Self {
            of_launchers: present.map(|it| it.name.clone()).collect(),
            of_others: others.iter().map(|it| it.name.clone()).collect(),
        }
    }

    /// Returns `true` if an endpoint of another launcher has the name.
    pub(crate) fn is_of_launcher(&self, name: &str) -> bool {
        self.of_launchers.contains(name)
    }

    fn contains(&self, name: &str) -> bool {
        self.is_of_launcher(name) || self.of_others.contains(name)
    }
}

fn without(names: &[String], others: &[String]) -> Vec<String> {
    let names = names.iter().filter(|name| !others.contains(name));
    names.cloned().collect()
}

fn names(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints
        .iter()
        .map(|endpoint| endpoint.name.clone())
        .collect()
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
    use crate::admit::Capacity;
    use crate::endpoints::Model;
    use crate::endpoints::on_demand::{OnDemand, endpoint};

    #[test]
    fn a_launcher_that_fails_is_not_there() {
        let url = http::Uri::from_static("http://127.0.0.1:1");
        let registry = Registry::new(vec![Endpoint::new("a", url)]).unwrap();
        let handle = RouteLayer::builder(registry.clone()).build().handle();
        let is_there = || handle.gate().capacity().on_demand().is_some();
        assert!(handle.on_demand(registry).is_err());
        assert!(!is_there());
        let _launcher = handle.on_demand(Registry::default()).unwrap();
        assert!(is_there());
    }

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
        let replaced = Some((Registry::default(), RoutingRules::default()));
        let Ok(changes) = handle.change_beside_others(&launchers[0], replaced, |_, others| {
            assert!(others.contains("b"));
            Ok::<_, Infallible>(())
        });
        assert!(changes.is_empty());
        assert_eq!(names(), ["b"]);
    }
}
