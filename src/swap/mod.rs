//! Models that start when requests wait for them, because not all of them fit into memory.
//!
//! A [`SwapLayer`] is a [`RouteLayer`](crate::RouteLayer) with endpoints that do not run yet. A request for such a model
//! waits in the waiting room, with the priorities, shares, deadlines and bounds of all others, until the model is loaded.
//! Other models stop first to make room. A model that serves a request, or is being loaded for one, is never stopped for
//! another.
//!
//! ```no_run
//! use tower::ServiceBuilder;
//! use tower_triage::SwapLayer;
//! use tower_triage::route::RouteBody;
//! use tower_triage::swap::{SwapConfig, SwapModel};
//! use tower_triage::upstream::Forward;
//! # use bytes::Bytes;
//! # use http_body_util::Full;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let models = SwapConfig::memory(24.0) // in GB, say
//!     .model(SwapModel::new("qwen:7b", "llama-server --port ${PORT} -m qwen.gguf").memory(8.0))
//!     .model(SwapModel::new("llama3:70b", "llama-server --port ${PORT} -m llama.gguf").memory(20.0));
//! let layer = SwapLayer::builder(models).try_build()?;
//! let handle = layer.handle();
//! let forward = Forward::<RouteBody<Full<Bytes>>>::new();
//! let gateway = ServiceBuilder::new().layer(layer).service(forward);
//! # drop(gateway);
//! // … and once the server has stopped:
//! handle.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Which models may run together
//!
//! | policy | use |
//! |---|---|
//! | [memory](SwapPolicy::Memory) | most: models that fit into one budget, or into the memory of several GPUs. The least recently used model stops first |
//! | [groups](SwapPolicy::Groups) | models of which one at a time may run, beside others |
//! | [matrix](SwapPolicy::Matrix) | lists of all combinations that may run |
//!
//! Memory is one budget, or one for each GPU: a model runs in one pool, and `CUDA_VISIBLE_DEVICES` is set by where it is
//! placed. [`evict_cost`](SwapModel::evict_cost) weighs which model stops. The three policies exclude each other.
//!
//! # Settings of a model
//!
//! | model | setting |
//! |---|---|
//! | stays loaded, and comes back after a crash | [`pinned`](SwapModel::pinned) |
//! | is loaded from the start | [`preload`](SwapModel::preload) |
//! | comes back after the rush | [`SwapConfig::default`](SwapConfig#structfield.default) |
//! | runs as several processes, which share its requests | [`instances`](SwapModel::instances) |
//! | stops after a time without a request | [`ttl`](SwapModel::ttl), `ttl_seconds` in a file |
//! | sleeps instead of stopping, where its engine can | [`sleep_path`](SwapModel::sleep_path) and [`wake_path`](SwapModel::wake_path) |
//! | is reached at a fixed URL, such as that of a container | [`proxy`](SwapModel::proxy) |
//! | is not kept loaded by an open websocket | [`ignore_websockets`](SwapModel::ignore_websockets) |
//! | gets other parameters than the client's, or another name | [`set_params`](crate::endpoints::Model::set_params), [`strip_params`](crate::endpoints::Model::strip_params), [`use_model_name`](crate::endpoints::Model::use_model_name) |
//! | shows its load in any chat | [`loading_state`](SwapModel::loading_state) |
//!
//! Endpoints that are always there stand beside these models with [`SwapLayerBuilder::route`], in the same waiting room and
//! with the same aliases and fallbacks. A stream that asks for it (`x-queue-status: sse`) is told
//! `state=loading progress=0.42` while its model loads. [`SwapHandle::output`] reads the last 200 lines of a model's output.
//!
//! # When models swap
//!
//! - A model starts at once, beside other loads, if enough memory is free for it.
//! - An idle model stops for another one at once.
//! - A busy model goes on while more requests for it come, until a request for another model has waited for
//!   [`swap_after`](SwapConfig::swap_after), or is more urgent than all that wait for the busy model and than a request that
//!   has just found a slot free. Then the busy model finishes its requests, and stops. It serves for
//!   [`min_loaded`](SwapConfig::min_loaded) at least.
//! - A request never overtakes a more urgent one if its model would stand in the way of the other's.
//!
//! # How long requests wait
//!
//! While its model loads, a request waits until the load ends ([`start_timeout`](SwapModel::start_timeout)) or its own
//! deadline passes: [`max_wait`](crate::QueueConfig::max_wait) and a configured `target_wait` count from the end of the load.
//! While a request waits for the memory that its model needs, `max_wait` counts and the target does not. The time of a load
//! does not count as work ahead or as slow service, so it does not make requests `overloaded`.
//!
//! # Failures
//!
//! | failure | answer |
//! |---|---|
//! | the model could not be started | 503 `model_start_failed` with `Retry-After`, to all requests that wait for it or come before the next try: after 1 s, doubled each time in a row, up to 60 s. Requests with a fallback wait for that; if it has to be loaded, it serves for 60 s at least |
//! | the process ended, or was ended because it had ceased to answer, before it answered | 502 `model_crashed` (by [`Forward`](crate::upstream::Forward)); the next request starts the model again, or the model starts by itself if it is [pinned](SwapModel::pinned) |
//! | the process ended before the request was connected to it, or before it had read the request | the request waits for the next process, once. With a streamed body, or beyond [`retry_body_limit_bytes`](crate::route::RoutingConfig::retry_body_limit_bytes), 502 `model_crashed` |
//! | the process runs on, but broke off before it answered | 502 `upstream_failed`, as of any endpoint |
//! | the model was [unloaded](SwapHandle::unload) | 503 `model_unloaded` |
//!
//! # Metrics
//!
//! With the feature `metrics`, the layer publishes these through the `metrics` facade, beside those of the
//! [router](crate::route#metrics):
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `triage_model_loads_total` | `model`, `outcome` | loads that ended: `ok`, `failed`, or `cancelled` if the load was given up. Each instance counts |
//! | `triage_model_load_seconds` | `model` | histogram of the loads that succeeded |
//! | `triage_model_unloads_total` | `model` | times that a model was stopped or put to sleep. A process that ended by itself does not count |
//! | `triage_model_state` | `model`, `state` | 1 for the present [state](ModelState), 0 for all others |
//!
//! `SwapHandle::record_gauges` sets the last one. Call it before each scrape.
//!
//! # Loads that no request waits for
//!
//! A load goes on when its last request has left, so a client whose timeout is shorter than the load finds the model loaded when
//! it comes back. A request for another model that needs the memory ends such a load ([`AbandonedLoad`]). A load that is given
//! up, takes too long or fails is asked to stop like a model that runs, within 5 s; only [`Unload::Kill`] ends it at once.
//!
//! # Processes that are left behind
//!
//! A program that was killed by `SIGKILL` leaves processes behind. On Linux, the next program finds and ends them before it
//! starts a model.

mod config;
mod driver;
mod handle;
mod launcher;
mod layer;
mod metrics;
mod output;
#[cfg(unix)]
mod process;
mod scheduler;
mod status;
mod swapper;

pub use crate::endpoints::on_demand::LoadProgress;
pub use config::{
    AbandonedLoad, InvalidSwap, LoadingState, StopSignal, SwapConfig, SwapModel, SwapPolicy,
};
pub use handle::{SwapEvents, SwapHandle, UnknownModel, Unload};
pub use launcher::{BoxFuture, Cleanup, Launch, Launcher, ModelServer, StartError};
pub use layer::{InvalidSwapLayer, SwapLayer, SwapLayerBuilder};
pub use output::{ModelOutput, OutputLines, OutputReader};
#[cfg(unix)]
pub use process::ProcessLauncher;
pub use status::{ModelState, ModelStatus, SwapEvent};
pub use swapper::{Group, MatrixConfig};
