//! The routing service, built from a configuration, and the handle that watches and changes it.

mod models;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tower::Layer;
use tower_triage::endpoints::{Changes, EndpointRef};
use tower_triage::gate::LevelStatus;
#[cfg(unix)]
use tower_triage::swap::ProcessLauncher;
use tower_triage::swap::{SwapConfig, SwapHandle, SwapLayer};
use tower_triage::upstream::HealthChecks;
use tower_triage::{Route, RouteHandle, RouteLayer};

pub(crate) use models::NamedModel;

use crate::admin::{EndpointState, LevelState, QueueState, Snapshot};
use crate::config::{Client, Config, StoredClient};
#[cfg(unix)]
use crate::descriptors;
use crate::durable::Classes;
use crate::tenants::Tenants;

pub(crate) type Routed = Route<Client>;

/// The service of a gateway that stores requests, in place of [`Routed`].
pub(crate) type StoredRoute = Route<StoredClient>;

/// The services that serve requests.
pub(crate) struct Services {
    layer: AnyLayer,
    pub(crate) handle: Handle,
}

/// Builds the services that `config` describes, and their handle. In a Tokio runtime.
pub(crate) fn services(config: &Config) -> Result<Services, Box<dyn Error>> {
    let body_limit = match &config.durable {
        None => config.body_limit_bytes,
        // Requests that are not stored are limited before they are routed.
        Some(durable) => config.body_limit_bytes.max(durable.body_limit_bytes),
    };
    let queue = config.waiting_room(config.durable.is_some())?;
    let tenants = Tenants::new(config)?;
    let of_models = tenants.clone();
    let router = RouteLayer::builder(config.registry.clone())
        .allow_models(move |request, model| of_models.may_use_model(request.headers(), model))
        .queue(queue.clone())
        .routing(config.routing.clone())
        .body_limit(body_limit)
        .body_memory(config.server.body_memory_bytes);
    let (layer, router, swap) = match &config.swap {
        None => {
            let layer = router.try_build()?;
            let handle = layer.handle();
            (AnyLayer::Route(layer), handle, None)
        }
        Some(swap) => {
            let layer = SwapLayer::builder(swap.clone()).route(router);
            #[cfg(unix)]
            let layer = layer.launcher(launcher());
            let layer = layer.try_build()?;
            let (router, swap) = (layer.router(), layer.handle());
            (AnyLayer::Swap(layer), router, Some(swap))
        }
    };
    Ok(Services {
        layer,
        handle: Handle {
            router,
            swap,
            clients_may_unload: Arc::new(config.clients_may_unload.into()),
            is_closed: Arc::default(),
            classes: Classes::new(&queue)?,
            tenants,
            swap_config: Arc::new(ArcSwapOption::from_pointee(config.swap.clone())),
        },
    })
}

/// Returns the launcher of the models of `[swap]`.
#[cfg(unix)]
fn launcher() -> ProcessLauncher {
    let mut launcher = ProcessLauncher::default();
    if let Some(limit) = descriptors::initial_limit() {
        launcher = launcher.open_files(limit);
    }
    match std::process::id() {
        1 => launcher.reap_orphans(), // the first process of a container
        _ => launcher,
    }
}

impl Services {
    /// Returns the service in front of `client`. All services have the same endpoints and waiting room.
    pub(crate) fn routed(&self, client: Client) -> Routed {
        self.layer.around(client)
    }

    /// Returns the service of a gateway that stores requests, in front of `client`.
    pub(crate) fn stored(&self, client: StoredClient) -> StoredRoute {
        self.layer.around(client)
    }
}

/// The layer that makes the services.
enum AnyLayer {
    Route(RouteLayer),
    Swap(SwapLayer),
}

impl AnyLayer {
    fn around<C>(&self, client: C) -> Route<C> {
        match self {
            Self::Route(layer) => layer.layer(client),
            Self::Swap(layer) => layer.layer(client),
        }
    }
}

