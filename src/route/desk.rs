//! What all services of one router share, and what it learns from each answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Response};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tower::retry::budget::{Budget, TpsBudget};

use super::availability::Shift;
use super::ejection::EjectionPolicy;
use super::latency::Moment;
use super::meter::Meter;
use super::router::Stamps;
use super::source::Source;
use super::verdict::Verdict;
use super::{EndpointRef, Endpoints, RouteError};
use crate::admit::RejectReason;
use crate::clock;
use crate::gate::{self, Permit};
use crate::http::{PermitBody, ToRejection};
use crate::service::LayerState;

/// What all services of one layer share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) common: Arc<LayerState<Endpoints>>,
    pub(super) body_limit: usize,
    pub(super) source: Source,
    pub(super) stamps: Stamps,
    pub(super) meter: Meter,
    /// Told after each change of which endpoints there are.
    pub(super) changed: watch::Sender<()>,
    budget: ArcSwap<TpsBudget>,
    /// How many were rejected, by code.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
}

/// How long a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// So many retries a second are allowed however little traffic there is.
const LEAST_RETRIES: u32 = 10;

fn budget(share: f64) -> Arc<TpsBudget> {
    Arc::new(TpsBudget::new(RECENT, LEAST_RETRIES, share as f32))
}

impl Desk {
    pub(super) fn new(
        common: Arc<LayerState<Endpoints>>,
        body_limit: usize,
        source: Source,
        stamps: Stamps,
    ) -> Self {
        let share = common.gate.capacity().routing().retry_share;
        Self {
            common,
            body_limit,
            source,
            stamps,
            meter: Meter::default(),
            changed: watch::Sender::default(),
            budget: ArcSwap::new(budget(share)),
            rejected: Mutex::default(),
        }
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
        let rejection = self
            .common
            .with_retry_after(why.to_rejection(), || self.common.gate.estimated_wait());
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let code = rejection.code();
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected.entry(code).or_default() += 1;
        drop(rejected);
        let response = self
            .common
            .write_rejection(rejection, headers, waited, None);
        (response.map(PermitBody::rejection), code)
    }

    /// The share of retries is another one from now on.
    pub(super) fn set_retry_share(&self, share: f64) {
        self.budget.store(budget(share));
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
        if let Verdict::Served | Verdict::Failed { answered: true, .. } = verdict {
            endpoint.live().signs.heard();
            if let Some(shift) = endpoint.live().availability.answered() {
                self.shifted(endpoint, shift);
            }
        }
        match verdict {
            // If it was a trial, the next request is one.
            Verdict::Unknown { .. } => {}
            Verdict::Failed { .. } if has_failed => {}
            Verdict::Failed { .. } => self.failed(endpoint, std::mem::take(&mut lease.trial)),
            Verdict::Served => {
                if let Some(called) = lease.called {
                    let now = gate::now();
                    let took = now.saturating_duration_since(called);
                    endpoint.live().latency.answered(took, Moment::at(now));
                }
                self.succeeded(endpoint, std::mem::take(&mut lease.trial));
            }
        }
    }

    fn succeeded(&self, endpoint: &EndpointRef, trial: bool) {
        let live = endpoint.live();
        if !trial {
            return live.ejection.succeeded();
        }
        live.ejection.acquitted();
        self.shifted(endpoint, live.availability.acquit());
    }

    /// An endpoint failed a request: it gave a bad answer, or none.
    fn failed(self: &Arc<Self>, endpoint: &EndpointRef, trial: bool) {
        let policy = self.ejection_policy();
        let too_often = endpoint.live().ejection.failed(policy);
        if trial || too_often {
            self.eject(endpoint, policy);
        }
    }

    /// The answer of an endpoint broke off.
    pub(super) fn broke_off(self: &Arc<Self>, endpoint: &EndpointRef) {
        let policy = self.ejection_policy();
        if endpoint.live().ejection.broke_off(policy) {
            self.eject(endpoint, policy);
        }
    }

    fn ejection_policy(&self) -> EjectionPolicy {
        let routing = self.endpoints().routing();
        EjectionPolicy {
            after: routing.eject_after,
            first: routing.eject_for,
        }
    }

    fn eject(self: &Arc<Self>, endpoint: &EndpointRef, policy: EjectionPolicy) {
        let live = endpoint.live();
        // Without Tokio's clock nothing would ever bring it back.
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return self.shifted(endpoint, live.availability.acquit());
        };
        let Some(shift) = self.endpoints().eject(endpoint) else {
            // It stays in service, and its failures count anew.
            live.ejection.spared();
            return self.shifted(endpoint, live.availability.acquit());
        };
        if !shift.is_new() {
            return;
        }
        let sentence = live.ejection.sentence(policy);
        tracing::warn!(
            endpoint = endpoint.name(),
            ?sentence,
            "endpoint failed too often and is left alone for a while"
        );
        self.shifted(endpoint, shift);
        self.try_again_after(sentence, endpoint.clone(), &runtime);
    }

    /// Something else is said of `endpoint` than before. Who says the same as others did is not news.
    pub(super) fn shifted(&self, endpoint: &EndpointRef, shift: Shift) {
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
    pub(super) fn pass_trial_on(&self) {
        if self.endpoints().trial_was_abandoned() {
            self.common.gate.capacity_changed();
        }
    }

    /// `endpoint` has left, and its checks with it. Should it come back, nothing is known of it.
    #[cfg(feature = "client")]
    pub(super) fn forget_checks(&self, endpoint: &EndpointRef) {
        if endpoint.live().availability.forget_checks().is_new() {
            self.common.gate.capacity_changed();
        }
    }

    /// One request may try `endpoint` when its `sentence` is over.
    fn try_again_after(
        self: &Arc<Self>,
        sentence: Duration,
        endpoint: EndpointRef,
        runtime: &Handle,
    ) {
        let desk = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(sentence).await;
            if let Some(desk) = desk.upgrade() {
                let endpoints = desk.endpoints().endpoints();
                // Its models may be others by now.
                let now = endpoints.iter().find(|now| now.is_same(&endpoint));
                desk.endpoints().put_on_trial(now.unwrap_or(&endpoint));
                desk.common.gate.capacity_changed();
            }
        });
    }
}
