//! The configuration of a driver, at first and later: which instances there are, and what becomes of those that were.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::unit::Unit;
use super::{Driver, Others};
use crate::admit::nanos::span;
use crate::clock::now;
use crate::endpoints::on_demand::{self, OnDemand};
use crate::endpoints::{Changes, Endpoint};
use crate::route::RouteHandle;
use crate::swap::board::Entry;
use crate::swap::scheduler::{ModelSettings, Phase, Scheduler, Settings};
use crate::swap::swapper::ModelId;
use crate::swap::{AbandonedLoad, InvalidSwap, SwapConfig, SwapModel, SwapPolicy};

/// How long a model that failed to start is not tried again: the first time, and at most.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A scheduler without models.
pub(super) fn scheduler(config: &SwapConfig) -> Result<Scheduler, InvalidSwap> {
    Ok(Scheduler::new(
        settings(config, &[]),
        config.swapper_of(&[])?,
    ))
}

impl Driver {
    /// Changes which instances there are, with the `others` in one step. Those that are configured as before keep running,
    /// those that would run differently are stopped once they are idle, and those that have left take no request any
    /// more.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. Nothing has changed then.
    pub(super) fn configure(
        &mut self,
        config: &SwapConfig,
        others: Option<Box<Others>>,
        router: &RouteHandle,
    ) -> Result<(), InvalidSwap> {
        let models = config.models.iter().map(|model| Arc::new(model.clone()));
        let configured: Vec<(Arc<str>, Arc<SwapModel>)> = models
            .flat_map(|model| {
                let names: Vec<_> = model.instance_names().collect();
                names
                    .into_iter()
                    .map(move |name| (name.into(), Arc::clone(&model)))
            })
            .collect();
        config.swapper_of(&[])?; // before anything changes
        let report = self.set_endpoints(&configured, others, router);
        let (changed, begin) = self.set_units(&configured, router);
        let names: Vec<String> = self
            .units
            .units
            .iter()
            .map(|unit| unit.name.to_string())
            .collect();
        let swapper = config.swapper_of(&names)?;
        let settings = settings(config, &self.units.units);
        let old = std::mem::replace(&mut self.units.pools, pool_names(config));
        let pools = &self.units.pools;
        // What ran in a pool that has left, or in the only one, is taken to be in the first.
        let moved = |pool: u32| {
            let name = old.get(pool as usize);
            let nth = name.and_then(|name| pools.iter().position(|pool| pool == name));
            nth.unwrap_or(0) as u32
        };
        self.scheduler.renumber_pools(moved);
        self.units.start_timeout = config.health_timeout;
        self.has_default = config.default.is_some();
        // What sleeps is not to be woken as it was configured.
        for &id in &changed {
            self.units.end_sleep(id);
            // As it is configured now, it may start.
            self.units.unit(id).on_demand.set_refusal(None);
            self.units.has_changed = true;
        }
        let now = self.nanos(now());
        self.scheduler
            .on_reconfigure(settings, swapper, &changed, now, &mut self.units);
        for id in begin {
            self.scheduler.on_load(id, now, &mut self.units);
        }
        // Last: a caller that knows of the change finds the models changed.
        if let Some((changes, report)) = report {
            _ = changes.send(report); // it may not wait
        }
        Ok(())
    }

    /// Sets the endpoints of the instances, with the `others` in one step. Returns what has changed of those, and where to
    /// say so.
    fn set_endpoints(
        &self,
        configured: &[(Arc<str>, Arc<SwapModel>)],
        others: Option<Box<Others>>,
        router: &RouteHandle,
    ) -> Option<(oneshot::Sender<Changes>, Changes)> {
        let configured = configured.iter();
        let endpoints = configured.map(|(name, model)| self.endpoint(name, model));
        let endpoints: Vec<Endpoint> = endpoints.collect();
        let Some(others) = others else {
            router.change_on_demand(|all| *all = endpoints);
            return None;
        };
        let report = router.replace_all(others.registry, others.rules, endpoints);
        Some((others.changes, report))
    }