/// Watches, changes and closes the service.
#[derive(Clone)]
pub(crate) struct Handle {
    router: RouteHandle,
    /// `None` without `[swap]`.
    swap: Option<SwapHandle>,
    /// Changes with a reload.
    clients_may_unload: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    /// Levels and tenants of stored requests, which change with a reload, too.
    classes: Classes,
    tenants: Tenants,
    /// The configuration of the models in use.
    swap_config: Arc<ArcSwapOption<SwapConfig>>,
}

impl Handle {
    /// Marks every endpoint healthy, as if its check had passed.
    #[cfg(test)]
    pub(crate) fn mark_all_healthy(&self) {
        let endpoints = self.router.endpoints();
        endpoints
            .iter()
            .for_each(|endpoint| self.router.set_healthy(endpoint, true));
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let status = self.router.status();
        Snapshot {
            schema: 1,
            queue: QueueState {
                depth: status.depth,
                running: status.running,
                served: status.served,
                cancelled: status.stats.cancelled,
                rejected: self.router.rejected(),
                levels: status.levels.into_iter().map(level_state).collect(),
            },
            endpoints: self.router.endpoints().iter().map(endpoint_state).collect(),
        }
    }

    /// Replaces endpoints, `[queue]`, `[routing]` and `[[tenants]]` by those of `new`, and the models of `[swap]` by `models` in the same
    /// step. `old` is the configuration in use.
    pub(crate) async fn apply(
        &self,
        old: &Config,
        new: &Config,
        models: Option<&SwapConfig>,
    ) -> Result<Changes, Box<dyn Error>> {
        let queue = new.waiting_room(old.durable.is_some())?;
        if old.queue != new.queue {
            self.classes.replace(&queue)?;
            self.router.reconfigure(queue.clone())?;
        }
        let (registry, routing) = (new.registry.clone(), new.routing.clone());
        let changes = match (&self.swap, models) {
            (Some(swap), Some(models)) => {
                let changes = swap.replace(models.clone(), registry, routing).await?;
                self.swap_config.store(Some(Arc::new(models.clone())));
                changes
            }
            _ => self.router.replace(registry, routing)?,
        };
        self.tenants.replace(&new.tenants, &queue)?;
        let may_unload = self.swap.is_some() && new.clients_may_unload;
        self.clients_may_unload.store(may_unload, Ordering::Relaxed);
        Ok(changes)
    }

    /// Starts the health checks. They stop when the returned value is dropped.
    pub(crate) fn checks(&self, client: &Client) -> HealthChecks {
        client.checks(&self.router)
    }

    pub(crate) fn router(&self) -> &RouteHandle {
        &self.router
    }

    /// Levels and tenants of stored requests.
    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    pub(crate) fn record_gauges(&self) {
        self.router.record_gauges();
        if let Some(swap) = &self.swap {
            swap.record_gauges();
        }
    }

    /// Rejects all waiting requests and all that arrive from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed); // a hint for clients: no order needed
        self.router.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Waits until the service is closed and no request runs.
    pub(crate) async fn closed(&self) {
        self.router.closed().await;
    }
}

fn level_state(level: LevelStatus) -> LevelState {
    LevelState {
        waiting: level.waiting,
        refused: level.stats.rejected(),
        estimated_wait_seconds: level.estimated_wait.map(|wait| wait.as_secs_f64()),
        target_wait_seconds: level.target_wait.map(|wait| wait.as_secs_f64()),
        reserved: level.reserved,
        name: level.name,
    }
}

fn endpoint_state(endpoint: &EndpointRef) -> EndpointState {
    let models = endpoint.config().models.iter();
    EndpointState {
        name: endpoint.name().to_owned(),
        in_flight: endpoint.in_flight(),
        limit: endpoint.limit(),
        adaptive: endpoint.config().limit,
        healthy: endpoint.healthy(),
        draining: endpoint.draining(),
        priority: endpoint.priority(),
        first_byte_ms: ms(endpoint.first_byte_latency()),
        total_ms: ms(endpoint.total_latency()),
        models: models.map(|model| model.name.clone()).collect(),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
