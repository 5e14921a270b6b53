//! The configuration of a driver, at first and later: which instances exist, and what becomes of earlier ones.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::instance::Instance;
use super::instances::Instances;
use super::{RouteUpdate, SwapDriver};
use crate::admit::nanos::span;
use crate::endpoints::on_demand::{self, OnDemand};
use crate::endpoints::{Changes, Endpoint, EndpointRef};
use crate::route::RouteHandle;
use crate::route::on_demand::OtherNames;
use crate::swap::scheduler::{InstancePhase, InstanceSettings, SchedulerSettings};
use crate::swap::swapper::InstanceId;
use crate::swap::{InvalidSwap, LoadingState, ModelOutput, SwapConfig, SwapModel, SwapPolicy};

/// The name and the model of a configured instance.
type Configured = (Arc<str>, Arc<SwapModel>);

impl SwapDriver {
    /// Changes the instances, in one step with the `routes`. Instances that are configured as before keep running. Changed
    /// ones stop once they are idle, and instances that have left finish the requests that they serve.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, and changes nothing then.
    pub(super) fn configure(
        &mut self,
        config: &SwapConfig,
        routes: Option<Box<RouteUpdate>>,
        router: &RouteHandle,
    ) -> Result<(), InvalidSwap> {
        let mut configured: Vec<Configured> = Vec::new();
        for mut model in config.models.iter().cloned() {
            model.loading_state.get_or_insert(config.loading_state);
            let model = Arc::new(model);
            let names = model.instance_names();
            configured.extend(names.map(|name| (name.into(), Arc::clone(&model))));
        }
        config.swapper()?; // fails before anything changes
        let report = self.set_endpoints(&mut configured, routes, router);
        let (changed, begin) = self.set_instances(&configured, router);
        let names = self.instances.iter().map(|(_, it)| it.name.to_string());
        let swapper = config.swapper_of(&names.collect::<Vec<_>>())?;
        self.set_instance_settings();
        let settings = settings(config, &self.instances);
        let old = std::mem::replace(&mut self.instances.pools, pool_names(config));
        let pools = self.instances.pools.clone();
        // An instance whose pool has left, or was the only one, counts for the first pool.
        let moved = |pool: u32| {
            let name = old.get(pool as usize);
            let nth = name.and_then(|name| pools.iter().position(|pool| pool == name));
            nth.unwrap_or(0) as u32
        };
        for id in self.instances.ids() {
            let pool = &mut self.instances[id].schedule.pool;
            *pool = moved(*pool);
        }
        self.instances.start_timeout = config.health_timeout;
        for &id in &changed {
            // A sleeping server must not wake with its old configuration.
            self.instances.end_sleep(id);
            // The new configuration may start, though the old one failed.
            self.instances[id].end_refusal();
            self.instances.has_changed = true;
        }
        self.scheduler
            .on_reconfigure(settings, swapper, &changed, &mut self.instances);
        for id in begin {
            self.scheduler.on_load(id, &mut self.instances);
        }
        // Last, so that a caller that knows of the change finds the models changed.
        if let Some((changes, report)) = report {
            _ = changes.send(report); // an error: the caller does not wait
        }
        Ok(())
    }

    /// Sets the endpoints of the instances, in one step with the `routes`. Instances whose names are those of other launchers'
    /// endpoints are left out. Returns the changes of the routes, and where to send them.
    fn set_endpoints(
        &self,
        configured: &mut Vec<Configured>,
        routes: Option<Box<RouteUpdate>>,
        router: &RouteHandle,
    ) -> Option<(oneshot::Sender<Changes>, Changes)> {
        let (replaced, report_to) = match routes {
            Some(routes) => (Some((routes.registry, routes.rules)), Some(routes.changes)),
            None => (None, None),
        };
        let Ok(report) = router.change_beside_others(&self.signal, replaced, |own, others| {
            configured.retain(|(name, _)| !is_left_out(name, others));
            let endpoints = configured.iter();
            *own = endpoints
                .map(|(name, model)| self.endpoint(name, model))
                .collect();
            Ok::<_, Infallible>(())
        });
        Some((report_to?, report))
    }

    /// Returns the endpoint of an instance, with its URL if it runs.
    fn endpoint(&self, name: &str, model: &SwapModel) -> Endpoint {
        let known = self.named(name).map(|id| &self.instances[id]);
        let on_demand = known.map(|it| it.on_demand.clone());
        let on_demand = on_demand.unwrap_or_else(|| OnDemand::new(&self.signal));
        let mut endpoint = on_demand::endpoint(name, &model.model, model.concurrency, on_demand);
        endpoint.ignores_websockets = model.ignore_websockets;
        endpoint.shows_load = model.loading_state == Some(LoadingState::Reasoning);
        if let Some(known) = known {
            endpoint.url = known.url_as(model);
        }
        endpoint
    }

