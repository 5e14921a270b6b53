//! The endpoints of a router that one launcher starts on demand.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Uri;

use super::guards::Target;
use super::{CannotStart, InvalidOnDemand, Refused, Starting, WaitingLane, WeakRouter};
use crate::admit::{PoolId, Priority};
use crate::clock::now;
use crate::endpoints::on_demand::{LauncherSignal, OnDemand as Link, Refusal};
use crate::endpoints::strategy::forbid_in_strategy;
use crate::endpoints::{Changes, Endpoint, EndpointRef, Registry, RoutingRules};
use crate::route::RouteHandle;

/// The shortest time between two returns of [`OnDemand::changed`], because the first waiters change with each request in
/// overload.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The events for which a launcher wakes beside new waiters. Default: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Watch {
    /// `true` to wake when an endpoint becomes idle.
    pub idle: bool,
    /// The level of a request that waits for a stopped endpoint. A less urgent request that takes a slot of another endpoint on
    /// arrival wakes the launcher.
    pub overtakes: Option<Priority>,
    /// `true` to close an endpoint and wake when a request gets no answer, until its [`Suspicion`](super::Suspicion) is dropped.
    /// A suspicion that the launcher does not take is settled by the second return of [`OnDemand::changed`], which comes by
    /// itself.
    pub suspicions: bool,
}

impl Watch {
    /// Returns `self` with other values of [`idle`](Self::idle).
    #[must_use]
    pub fn idle(mut self, idle: bool) -> Self {
        self.idle = idle;
        self
    }

    /// Returns `self` with another level of [`overtakes`](Self::overtakes).
    #[must_use]
    pub fn overtakes(mut self, level: Priority) -> Self {
        self.overtakes = Some(level);
        self
    }

    /// Returns `self` with other values of [`suspicions`](Self::suspicions).
    #[must_use]
    pub fn suspicions(mut self, suspicions: bool) -> Self {
        self.suspicions = suspicions;
        self
    }
}

/// The endpoints of a router that one launcher starts on demand. [`RouteHandle::on_demand`] creates it.
///
/// Dropping it makes stopped endpoints refuse requests for good, so that fallbacks serve them, or they get
/// `no_healthy_backend`. An endpoint with a [`Starting`] or a [`Running`](super::Running) refuses them once that is dropped,
/// and no request makes it suspect. To remove the endpoints, [set](Self::set_endpoints) an empty list before. Endpoints that
/// stay leave once another launcher, or [`RouteHandle::replace`], adds others of their names.
#[derive(Debug)]
#[must_use = "without its launcher, an endpoint is never started"]
pub struct OnDemand {
    router: WeakRouter,
    signal: Arc<LauncherSignal>,
    settings: Mutex<Settings>,
    /// The idle transitions of all endpoints at the last return of `changed`.
    idled: u64,
    /// The time of the last return of `changed`.
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
struct Settings {
    watch: Watch,
    /// The URLs as they were configured last. Those of the endpoints may be others, at which they run.
    urls: HashMap<String, Uri>,
}

impl RouteHandle {
    /// Adds endpoints that a launcher starts on demand, all stopped. Requests wait for them as for busy ones.
    ///
    /// # Errors
    ///
    /// Returns an error if another endpoint has a name, an endpoint has a health check or reads an engine's load, or
    /// requests never wait. The router is unchanged then.
    pub fn on_demand(&self, endpoints: Registry) -> Result<OnDemand, InvalidOnDemand> {
        forbid_in_strategy("RouteHandle::on_demand");
        if self.0.state.sheds() {
            return Err(InvalidOnDemand::Sheds);
        }
        let launcher = OnDemand {
            router: self.downgrade(),
            signal: Arc::default(),
            settings: Mutex::default(),
            idled: 0,
            looked: None,
        };
        launcher.set_endpoints(endpoints)?;
        self.gate().capacity().add_launcher(&launcher.signal);
        self.gate().capacity_changed(); // the first launcher makes the gate look at its waiters in another way
        launcher.signal.notify(); // requests may wait already
        Ok(launcher)
    }
}

impl OnDemand {
    /// Waits until the launcher should look again, at most once a millisecond. Returns `false` once the router is gone.
    ///
    /// It returns when requests wait for other endpoints than before, after other changes of the capacity, and after the events
    /// of [`watch`](Self::watch).
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and created again at any time.
    pub async fn changed(&mut self) -> bool {
        if let Some(looked) = self.looked {
            tokio::time::sleep_until((looked + LOOK_INTERVAL).into()).await;
        }
        let has_event = self.is_over() || self.has_idled() || self.has_noticed();
        let mut notified = pin!(self.signal.notified());
        // It is polled in any case, so that one event is not reported twice.
        let wake = |cx: &mut Context<'_>| match notified.as_mut().poll(cx) {
            Poll::Pending if has_event => Poll::Ready(()),
            polled => polled,
        };
        poll_fn(wake).await;
        self.idled = self.count_idled();
        self.looked = Some(now());
        let links = self.targets().into_iter();
        links.for_each(|it| it.link.forget_noticed());
        !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.router.upgrade().is_none()
    }

