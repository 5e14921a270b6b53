//! The models of the service: their names and states, and those of `[swap]` started and stopped.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tower_triage::endpoints::{EndpointRef, Model, Registry};
use tower_triage::swap::{
    ModelState, ModelStatus, OutputReader, SwapConfig, SwapEvents, SwapHandle, SwapModel,
    UnknownModel, Unload,
};

use super::Handle;
use crate::tenants::Tenant;

/// A name by which requests ask for a model, and what is known of the model. `None` stands for unknown.
pub(crate) struct NamedModel {
    pub(crate) name: String,
    pub(crate) state: ModelState,
    pub(crate) context_length: Option<u32>,
    pub(crate) vision: Option<bool>,
    pub(crate) tools: Option<bool>,
    pub(crate) json_mode: Option<bool>,
}

impl Handle {
    /// The models that a request of `tenant` may ask for: by their own names, then by aliases, each once.
    pub(crate) fn names(&self, tenant: Option<&Tenant>) -> Vec<NamedModel> {
        let (registry, routing) = (self.router.registry(), self.router.routing());
        let started = self.models();
        let may_use = |name: &str| tenant.is_none_or(|tenant| tenant.may_use_model(name));
        let models = registry.models().filter(|model| may_use(model));
        let models = models.map(|model| (model, model));
        let aliases = routing.aliases.iter();
        let aliases = aliases.map(|(name, alias)| (name, &*alias.model));
        let aliases = aliases.filter(|(alias, model)| may_use(alias) || may_use(model));
        let aliases = aliases.map(|(alias, model)| (alias.as_str(), model));
        let mut seen = HashSet::new();
        let names = models.chain(aliases).filter(|&(name, _)| seen.insert(name));
        names
            .map(|(name, model)| named(name, model, &started, &registry))
            .collect()
    }

    /// Returns the model of `[swap]` that a request of `tenant` asks for by `name`, if it runs on demand alone.
    pub(crate) fn on_demand(&self, name: &str, tenant: Option<&Tenant>) -> Option<NamedModel> {
        if !self.has_name(name, tenant) {
            return None;
        }
        let (registry, routing) = (self.router.registry(), self.router.routing());
        let started = self.models();
        let target = routing.aliases.get(name).map(|alias| &*alias.model);
        let is_model = registry.models().any(|model| model == name);
        let model = target.filter(|_| !is_model).unwrap_or(name);
        let is_started = started.iter().any(|status| status.name == model);
        let is_on_demand = is_started && !has_backend(model, &registry);
        is_on_demand.then(|| named(name, model, &started, &registry))
    }

    /// Returns the configuration of the model of `[swap]` that `name` leads to.
    pub(crate) fn swap_model(&self, name: &str) -> Option<SwapModel> {
        let config = self.swap_config()?;
        let routing = self.router.routing();
        let model = routing.aliases.get(name).map_or(name, |alias| &alias.model);
        let mut models = config.models.iter();
        models.find(|it| it.model.name == model).cloned()
    }

    /// Returns `true` if `name` is one of these names.
    pub(crate) fn has_name(&self, name: &str, tenant: Option<&Tenant>) -> bool {
        let (registry, routing) = (self.router.registry(), self.router.routing());
        let may_use = |name: &str| tenant.is_none_or(|tenant| tenant.may_use_model(name));
        let target = routing.aliases.get(name).map(|alias| &*alias.model);
        may_use(name) && registry.models().any(|model| model == name)
            || target.is_some_and(|target| may_use(name) || may_use(target))
    }

    /// Returns `true` if a backend is in service, or a model of `[swap]` runs or can be started.
    pub(crate) fn has_model_in_service(&self) -> bool {
        let models = self.models();
        let is_backend = |endpoint: &EndpointRef| {
            let mut models = models.iter();
            !models.any(|model| is_instance(endpoint.name(), &model.name))
        };
        models.iter().any(|model| model.state != ModelState::Failed)
            || self
                .router
                .endpoints()
                .iter()
                .any(|endpoint| endpoint.healthy() && !endpoint.draining() && is_backend(endpoint))
    }

    /// The models of `[swap]` that `tenant` may use, in its order.
    pub(crate) fn models_of(&self, tenant: Option<&Tenant>) -> Vec<ModelStatus> {
        let mut models = self.models();
        models.retain(|model| tenant.is_none_or(|tenant| tenant.may_use_model(&model.name)));
        models
    }