    /// Sets the instances. Returns those that have changed or left, and those to start at once.
    fn set_instances(
        &mut self,
        configured: &[Configured],
        router: &RouteHandle,
    ) -> (Vec<InstanceId>, Vec<InstanceId>) {
        let mut changed = self.remove_others(configured);
        let (mut begin, mut listed) = (Vec::new(), Vec::new());
        let present = router.endpoints();
        for (name, model) in configured {
            // `set_endpoints` has added it.
            let own = |it: &&EndpointRef| it.name() == &**name && self.is_own(it);
            let Some(endpoint) = present.iter().find(own) else {
                continue;
            };
            let (id, is_new) = match self.named(name) {
                Some(id) => {
                    let instance = &mut self.instances[id];
                    let is_changed = instance.starts_anew_as(model);
                    if is_changed {
                        changed.push(id);
                    }
                    if !is_changed {
                        instance.reconfigure_server(model);
                    }
                    let ran = instance.schedule.phase != InstancePhase::Stopped;
                    let preloads = model.preload && (is_changed && ran || !instance.model.preload);
                    let pins = model.pinned && (is_changed || !instance.model.pinned);
                    if preloads || pins {
                        begin.push(id);
                    }
                    let is_new = !std::mem::replace(&mut instance.is_configured, true);
                    (instance.model, instance.endpoint) = (Arc::clone(model), endpoint.clone());
                    instance.status.set_endpoint(endpoint.clone());
                    (id, is_new)
                }
                None => (self.add(name, model, endpoint), true),
            };
            if is_new && (model.pinned || model.preload) {
                begin.push(id);
            }
            listed.push(Arc::clone(&self.instances[id].status));
        }
        self.instances.status.set_instances(listed);
        (changed, begin)
    }

    /// Marks the instances that have left the configuration, and returns them. They have lost their endpoints, and stop.
    fn remove_others(&mut self, configured: &[Configured]) -> Vec<InstanceId> {
        let is_left = |it: &Instance| configured.iter().all(|(name, _)| *name != it.name);
        let mut left: Vec<InstanceId> = self.instances.ids().collect();
        left.retain(|&id| self.instances[id].is_configured && is_left(&self.instances[id]));
        for &id in &left {
            self.instances[id].is_configured = false;
        }
        left
    }

    /// Adds an instance. It gets the number of one that has left and stopped, or else the next one.
    fn add(
        &mut self,
        name: &Arc<str>,
        model: &Arc<SwapModel>,
        endpoint: &EndpointRef,
    ) -> InstanceId {
        let (of, output) = (&model.model.name, self.output(&model.model.name));
        let status = &self.instances.status;
        let status = status.new_instance(of, endpoint.clone(), output);
        let (name, model) = (Arc::clone(name), Arc::clone(model));
        let mut instance = Instance::new(name, model, endpoint.clone(), status);
        let free = self.instances.iter().find(|(_, other)| {
            !other.is_configured
                && !other.is_busy()
                // The scheduler may still have waiters or a request to load for one that leaves only now.
                && other.schedule.settings.is_none()
                && other.schedule.phase == InstancePhase::Stopped
        });
        let Some(id) = free.map(|(id, _)| id) else {
            return self.instances.push(instance);
        };
        instance.start = self.instances[id].start + 1; // the end of an earlier start may still be reported
        self.instances[id] = instance;
        id
    }

    /// Returns the output of a model, which its instances share.
    fn output(&self, model: &str) -> ModelOutput {
        let mut instances = self.instances.iter();
        let known = instances.find(|(_, it)| it.model.model.name == model);
        known.map_or_else(ModelOutput::default, |(_, it)| it.status.output.clone())
    }

    /// Tells each instance's schedule its configuration, which the scheduler reads.
    fn set_instance_settings(&mut self) {
        for id in self.instances.ids() {
            let name = &self.instances[id].model.model.name;
            let is_of_model = |&id: &InstanceId| self.instances[id].model.model.name == *name;
            let first = self.instances.ids().find(is_of_model);
            let instance = &mut self.instances[id];
            let model = &instance.model;
            let settings = InstanceSettings {
                ttl: model.ttl.map_or(0, span),
                is_pinned: model.pinned,
                first_of_model: first.filter(|_| model.instances > 1),
            };
            instance.schedule.settings = instance.is_configured.then_some(settings);
        }
    }

    fn is_own(&self, endpoint: &EndpointRef) -> bool {
        let on_demand = endpoint.on_demand();
        on_demand.is_some_and(|it| it.is_of(&self.signal))
    }

    fn named(&self, name: &str) -> Option<InstanceId> {
        let mut instances = self.instances.iter();
        let named = instances.find(|(_, it)| &*it.name == name);
        named.map(|(id, _)| id)
    }
}

/// Returns `true`, with a warning in the log, if an endpoint of another launcher has the name of an instance.
fn is_left_out(name: &str, others: &OtherNames) -> bool {
    let is_left_out = others.is_of_launcher(name);
    if is_left_out {
        tracing::warn!(
            name,
            "model left out: an endpoint of another launcher has its name"
        );
    }
    is_left_out
}

/// Returns the names of the memory pools, if there are several.
fn pool_names(config: &SwapConfig) -> Vec<Arc<str>> {
    match &config.policy {
        SwapPolicy::Memory(pools) if pools.len() > 1 => {
            pools.iter().map(|(name, _)| name.as_str().into()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the settings of the scheduler that hold for all instances.
pub(super) fn settings(config: &SwapConfig, instances: &Instances) -> SchedulerSettings {
    let default = config.default.as_ref().and_then(|default| {
        let is_default = |it: &Instance| it.is_configured && it.model.model.name == *default;
        let mut instances = instances.iter();
        instances.find(|(_, it)| is_default(it)).map(|(id, _)| id)
    });
    SchedulerSettings {
        swap_after: span(config.swap_after),
        min_loaded: span(config.min_loaded),
        abandoned_load: config.abandoned_load,
        default,
    }
}