    /// Returns `true` if an endpoint became idle since the last return of `changed`, and the launcher waits for that.
    fn has_idled(&self) -> bool {
        self.lock().watch.idle && self.count_idled() != self.idled
    }

    /// Returns `true` if the launcher did not take a suspicion after the last return of `changed`.
    fn has_noticed(&self) -> bool {
        self.targets().iter().any(|it| it.link.has_noticed())
    }

    fn count_idled(&self) -> u64 {
        let targets = self.targets();
        let counts = targets.iter().map(|it| it.link.idled().0);
        counts.fold(0, u64::wrapping_add)
    }

    /// Sets the events beside new waiters for which [`changed`](Self::changed) returns.
    pub fn watch(&self, events: Watch) {
        self.lock().watch = events;
        self.signal.await_overtakes(events.overtakes);
        self.signal.watch_suspicions(events.suspicions);
        if let Some(router) = self.router.upgrade() {
            let endpoints = router.gate().capacity();
            endpoints.await_idleness(&self.signal, events.idle);
        }
    }

    /// Returns the lanes of waiting requests that these endpoints can serve, the most urgent first.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitingLane> {
        let Some(router) = self.router.upgrade() else {
            return Vec::new();
        };
        let targets = self.targets();
        let by_pool: HashMap<PoolId, &Target> =
            targets.iter().map(|it| (it.endpoint.pool(), it)).collect();
        let heads = router.gate().lane_heads().into_iter();
        let mut lanes: Vec<WaitingLane> = heads
            .filter_map(|head| {
                let pools = router.gate().capacity().pools_in_order(&head.lane);
                let own: Vec<&Target> = pools
                    .iter()
                    .filter_map(|it| by_pool.get(it).copied())
                    .collect();
                (!own.is_empty()).then(|| WaitingLane::new(&head, &own))
            })
            .collect();
        lanes.sort_by_key(|lane| (lane.level.0, lane.arrival)); // 0 is the most urgent level
        lanes
    }

    /// Begins to start a stopped endpoint. Reports estimate the progress from the `usual` time of a start.
    ///
    /// From now on, the wait for the endpoint counts as the wait for its start.
    ///
    /// # Errors
    ///
    /// Returns an error if the endpoint is not stopped, the launcher has no endpoint of this name, or the router is gone.
    pub fn start(&self, endpoint: &str, usual: Option<Duration>) -> Result<Starting, CannotStart> {
        let target = self.target(endpoint)?;
        target.start(usual).ok_or(CannotStart::NotStopped)
    }

    /// Refuses requests for an endpoint while it is closed, so that fallbacks serve them or they get `model_start_failed`.
    ///
    /// # Errors
    ///
    /// Returns [`NoSuchEndpoint`](CannotStart::NoSuchEndpoint) if the launcher has no endpoint of this name, or the router is
    /// gone.
    pub fn refuse(&self, endpoint: &str, retry_at: Instant) -> Result<Refused, CannotStart> {
        Ok(self.target(endpoint)?.refuse(retry_at))
    }

    /// Rejects the requests that wait for these endpoints at this moment with `model_unloaded`, unless they are open.
    pub fn reject_waiting(&self, endpoints: &[&str]) {
        let Some(router) = self.router.upgrade() else {
            return;
        };
        let mut targets = self.targets();
        targets.retain(|it| endpoints.contains(&it.endpoint.name()));
        let refusals: Vec<_> = targets
            .iter()
            .map(|it| it.link.refuse(Refusal::Unloaded).result)
            .collect();
        router.gate().capacity_changed();
        for (target, refusal) in targets.iter().zip(refusals) {
            target.link.end_refusal(refusal);
        }
        router.gate().capacity_changed();
    }

    /// Replaces these endpoints. An endpoint that keeps its name keeps its state, and one that leaves finishes its requests.
    /// An endpoint that runs moves only if its configured URL is another one than before.
    ///
    /// # Errors
    ///
    /// Returns an error if another endpoint has a name, an endpoint has a health check or reads an engine's load, or the
    /// router is gone. The router is unchanged then.
    pub fn set_endpoints(&self, endpoints: Registry) -> Result<(), InvalidOnDemand> {
        self.change(endpoints, None).map(drop)
    }

    /// Replaces these endpoints, those without a launcher, and the routing in one step. Returns the changes of the endpoints
    /// without a launcher.
    ///
    /// # Errors
    ///
    /// Returns an error if another endpoint has a name, an endpoint has a health check or reads an engine's load, or the
    /// router is gone. The router is unchanged then.
    pub fn replace_all(
        &self,
        endpoints: Registry,
        others: Registry,
        rules: RoutingRules,
    ) -> Result<Changes, InvalidOnDemand> {
        self.change(endpoints, Some((others, rules)))
    }

    fn change(
        &self,
        endpoints: Registry,
        replaced: Option<(Registry, RoutingRules)>,
    ) -> Result<Changes, InvalidOnDemand> {
        let router = self.router.upgrade().ok_or(InvalidOnDemand::NoRouter)?;
        let configured = endpoints.endpoints();
        configured.iter().try_for_each(check)?;
        let mut settings = self.lock(); // so that changes run one at a time
        let changes = router.change_beside_others(&self.signal, replaced, |own, others| {
            if let Some(taken) = configured.iter().find(|it| others.contains(&it.name)) {
                let endpoint = taken.name.clone();
                return Err(InvalidOnDemand::NameTaken { endpoint });
            }
            let present = std::mem::take(own);
            let configured = configured.iter().cloned();
            own.extend(configured.map(|it| self.linked(it, &present, &settings.urls)));
            Ok(())
        })?;
        let urls = configured
            .iter()
            .map(|it| (it.name.clone(), it.url.clone()));
        settings.urls = urls.collect();
        let watch = settings.watch;
        drop(settings);
        self.watch(watch); // new endpoints know it, too
        Ok(changes)
    }

    /// Returns an endpoint as it is configured now, with the state and the URL of the `present` one of its name.
    fn linked(
        &self,
        mut endpoint: Endpoint,
        present: &[Endpoint],
        urls: &HashMap<String, Uri>,
    ) -> Endpoint {
        let present = present.iter().find(|it| it.name == endpoint.name);
        if let Some(present) = present
            && urls.get(&endpoint.name) == Some(&endpoint.url)
        {
            endpoint.url = present.url.clone();
        }
        let link = present.and_then(|it| it.on_demand.clone());
        endpoint.on_demand = Some(link.unwrap_or_else(|| {
            let link = Link::new(&self.signal);
            link.watch_client_waits(true);
            link
        }));
        endpoint
    }

    /// Returns the router, or `None` once it is gone.
    #[must_use]
    pub fn router(&self) -> Option<RouteHandle> {
        self.router.upgrade()
    }

    fn target(&self, name: &str) -> Result<Target, CannotStart> {
        let mut targets = self.targets().into_iter();
        let named = targets.find(|it| it.endpoint.name() == name);
        named.ok_or(CannotStart::NoSuchEndpoint)
    }

    /// Returns the endpoints, in the router's order.
    fn targets(&self) -> Vec<Target> {
        let router = self.router.upgrade();
        let endpoints = router.map(|router| router.endpoints());
        let endpoints = endpoints.iter().flat_map(|all| all.iter());
        let own = endpoints.filter_map(|endpoint| {
            let link = endpoint.on_demand().filter(|it| it.is_of(&self.signal))?;
            Some(Target {
                link: link.clone(),
                endpoint: EndpointRef::clone(endpoint),
                router: self.router.clone(),
            })
        });
        own.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.signal.leave();
        let targets = self.targets();
        for target in &targets {
            target.link.forget_suspicions();
            target.link.refuse(Refusal::NoLauncher);
        }
        if let Some(target) = targets.first() {
            target.endpoint.state().tell_gate();
        }
    }
}

/// Returns an error if nothing would ever start the endpoint, because it counts as down while it is stopped.
fn check(endpoint: &Endpoint) -> Result<(), InvalidOnDemand> {
    let name = || endpoint.name.clone();
    if endpoint.health.is_some() {
        return Err(InvalidOnDemand::HealthCheck { endpoint: name() });
    }
    if endpoint.load.is_some() {
        return Err(InvalidOnDemand::EngineLoad { endpoint: name() });
    }
    Ok(())
}