    /// The models of `[swap]`, in its order.
    pub(crate) fn models(&self) -> Vec<ModelStatus> {
        self.swap.as_ref().map_or_else(Vec::new, SwapHandle::models)
    }

    /// The configuration of the models in use. `None` without `[swap]`.
    pub(crate) fn swap_config(&self) -> Option<Arc<SwapConfig>> {
        self.swap_config.load_full()
    }

    /// What happens to models of `[swap]`. `None` without that section.
    pub(crate) fn events(&self) -> Option<SwapEvents> {
        self.swap.as_ref().map(SwapHandle::events)
    }

    /// Returns `true` if clients may load and unload models of `[swap]`.
    pub(crate) fn clients_may_unload(&self) -> bool {
        // Relaxed: nothing else is read by it.
        self.clients_may_unload.load(Ordering::Relaxed)
    }

    /// Starts a model of `[swap]`, by its name or an alias.
    pub(crate) fn load(&self, name: &str) -> Result<(), UnknownModel> {
        self.with_swap(name, |swap, model| swap.load(model))
    }

    /// Stops a model of `[swap]`, by its name or an alias.
    pub(crate) fn unload(&self, name: &str, how: Unload) -> Result<(), UnknownModel> {
        self.with_swap(name, |swap, model| swap.unload(model, how))
    }

    /// Stops all models of `[swap]`. They are started again when requests ask for them.
    pub(crate) fn unload_all(&self, how: Unload) {
        if let Some(swap) = &self.swap {
            swap.unload_all(how);
        }
    }

    /// Stops all models of `[swap]`, and starts none any more.
    pub(crate) async fn shutdown_models(&self) {
        if let Some(swap) = &self.swap {
            swap.shutdown().await;
        }
    }

    /// Returns a reader of the output of a model of `[swap]`, by its name or an alias.
    pub(crate) fn output(&self, name: &str) -> Result<OutputReader, UnknownModel> {
        self.with_swap(name, SwapHandle::output)
    }

    fn with_swap<T>(
        &self,
        name: &str,
        act: impl FnOnce(&SwapHandle, &str) -> Result<T, UnknownModel>,
    ) -> Result<T, UnknownModel> {
        let routing = self.router.routing();
        let model = routing.aliases.get(name).map_or(name, |alias| &alias.model);
        match &self.swap {
            Some(swap) => act(swap, model),
            None => Err(UnknownModel(model.to_owned())),
        }
    }
}

/// Describes a model by all endpoints that have it: what one of them takes, the model takes.
fn named(name: &str, model: &str, started: &[ModelStatus], registry: &Registry) -> NamedModel {
    let of_endpoints = registry.endpoints().iter().flat_map(|it| &it.models);
    let same: Vec<&Model> = of_endpoints.filter(|it| it.name == model).collect();
    let any = |capability: fn(&Model) -> Option<bool>| {
        let values: Vec<_> = same.iter().map(|model| capability(model)).collect();
        match values.contains(&Some(true)) {
            true => Some(true),
            false if values.contains(&None) => None,
            false => Some(false),
        }
    };
    let contexts: Option<Vec<u32>> = same.iter().map(|model| model.context_length).collect();
    NamedModel {
        name: name.to_owned(),
        state: state(model, started, registry),
        context_length: contexts.and_then(|contexts| contexts.into_iter().max()),
        vision: any(|model| model.vision),
        tools: any(|model| model.tools),
        json_mode: any(|model| model.json_mode),
    }
}

/// The state of a model. One that a backend has is always loaded.
fn state(model: &str, started: &[ModelStatus], registry: &Registry) -> ModelState {
    let status = started.iter().find(|status| status.name == model);
    match status.filter(|_| !has_backend(model, registry)) {
        Some(status) => status.state,
        None => ModelState::Loaded,
    }
}

/// Returns `true` if a backend has the model.
fn has_backend(model: &str, registry: &Registry) -> bool {
    let mut endpoints = registry.endpoints().iter();
    endpoints.any(|endpoint| {
        let has_model = endpoint.models.iter().any(|one| one.name == model);
        has_model && !is_instance(&endpoint.name, model)
    })
}

/// Whether an endpoint's name is that of an instance of `model`: `model`, `model#2` and so on.
fn is_instance(endpoint: &str, model: &str) -> bool {
    let rest = endpoint.strip_prefix(model);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}
