//! The handle of a `SwapLayer`: reports on its models, loads and unloads them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::board::{Board, Entry};
use super::driver::{Command, Others};
use super::{InvalidSwap, InvalidSwapLayer, ModelState, ModelStatus, SwapConfig, SwapEvent};
use crate::admit::Capacity;
use crate::clock::now;
use crate::endpoints::{Changes, Registry};
use crate::route::{InvalidRoute, RouteHandle, RoutingConfig};

/// Reports on the models of a [`SwapLayer`](super::SwapLayer), loads and unloads them. Clones are the same handle.
#[derive(Debug, Clone)]
pub struct SwapHandle {
    pub(super) router: RouteHandle,
    pub(super) board: Arc<Board>,
    pub(super) commands: UnboundedSender<Command>,
}

/// How a model is unloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unload {
    /// It finishes the requests that it serves.
    #[default]
    Drain,
    /// At once, without its [`stop_cmd`](super::SwapModel::stop_cmd). The requests that it serves fail. One that is
    /// not ready yet, or has failed, is stopped by that command all the same, within its grace.
    Kill,
}

/// There is no model of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{0}` that is started when it is asked for")]
pub struct UnknownModel(pub String);

impl SwapHandle {
    /// Every model, in the order of the configuration.
    #[must_use]
    pub fn models(&self) -> Vec<ModelStatus> {
        let waiting = self.waiting();
        let mut models: Vec<ModelStatus> = Vec::new();
        for entry in &self.board.listed() {
            let known = models.iter_mut().find(|model| model.name == *entry.model);
            match known {
                Some(model) => add(model, entry),
                None => {
                    let mut model = status(entry);
                    model.waiting = waiting.get(&*entry.model).copied().unwrap_or(0);
                    models.push(model);
                }
            }
        }
        models
    }

    /// Starts a model as if a request of the lowest level asked for it; at once, though its last start failed just now.
    /// [`events`](Self::events) say how that goes.
    ///
    /// # Errors
    ///
    /// If there is no such model.
    pub fn load(&self, model: &str) -> Result<(), UnknownModel> {
        let model = self.known(model)?;
        self.send(Command::Load(model));
        Ok(())
    }

    /// Stops a model, or gives up its start. Requests that wait for it get 503 `model_unloaded`. It is started again when it
    /// is asked for. This begins soon after it returns: a request meanwhile may still be served.
    ///
    /// # Errors
    ///
    /// If there is no such model.
    pub fn unload(&self, model: &str, how: Unload) -> Result<(), UnknownModel> {
        let model = Some(self.known(model)?);
        let is_killed = how == Unload::Kill;
        self.send(Command::Unload { model, is_killed });
        Ok(())
    }

    /// The same, for all models, with those that are not configured any more and finish what they serve.
    pub fn unload_all(&self, how: Unload) {
        let is_killed = how == Unload::Kill;
        self.send(Command::Unload {
            model: None,
            is_killed,
        });
    }

    /// What happens to models from now on.
    #[must_use]
    pub fn events(&self) -> SwapEvents {
        SwapEvents(self.board.subscribe())
    }

    /// Changes the models while requests wait and run. Models that are configured as before keep running, changed ones
    /// finish what they serve and are started anew when they are asked for, and those that have left run out. This begins
    /// soon after it returns. An endpoint that runs by itself and has the name of a model is left out, with a warning in the
    /// log: what moves from the ones to the others needs [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. Nothing has changed then.
    pub fn reconfigure(&self, config: SwapConfig) -> Result<(), InvalidSwap> {
        config.validate()?;
        self.send(Command::Reconfigure(Box::new(config), None));
        Ok(())
    }

