//! The handle of a `SwapLayer`, which reports on its models, and loads and unloads them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::driver::{DriverCommand, RouteUpdate};
use super::status::StatusTable;
use super::{InvalidSwap, InvalidSwapLayer, ModelStatus, OutputReader, SwapConfig, SwapEvent};
use crate::admit::{Capacity, PoolId};
use crate::endpoints::{Changes, Registry};
use crate::route::{InvalidRoute, RouteHandle, RoutingConfig};

/// Reports on the models of a [`SwapLayer`](super::SwapLayer), loads and unloads them. Clones are the same handle.
#[derive(Debug, Clone)]
pub struct SwapHandle {
    pub(super) router: RouteHandle,
    pub(super) status: Arc<StatusTable>,
    pub(super) commands: UnboundedSender<DriverCommand>,
}

/// The way in which a model is unloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unload {
    /// The model finishes the requests that it serves.
    #[default]
    Drain,
    /// The model ends at once, and the requests that it serves fail. Its [`stop_cmd`](super::SwapModel::stop_cmd) runs only
    /// if the model is not ready yet or has failed, for its grace at most. Without one, a model that is not ready yet is
    /// killed without its [`stop_signal`](super::SwapModel::stop_signal).
    Kill,
    /// The model stops if it serves no request and none waits for it, as if its [`ttl`](super::SwapModel::ttl) had passed. A
    /// load goes on, and a model that is pinned or the default stays.
    IfIdle,
}

/// The error of a call with a name that is not a model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{0}` that is started when it is asked for")]
pub struct UnknownModel(pub String);

impl SwapHandle {
    /// Returns the status of every model, in the order of the configuration.
    #[must_use]
    pub fn models(&self) -> Vec<ModelStatus> {
        let waiting = self.waiting();
        let mut models: Vec<ModelStatus> = Vec::new();
        for instance in self.status.instances().iter() {
            let mut report = instance.report();
            match models.iter_mut().find(|model| model.name == report.name) {
                Some(model) => add(model, report),
                None => {
                    report.waiting = waiting.get(&*instance.model).copied().unwrap_or(0);
                    models.push(report);
                }
            }
        }
        models
    }

    /// Sets the gauges of the models' states for the `metrics` facade. Call this before each scrape.
    #[cfg(feature = "metrics")]
    pub fn record_gauges(&self) {
        self.status.metrics.record_gauges(&self.models());
    }

    /// Starts a model as if a request of the lowest level asked for it, even if its last start failed just now.
    /// [`events`](Self::events) report the result.
    ///
    /// # Errors
    ///
    /// Fails if the name is not a model's.
    pub fn load(&self, model: &str) -> Result<(), UnknownModel> {
        let model = self.known(model)?;
        self.send(DriverCommand::Load(model));
        Ok(())
    }

    /// Stops a model, or gives up its start. Requests that wait for it get 503 `model_unloaded`. The next request starts the
    /// model again. The unload begins soon after this returns, so the model may still serve a request that comes meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the name is not a model's.
    pub fn unload(&self, model: &str, how: Unload) -> Result<(), UnknownModel> {
        let model = Some(self.known(model)?);
        self.send(DriverCommand::Unload(model, how));
        Ok(())
    }

    /// Stops all models as [`unload`](Self::unload) does, with those that have left the configuration and still run.
    pub fn unload_all(&self, how: Unload) {
        self.send(DriverCommand::Unload(None, how));
    }

    /// Returns a reader of a model's output: the last 200 lines, and then each new one.
    ///
    /// # Errors
    ///
    /// Fails if the name is not a model's.
    pub fn output(&self, model: &str) -> Result<OutputReader, UnknownModel> {
        let instances = self.status.instances();
        match instances.iter().find(|it| *it.model == *model) {
            Some(known) => Ok(known.output.reader()),
            None => Err(UnknownModel(model.to_owned())),
        }
    }

    /// Returns the events of all models from now on.
    #[must_use]
    pub fn events(&self) -> SwapEvents {
        SwapEvents(self.status.subscribe())
    }

