//! What all services of one router share, and what it learns from each answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Response};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tower::retry::budget::{Budget, TpsBudget};

use super::builder::ResponseHeaders;
use super::extract::DemandSource;
use super::metrics::Meter;
use super::response_class::Verdict;
use super::shell::LayerState;
use super::{InvalidRoute, RouteLayerBuilder, RoutingConfig};
use crate::admit::RejectReason;
use crate::clock;
use crate::endpoints::HealthChange;
#[cfg(feature = "client")]
use crate::endpoints::HealthSink;
use crate::endpoints::ejection::EjectionPolicy;
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{Changes, EndpointRef, Endpoints, Registry, RouteError, RoutingRules};
use crate::gate::{self, Permit};
use crate::http::{PermitBody, ToRejection};

/// What all services of one layer share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) common: Arc<LayerState<Endpoints>>,
    pub(super) body_limit: usize,
    pub(super) demand_from: DemandSource,
    pub(super) response_headers: ResponseHeaders,
    pub(super) meter: Meter,
    /// Told after each change of which endpoints there are.
    pub(super) changed: watch::Sender<()>,
    routing: ArcSwap<RoutingConfig>,
    /// Held while the endpoints or the routing are changed.
    changing: Mutex<()>,
    budget: ArcSwap<TpsBudget>,
    /// How many were rejected, by code.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
}

/// A routing configuration, checked.
pub(super) struct NewRouting {
    pub(super) config: RoutingConfig,
    pub(super) rules: RoutingRules,
}

/// How often, and up to which size, requests are tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retries {
    pub(super) max: u32,
    /// In bytes.
    pub(super) body_limit: usize,
}

/// How long a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// So many retries a second are allowed however little traffic there is.
const LEAST_RETRIES: u32 = 10;

fn budget(share: f64) -> Arc<TpsBudget> {
    Arc::new(TpsBudget::new(RECENT, LEAST_RETRIES, share as f32))
}

impl Desk {
    pub(super) fn new(builder: RouteLayerBuilder) -> Result<Self, InvalidRoute> {
        let endpoints = Endpoints::routed(builder.registry, builder.routing.rules()?, true);
        Ok(Self {
            common: LayerState::new(endpoints, builder.queue)?,
            body_limit: builder.body_limit,
            demand_from: builder.demand_from,
            response_headers: builder.response_headers,
            meter: Meter::default(),
            changed: watch::Sender::default(),
            budget: ArcSwap::new(budget(builder.routing.retry_share)),
            routing: ArcSwap::from_pointee(builder.routing),
            changing: Mutex::default(),
            rejected: Mutex::default(),
        })
    }

    pub(super) fn routing(&self) -> Arc<RoutingConfig> {
        self.routing.load_full()
    }

    /// How often, and up to which size, requests are tried again.
    pub(super) fn retries(&self) -> Retries {
        let routing = self.routing.load();
        Retries {
            max: routing.max_retries,
            body_limit: routing.retry_body_limit_bytes,
        }
    }