    /// Sets the instances. Returns those that have to be started anew or have left, and those that are to run without being
    /// asked for.
    fn set_units(
        &mut self,
        configured: &[(Arc<str>, Arc<SwapModel>)],
        router: &RouteHandle,
    ) -> (Vec<ModelId>, Vec<ModelId>) {
        let mut changed = self.remove_others(configured);
        let (mut begin, mut listed) = (Vec::new(), Vec::new());
        let present = router.endpoints();
        for (name, model) in configured {
            // It was added above.
            let Some(endpoint) = present.iter().find(|endpoint| endpoint.name() == &**name) else {
                continue;
            };
            let (nth, is_new) = match self.unit_named(name) {
                Some(nth) => {
                    let unit = &mut self.units.units[nth];
                    let is_changed = !model.runs_as(&unit.model);
                    if is_changed {
                        changed.push(ModelId(nth as u32));
                    }
                    if model.pinned && (is_changed || !unit.model.pinned) {
                        begin.push(ModelId(nth as u32));
                    }
                    let is_new = !std::mem::replace(&mut unit.is_configured, true);
                    (unit.model, unit.endpoint) = (Arc::clone(model), endpoint.clone());
                    self.units.board.entries()[nth].endpoint = endpoint.clone();
                    (nth, is_new)
                }
                None => {
                    let unit = Unit::new(Arc::clone(name), Arc::clone(model), endpoint.clone());
                    (self.add(unit), true)
                }
            };
            if is_new && (model.pinned || model.preload) {
                begin.push(ModelId(nth as u32));
            }
            listed.push(nth);
        }
        self.units.board.set_listed(listed);
        (changed, begin)
    }

    /// The endpoint of an instance: where it runs, if it does.
    fn endpoint(&self, name: &str, model: &SwapModel) -> Endpoint {
        let (slots, nth) = (model.concurrency, self.unit_named(name));
        let Some(unit) = nth.map(|nth| &self.units.units[nth]) else {
            return on_demand::endpoint(name, &model.model, slots, OnDemand::new(&self.demand));
        };
        let mut endpoint = on_demand::endpoint(name, &model.model, slots, unit.on_demand.clone());
        endpoint.url = unit.endpoint.url().clone();
        endpoint
    }

    /// The instances that are not configured any more: they have no endpoint, and stop.
    fn remove_others(&mut self, configured: &[(Arc<str>, Arc<SwapModel>)]) -> Vec<ModelId> {
        let units = (0..).map(ModelId).zip(&mut self.units.units);
        let is_left = |unit: &Unit| configured.iter().all(|(name, _)| *name != unit.name);
        let left = units.filter(|(_, unit)| unit.is_configured && is_left(unit));
        left.map(|(id, unit)| {
            unit.is_configured = false;
            id
        })
        .collect()
    }

    /// Adds an instance, with the number of one that has left and stopped, or the next one.
    fn add(&mut self, mut unit: Unit) -> usize {
        let entry = Entry::new(
            &unit.model.model.name,
            unit.endpoint.clone(),
            unit.on_demand.clone(),
        );
        let mut units = self.units.units.iter().enumerate();
        // One that leaves only now may be waited for or be asked to load, as the scheduler sees it.
        let free = units.position(|(nth, unit)| {
            let id = ModelId(nth as u32);
            !unit.is_configured
                && !unit.is_busy()
                && !self.scheduler.is_configured(id)
                && self.scheduler.phase(id) == Phase::Stopped
        });
        match free {
            Some(nth) => {
                unit.start = self.units.units[nth].start + 1; // the end of an earlier one may still be told
                self.units.units[nth] = unit;
                self.units.board.entries()[nth] = entry;
                nth
            }
            None => {
                self.units.units.push(unit);
                self.units.board.entries().push(entry);
                self.units.units.len() - 1
            }
        }
    }

    fn unit_named(&self, name: &str) -> Option<usize> {
        let mut units = self.units.units.iter();
        units.position(|unit| &*unit.name == name)
    }
}

fn pool_names(config: &SwapConfig) -> Vec<Arc<str>> {
    match &config.policy {
        SwapPolicy::Memory(pools) if pools.len() > 1 => {
            pools.iter().map(|(name, _)| name.as_str().into()).collect()
        }
        _ => Vec::new(),
    }
}

fn settings(config: &SwapConfig, units: &[Unit]) -> Settings {
    let of_default = |unit: &Unit| Some(&unit.model.model.name) == config.default.as_ref();
    let default = units
        .iter()
        .position(|unit| unit.is_configured && of_default(unit));
    let first_of = |name: &str| {
        let mut units = units.iter();
        units
            .position(|unit| unit.model.model.name == name)
            .map(|nth| nth as u32)
    };
    let models = units.iter().map(|unit| {
        unit.is_configured.then(|| ModelSettings {
            ttl: unit.model.ttl.map_or(0, span),
            is_pinned: unit.model.pinned,
            instance_of: first_of(&unit.model.model.name).filter(|_| unit.model.instances > 1),
        })
    });
    Settings {
        swap_after: span(config.swap_after),
        min_loaded: span(config.min_loaded),
        finishes_abandoned: config.abandoned_load == AbandonedLoad::Finish,
        backoff: span(BACKOFF.0),
        max_backoff: span(BACKOFF.1),
        default: default.map(|nth| ModelId(nth as u32)),
        models: models.collect(),
    }
}
