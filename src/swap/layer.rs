//! `SwapLayer` and its builder.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::board::Board;
use super::driver::Driver;
use super::{InvalidSwap, Launcher, SwapConfig, SwapHandle};
use crate::endpoints::{InvalidRegistry, Registry};
use crate::route::{InvalidRoute, Route, RouteHandle, RouteLayer, RouteLayerBuilder};

/// Starts models when requests ask for them, and stops others to make room: a [`RouteLayer`] with endpoints that are
/// started on demand.
///
/// A request for a model that does not run waits in the same waiting room as all others, by its priority, and is served once
/// the model was loaded. Requests for one model join. Nothing that serves a request is stopped for another model: it is
/// waited for. While others wait, the traffic of a loaded model yields after
/// [`swap_after`](SwapConfig::swap_after), or at once to a more urgent request, once it was loaded for
/// [`min_loaded`](SwapConfig::min_loaded).
///
/// The inner service gets a [`Decision`](crate::endpoints::Decision) in each request's extensions, which names the
/// process's URL; [`Forward`](crate::upstream::Forward) sends it there.
///
/// See the [module](super) for an example.
#[derive(Debug, Clone)]
pub struct SwapLayer {
    route: RouteLayer,
    handle: SwapHandle,
}

/// Builds a [`SwapLayer`]. Made by [`SwapLayer::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SwapLayerBuilder {
    config: SwapConfig,
    route: Option<RouteLayerBuilder>,
    launcher: Option<Arc<dyn Launcher>>,
}

impl SwapLayer {
    /// Begins to build a layer over the models of `config`.
    pub fn builder(config: SwapConfig) -> SwapLayerBuilder {
        SwapLayerBuilder {
            config,
            route: None,
            launcher: None,
        }
    }

    /// As [`RouteLayer::shutdown`]. Models run on; stop them with [`SwapHandle::shutdown`].
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        Self {
            route: self.route.shutdown(token),
            ..self
        }
    }

    /// Reports on the models, loads and unloads them.
    #[must_use]
    pub fn handle(&self) -> SwapHandle {
        self.handle.clone()
    }

    /// Reports on the waiting room and all endpoints, and changes those that are not started on demand. One that is added
    /// with the name of a model is left out, with a warning in the log.
    #[must_use]
    pub fn router(&self) -> RouteHandle {
        self.route.handle()
    }
}

impl SwapLayerBuilder {
    /// The waiting room, the routing, and endpoints that run by themselves. Default: those of a [`RouteLayer`] without
    /// endpoints.
    pub fn route(mut self, route: RouteLayerBuilder) -> Self {
        self.route = Some(route);
        self
    }

    /// What starts the models. Default: [`ProcessLauncher`](super::ProcessLauncher), where there is one.
    pub fn launcher(mut self, launcher: impl Launcher) -> Self {
        self.launcher = Some(Arc::new(launcher));
        self
    }

    /// Builds the layer, and starts the models that are to be loaded from the beginning.
    ///
    /// # Errors
    ///
    /// If the configuration of the models, the room or the routing is invalid; if a model has the name of an endpoint; or
    /// outside of a Tokio runtime.
    pub fn try_build(self) -> Result<SwapLayer, InvalidSwapLayer> {
        self.config.validate()?;
        let runtime = Handle::try_current().map_err(|_| InvalidSwapLayer::NoRuntime)?;
        let route = match self.route {
            Some(route) => route,
            None => RouteLayer::builder(Registry::new(Vec::new())?),
        };
        let endpoints = route.registry().endpoints().iter().cloned();
        Registry::new(endpoints.chain(self.config.endpoints()).collect())?;
        let route = route.try_build()?;
        let launcher = self
            .launcher
            .or_else(processes)
            .ok_or(InvalidSwapLayer::NoLauncher)?;
        let (board, router) = (Arc::new(Board::default()), route.handle());
        let preparing = Arc::clone(&launcher);
        let (driver, commands) = Driver::new(&self.config, &router, Arc::clone(&board), launcher)?;
        runtime.spawn(async move { preparing.prepare().await });
        runtime.spawn(driver.run());
        let handle = SwapHandle {
            router,
            board,
            commands,
        };
        Ok(SwapLayer { route, handle })
    }

    /// As [`try_build`](Self::try_build).
    ///
    /// # Panics
    ///
    /// Where that fails.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> SwapLayer {
        match self.try_build() {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }
}

#[cfg(unix)]
fn processes() -> Option<Arc<dyn Launcher>> {
    Some(Arc::new(super::ProcessLauncher::default()))
}

#[cfg(not(unix))]
fn processes() -> Option<Arc<dyn Launcher>> {
    None
}

impl<S> Layer<S> for SwapLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        self.route.layer(inner)
    }
}

/// What is wrong with the configuration of a [`SwapLayer`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSwapLayer {
    /// Its models.
    #[error("invalid `SwapConfig`: {0}")]
    Swap(#[from] InvalidSwap),
    /// Its waiting room or its routing.
    #[error(transparent)]
    Route(#[from] InvalidRoute),
    /// Its models and its endpoints together.
    #[error("invalid endpoints: {0}")]
    Registry(#[from] InvalidRegistry),
    /// It needs a Tokio runtime.
    #[error("a `SwapLayer` has to be built in a Tokio runtime, in which models are started")]
    NoRuntime,
    /// There is no launcher of processes for this system.
    #[error("processes can't be started as models on this system: set a `launcher`")]
    NoLauncher,
}