    /// Changes the models as [`reconfigure`](Self::reconfigure) does, and all other endpoints and the routing as
    /// [`RouteHandle::replace`] does, in one step. So requests may wait for a model that moves from the ones to the others.
    /// Returns what has changed of the other endpoints, once the models have, too. When the runtime in which the layer was
    /// built has shut down, nothing changes any more, and these changes are empty.
    ///
    /// # Errors
    ///
    /// If any of it is invalid, or if a model has the name of an endpoint. Nothing has changed then.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped while it waits, all of it changes all the same.
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
        let others = Others {
            registry,
            rules,
            changes,
        };
        self.send(Command::Reconfigure(Box::new(config), Some(others.into())));
        Ok(changed.await.unwrap_or_default()) // an error: the runtime is shutting down
    }

    /// Stops all models, and starts none any more. To be called when the router is
    /// [closed](RouteHandle::closed), so that no request is served any more.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, models are stopped all the same.
    pub async fn shutdown(&self) {
        let (answer, stopped) = oneshot::channel();
        self.send(Command::Shutdown(answer));
        _ = stopped.await; // an error: the driver is gone, and with it all that ran
    }

    fn send(&self, command: Command) {
        // Without a receiver, the runtime is shutting down.
        _ = self.commands.send(command);
    }

    fn known(&self, model: &str) -> Result<Arc<str>, UnknownModel> {
        let entries = self.board.listed();
        let known = entries.iter().find(|entry| *entry.model == *model);
        let known = known.map(|entry| Arc::clone(&entry.model));
        known.ok_or_else(|| UnknownModel(model.to_owned()))
    }

    /// How many requests wait for each model.
    fn waiting(&self) -> HashMap<Arc<str>, usize> {
        let gate = self.router.gate();
        let endpoints = gate.capacity();
        let by_lane = gate.count_waiters(|demand| endpoints.lane(demand));
        let entries = self.board.listed();
        let mut waiting = HashMap::new();
        for (lane, count) in by_lane {
            let pools = endpoints.pools_in_order(&lane);
            // The first choice of the request.
            let of_pool = |pool| {
                entries
                    .iter()
                    .find(|it: &&Entry| it.endpoint.pool() == pool)
            };
            if let Some(entry) = pools.into_iter().find_map(of_pool) {
                *waiting.entry(Arc::clone(&entry.model)).or_default() += count;
            }
        }
        waiting
    }
}

fn status(entry: &Entry) -> ModelStatus {
    ModelStatus {
        name: entry.model.to_string(),
        state: entry.state,
        since: now().saturating_duration_since(entry.since),
        running: entry.state.is_running().into(),
        in_flight: entry.endpoint.in_flight(),
        waiting: 0,
        progress: entry.progress(),
        last_error: entry.last_error.clone(),
        url: entry.url.clone().filter(|_| entry.state.is_running()),
    }
}

/// Adds a further instance of a model.
fn add(model: &mut ModelStatus, entry: &Entry) {
    let other = status(entry);
    let (running, in_flight) = (
        model.running + other.running,
        model.in_flight + other.in_flight,
    );
    let waiting = model.waiting;
    let last_error = model.last_error.take().or(other.last_error.clone());
    if other.state.nearness() > model.state.nearness() {
        *model = other;
    }
    (model.running, model.in_flight, model.waiting) = (running, in_flight, waiting);
    model.last_error = last_error;
}

impl ModelState {
    fn is_running(self) -> bool {
        matches!(self, Self::Loaded | Self::Sleeping | Self::Unloading)
    }

    /// The higher, the nearer to serving.
    fn nearness(self) -> u8 {
        match self {
            Self::Loaded => 5,
            Self::Loading => 4,
            Self::Sleeping => 3,
            Self::Unloading => 2,
            Self::Unloaded => 1,
            Self::Failed => 0,
        }
    }
}

/// What happens to models, in order. Made by [`SwapHandle::events`].
#[derive(Debug)]
pub struct SwapEvents(Receiver<SwapEvent>);

impl SwapEvents {
    /// The next event. A reader that is more than 256 behind misses the oldest. `None`: the layer is gone.
    ///
    /// # Cancel safety
    ///
    /// No event is lost if it is dropped.
    pub async fn next(&mut self) -> Option<SwapEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(_)) => {} // the next one is there
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