    /// Changes the endpoints, and the routing if there is another one.
    ///
    /// # Errors
    ///
    /// Those of `change`, which is given the present registry. Nothing has changed then.
    pub(super) fn change<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<NewRouting>), E>,
    ) -> Result<Changes, E> {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut routing = None;
        let changes = self.endpoints().change(|registry| {
            let (registry, new) = change(registry)?;
            let rules = new.map(|new| {
                routing = Some(new.config);
                new.rules
            });
            Ok((registry, rules))
        })?;
        // Under the lock: of two changes at once, rules and configuration are of the same one.
        if let Some(routing) = routing {
            self.set_routing(routing);
        }
        drop(changing);
        self.common.gate.capacity_changed();
        self.changed.send_replace(());
        Ok(changes)
    }

    fn set_routing(&self, routing: RoutingConfig) {
        // A new budget has all of its reserve, so an unchanged share keeps the old one.
        if routing.retry_share != self.routing.load().retry_share {
            self.budget.store(budget(routing.retry_share));
        }
        self.routing.store(Arc::new(routing));
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        self.common.gate.capacity()
    }

    pub(super) fn rejected(&self) -> BTreeMap<&'static str, u64> {
        let rejected = self.rejected.lock();
        rejected.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a request that no endpoint serves.
    pub(super) fn refuse<R>(
        &self,
        headers: &HeaderMap,
        why: &RejectReason<RouteError>,
        waited: Duration,
    ) -> (Response<PermitBody<R, Permit<Endpoints>>>, &'static str) {
        let rejection = self.common.with_retry_after(why.to_rejection());
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let code = rejection.code();
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected.entry(code).or_default() += 1;
        drop(rejected);
        let response = self.common.write(rejection, headers, waited, None);
        (response.map(PermitBody::rejection), code)
    }

    /// A request was tried that may be tried again.
    pub(super) fn deposit(&self) {
        self.budget.load().deposit();
    }

    /// Whether there may be one more retry.
    pub(super) fn withdraw(&self) -> bool {
        self.budget.load().withdraw()
    }

    /// What an answer says of the endpoint that gave it, or didn't. Nothing bad, if the request `has_failed`
    /// elsewhere: then it may be the request that is at fault.
    pub(super) fn learn(
        self: &Arc<Self>,
        permit: &mut Permit<Endpoints>,
        verdict: Verdict,
        has_failed: bool,
    ) {
        let lease = permit.lease_mut();
        let endpoint = &lease.decision.endpoint;
        if let Verdict::ModelBackends | Verdict::Failed { answered: true, .. } = verdict {
            endpoint.state().activity.record();
            if let Some(shift) = endpoint.state().word.answered() {
                self.shifted(endpoint, shift);
            }
        }
        match verdict {
            // If it was a trial, the next request is one.
            Verdict::Unknown { .. } => {}
            Verdict::Failed { .. } if has_failed => {}
            Verdict::Failed { .. } => self.failed(endpoint, std::mem::take(&mut lease.is_probe)),
            Verdict::ModelBackends => {
                if let Some(called) = lease.called {
                    let now = gate::now();
                    let took = now.saturating_duration_since(called);
                    endpoint
                        .state()
                        .latency
                        .answered(took, CoarseInstant::at(now));
                }
                self.succeeded(endpoint, std::mem::take(&mut lease.is_probe));
            }
        }
    }

    fn succeeded(&self, endpoint: &EndpointRef, is_probe: bool) {
        let state = endpoint.state();
        if !is_probe {
            return state.ejection.succeeded();
        }
        state.ejection.closed();
        self.shifted(endpoint, state.word.close());
    }

    /// An endpoint failed a request: it gave a bad answer, or none.
    fn failed(self: &Arc<Self>, endpoint: &EndpointRef, is_probe: bool) {
        let policy = self.ejection_policy();
        let too_often = endpoint.state().ejection.failed(policy);
        if is_probe || too_often {
            self.eject(endpoint, policy);
        }
    }

    /// The answer of an endpoint broke off.
    pub(super) fn broke_off(self: &Arc<Self>, endpoint: &EndpointRef) {
        let policy = self.ejection_policy();
        if endpoint.state().ejection.broke_off(policy) {
            self.eject(endpoint, policy);
        }
    }

    fn ejection_policy(&self) -> EjectionPolicy {
        let routing = self.routing.load();
        EjectionPolicy {
            after: routing.eject_after,
            first: routing.eject_for,
        }
    }

    fn eject(self: &Arc<Self>, endpoint: &EndpointRef, policy: EjectionPolicy) {
        let state = endpoint.state();
        // Without Tokio's clock nothing would ever bring it back.
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return self.shifted(endpoint, state.word.close());
        };
        let Some(shift) = self.endpoints().eject(endpoint) else {
            // It stays in service, and its failures count anew.
            state.ejection.reset_failures();
            return self.shifted(endpoint, state.word.close());
        };
        if !shift.is_new() {
            return;
        }
        let ejection_duration = state.ejection.ejection_duration(policy);
        tracing::warn!(
            endpoint = endpoint.name(),
            ?ejection_duration,
            "endpoint failed too often and is left alone for a while"
        );
        self.shifted(endpoint, shift);
        self.try_again_after(ejection_duration, endpoint.clone(), &runtime);
    }

    /// Something else is said of `endpoint` than before. Who says the same as others did is not news.
    pub(super) fn shifted(&self, endpoint: &EndpointRef, shift: HealthChange) {
        if !shift.is_new() {
            return;
        }
        if let Some(healthy) = shift.health() {
            self.health_changed(endpoint, healthy);
        }
        self.common.gate.capacity_changed();
    }

    /// Tells of a change in the health of `endpoint`, once.
    fn health_changed(&self, endpoint: &EndpointRef, healthy: bool) {
        let name = endpoint.name();
        if healthy {
            tracing::info!(endpoint = name, healthy, "endpoint is back in service");
        } else {
            tracing::warn!(endpoint = name, healthy, "endpoint is out of service");
        }
        self.meter.health_changed(endpoint);
    }

    /// Whoever may wait for a trial that ended without a verdict has to look again.
    pub(super) fn pass_probe_on(&self) {
        if self.endpoints().take_abandoned_probe() {
            self.common.gate.capacity_changed();
        }
    }

    /// One request may try `endpoint` when its `ejection_duration` is over.
    fn try_again_after(
        self: &Arc<Self>,
        ejection_duration: Duration,
        endpoint: EndpointRef,
        runtime: &Handle,
    ) {
        let desk = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(ejection_duration).await;
            if let Some(desk) = desk.upgrade() {
                let endpoints = desk.endpoints().endpoints();
                // Its models may be others by now.
                let now = endpoints.iter().find(|now| now.is_same(&endpoint));
                desk.endpoints().half_open(now.unwrap_or(&endpoint));
                desk.common.gate.capacity_changed();
            }
        });
    }
}

/// Health checks act on a router as its handle does.
#[cfg(feature = "client")]
impl HealthSink for Desk {
    fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.endpoints().endpoints()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        self.shifted(endpoint, endpoint.state().word.set_up(healthy));
    }

    fn forget_checks(&self, endpoint: &EndpointRef) {
        let shift = endpoint.state().word.forget_checks();
        let endpoints = self.endpoints().endpoints();
        if endpoints.iter().any(|present| present.is_same(endpoint)) {
            self.shifted(endpoint, shift);
        } else if shift.is_new() {
            // It has left: a change of its health is no news, but waiters may wait for it.
            self.common.gate.capacity_changed();
        }
    }
}
