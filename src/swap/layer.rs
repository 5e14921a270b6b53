//! The layer, its builder, and the errors of its configuration.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::driver::SwapDriver;
use super::status::StatusTable;
use super::{InvalidSwap, Launcher, SwapConfig, SwapHandle};
use crate::endpoints::{InvalidRegistry, Registry};
use crate::route::{InvalidRoute, Route, RouteHandle, RouteLayer, RouteLayerBuilder};

/// A [`RouteLayer`] with endpoints on demand: it starts models when requests wait for them, and stops others to make room.
///
/// A request for a model that does not run waits in the same waiting room as all others, by its priority, until the model is
/// loaded. Requests for one model share the load. A model that serves requests finishes them before it stops for another one.
///
/// The inner service gets a [`Decision`](crate::endpoints::Decision) with the URL of the process in each request's
/// extensions. [`Forward`](crate::upstream::Forward) sends the request there.
///
/// See the [module](super) for an example.
#[derive(Debug, Clone)]
pub struct SwapLayer {
    route: RouteLayer,
    handle: SwapHandle,
}

/// The builder of a [`SwapLayer`], made by [`SwapLayer::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SwapLayerBuilder {
    config: SwapConfig,
    route: Option<RouteLayerBuilder>,
    launcher: Option<Arc<dyn Launcher>>,
}

impl SwapLayer {
    /// Returns a builder of a layer over the models of `config`.
    pub fn builder(config: SwapConfig) -> SwapLayerBuilder {
        SwapLayerBuilder {
            config,
            route: None,
            launcher: None,
        }
    }

    /// Closes the router when `token` is cancelled, as [`RouteLayer::shutdown`] does. The models run on until
    /// [`SwapHandle::shutdown`] stops them.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        Self {
            route: self.route.shutdown(token),
            ..self
        }
    }

    /// Returns a handle that reports on the models, and loads and unloads them.
    #[must_use]
    pub fn handle(&self) -> SwapHandle {
        self.handle.clone()
    }

    /// Returns a handle that reports on the waiting room and all endpoints, and changes those that run by themselves. An
    /// endpoint that is added with the name of a model is left out, with a warning in the log.
    #[must_use]
    pub fn router(&self) -> RouteHandle {
        self.route.handle()
    }
}

impl SwapLayerBuilder {
    /// Sets the waiting room, the routing, and the endpoints that run by themselves. The default is a [`RouteLayer`] without
    /// endpoints.
    pub fn route(mut self, route: RouteLayerBuilder) -> Self {
        self.route = Some(route);
        self
    }

    /// Sets the launcher that starts the models. On Unix, the default is [`ProcessLauncher`](super::ProcessLauncher).
    pub fn launcher(mut self, launcher: impl Launcher) -> Self {
        self.launcher = Some(Arc::new(launcher));
        self
    }

    /// Builds the layer, and starts the pinned and preloaded models.
    ///
    /// # Errors
    ///
    /// Fails if the configuration of the models, the room or the routing is invalid, if a model has the name of an endpoint,
    /// or outside of a Tokio runtime.
    pub fn try_build(self) -> Result<SwapLayer, InvalidSwapLayer> {
        self.config.validate()?;
        let runtime = Handle::try_current().map_err(|_| InvalidSwapLayer::NoRuntime)?;
        let route = match self.route {
            Some(route) => route,
            None => RouteLayer::builder(Registry::new(Vec::new())?),
        };
        let endpoints = route.registry().endpoints().iter().cloned();
        Registry::new(endpoints.chain(self.config.endpoints()).collect())?;
        if route.sheds() {
            return Err(InvalidSwapLayer::Sheds);
        }
        let route = route.try_build()?;
        let launcher = self.launcher;
        #[cfg(unix)]
        let launcher = launcher.or_else(|| Some(Arc::new(super::ProcessLauncher::default())));
        let launcher = launcher.ok_or(InvalidSwapLayer::NoLauncher)?;
        let (status, router) = (Arc::<StatusTable>::default(), route.handle());
        let preparing = Arc::clone(&launcher);
        let (driver, commands) =
            SwapDriver::new(&self.config, &router, Arc::clone(&status), launcher)?;
        runtime.spawn(async move { preparing.prepare().await });
        runtime.spawn(driver.run());
        let handle = SwapHandle {
            router,
            status,
            commands,
        };
        Ok(SwapLayer { route, handle })
    }

    /// Builds the layer as [`try_build`](Self::try_build) does.
    ///
    /// # Panics
    ///
    /// Panics if `try_build` fails.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> SwapLayer {
        match self.try_build() {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<S> Layer<S> for SwapLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        self.route.layer(inner)
    }
}

/// The error of a [`SwapLayer`] that could not be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSwapLayer {
    /// The configuration of the models is invalid.
    #[error("invalid `SwapConfig`: {0}")]
    Swap(#[from] InvalidSwap),
    /// The waiting room or the routing is invalid.
    #[error(transparent)]
    Route(#[from] InvalidRoute),
    /// The models and the endpoints contradict each other.
    #[error("invalid endpoints: {0}")]
    Registry(#[from] InvalidRegistry),
    /// The waiting room lets no request wait, so none could wait for its model.
    #[error("`overflow` is \"shed\": a `SwapLayer` starts a model because requests wait for it")]
    Sheds,
    /// The layer was built outside of a Tokio runtime.
    #[error("a `SwapLayer` has to be built in a Tokio runtime, in which models are started")]
    NoRuntime,
    /// The layer has no launcher, and processes can't be models on this system.
    #[error("processes can't be started as models on this system: set a `launcher`")]
    NoLauncher,
}