    /// Changes the models while requests wait and run. Models that are configured as before keep running. Changed models
    /// finish the requests that they serve, and the next request starts them anew. Models that have left the configuration
    /// finish and stop. A changed model whose start failed is tried again at once when a request comes. The change begins soon
    /// after this returns.
    ///
    /// A model that has the name of another launcher's endpoint is left out, with a warning in the log, and so is an endpoint
    /// that runs by itself and has the name of a model. Use [`replace`](Self::replace) if a model becomes such an endpoint or the
    /// reverse.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, and changes nothing then.
    pub fn reconfigure(&self, config: SwapConfig) -> Result<(), InvalidSwap> {
        config.validate()?;
        self.send(DriverCommand::Reconfigure(Box::new(config), None));
        Ok(())
    }

    /// Changes the models as [`reconfigure`](Self::reconfigure) does, and all other endpoints and the routing as
    /// [`RouteHandle::replace`] does, in one step. So requests can wait for a model while it becomes an endpoint that runs by
    /// itself, or the reverse. Returns the changes of the other endpoints, once the models have changed, too. After the
    /// runtime of the layer has shut down, this changes nothing and returns empty changes.
    ///
    /// # Errors
    ///
    /// Fails if a part is invalid, or if a model has the name of an endpoint, and changes nothing then.
    ///
    /// # Cancel safety
    ///
    /// The change is made even if this is dropped while it waits.
    pub async fn replace(
        &self,
        config: SwapConfig,
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Changes, InvalidSwapLayer> {
        config.validate()?;
        let rules = routing.rules().map_err(InvalidRoute::from)?;
        let endpoints = registry.endpoints().iter().cloned();
        Registry::new(endpoints.chain(config.endpoints()).collect())?;
        let (changes, changed) = oneshot::channel();
        let routes = RouteUpdate {
            registry,
            rules,
            changes,
        };
        let routes = Some(Box::new(routes));
        self.send(DriverCommand::Reconfigure(Box::new(config), routes));
        Ok(changed.await.unwrap_or_default()) // an error: the runtime is shutting down
    }

    /// Stops all models for good. To be called once the router is [closed](RouteHandle::closed) and has served its last
    /// request.
    ///
    /// # Cancel safety
    ///
    /// The models stop even if this is dropped.
    pub async fn shutdown(&self) {
        let (answer, stopped) = oneshot::channel();
        self.send(DriverCommand::Shutdown(answer));
        _ = stopped.await; // an error: the driver is gone, and every model with it
    }

    fn send(&self, command: DriverCommand) {
        // Fails only while the runtime is shutting down.
        _ = self.commands.send(command);
    }

    fn known(&self, model: &str) -> Result<Arc<str>, UnknownModel> {
        let instances = self.status.instances();
        match instances.iter().find(|it| *it.model == *model) {
            Some(known) => Ok(Arc::clone(&known.model)),
            None => Err(UnknownModel(model.to_owned())),
        }
    }

    /// Returns the number of requests that wait for each model.
    fn waiting(&self) -> HashMap<Arc<str>, usize> {
        let gate = self.router.gate();
        let endpoints = gate.capacity();
        let mut by_lane = HashMap::<_, usize>::new();
        gate.for_each_waiter(|waiter| {
            *by_lane.entry(endpoints.lane(waiter.demand)).or_default() += 1;
        });
        let instances = self.status.instances();
        let models = instances.iter().map(|it| (it.pool(), &it.model));
        let models: HashMap<PoolId, &Arc<str>> = models.collect();
        let mut waiting = HashMap::new();
        for (lane, count) in by_lane {
            let pools = endpoints.pools_in_order(&lane);
            // The first pool is the first choice of the request.
            if let Some(model) = pools.iter().find_map(|pool| models.get(pool)) {
                *waiting.entry(Arc::clone(model)).or_default() += count;
            }
        }
        waiting
    }
}

/// Adds the report of a further instance to that of its model.
fn add(model: &mut ModelStatus, other: ModelStatus) {
    let before = model.clone();
    if other.state.nearness() > model.state.nearness() {
        *model = other.clone();
    }
    model.running = before.running + other.running;
    model.in_flight = before.in_flight + other.in_flight;
    model.waiting = before.waiting;
    model.load_time = before.load_time.or(other.load_time);
    model.last_error = before.last_error.or(other.last_error);
}

/// The events of all models in order, made by [`SwapHandle::events`].
#[derive(Debug)]
pub struct SwapEvents(Receiver<SwapEvent>);

impl SwapEvents {
    /// Waits for the next event. Returns `None` once the layer is gone. A reader that is more than 256 events behind misses
    /// the oldest ones.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the next call returns the event.
    pub async fn next(&mut self) -> Option<SwapEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(_)) => {} // a later event is there
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
