//! Models that are started when they are asked for, because not all of them fit into memory.
//!
//! A [`SwapLayer`] is a [`RouteLayer`](crate::RouteLayer) with endpoints that do not run yet. A request for one waits in
//! the waiting room, with the priorities, shares, deadlines and bounds of all others, until its model was loaded. What
//! has to stop for it is stopped first; nothing that serves a request, or is being loaded for one, is.
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
//! // …, and when the server has stopped:
//! handle.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Which models may run together
//!
//! | policy | for |
//! |---|---|
//! | [memory](SwapPolicy::Memory) | most: models that fit into one budget, or into the memory of several GPUs. What was not used for the longest time stops first |
//! | [groups](SwapPolicy::Groups) | models of which one at a time may run, beside others |
//! | [matrix](SwapPolicy::Matrix) | every combination said by name |
//!
//! Memory is one budget, or one for each GPU: a model runs in one pool, and `CUDA_VISIBLE_DEVICES` is set by where it is
//! placed. [`evict_cost`](SwapModel::evict_cost) weighs which model stops. The three policies exclude each other.
//!
//! # Settings of a model
//!
//! | a model that | has |
//! |---|---|
//! | stays loaded, and comes back after a crash | [`pinned`](SwapModel::pinned) |
//! | is loaded from the start | [`preload`](SwapModel::preload) |
//! | comes back after the rush | [`SwapConfig::default`](SwapConfig#structfield.default) |
//! | runs as several processes, which share its requests | [`instances`](SwapModel::instances) |
//! | stops after a time without a request | [`ttl`](SwapModel::ttl), `ttl_seconds` in a file |
//! | sleeps instead of stopping, where its engine can | [`sleep_path`](SwapModel::sleep_path) and [`wake_path`](SwapModel::wake_path) |
//!
//! Endpoints that are always there stand beside these models with [`SwapLayerBuilder::route`], in the same waiting room and
//! with the same aliases and fallbacks. A stream that asks for it (`x-queue-status: sse`) is told
//! `state=loading progress=0.42` while its model loads.
//!
//! # When
//!
//! Requests for one model join. No request starves, and models do not thrash:
//!
//! - A model with nothing in its way is started at once, beside other loads.
//! - What is idle is stopped for another model once it was loaded for [`min_loaded`](SwapConfig::min_loaded).
//! - What serves requests goes on while more of them come, until a request for another model has waited for
//!   [`swap_after`](SwapConfig::swap_after), or is more urgent: than all that wait for it, or than one that has just found
//!   a slot free. Then it takes no more, finishes, and stops.
//! - No request is passed by one of lower priority for a model that would be in the way of its own.
//!
//! While its model loads, a request waits for as long as that takes ([`start_timeout`](SwapModel::start_timeout)), or until
//! its own deadline: [`max_wait`](crate::QueueConfig::max_wait) and a configured `target_wait` count from the end of the
//! load. While a request waits for the memory that its model needs, `max_wait` counts, and the target does not. How long the
//! load takes counts neither as work ahead nor as slow service, so no request is refused as `overloaded` for it.
//!
//! # When it goes wrong
//!
//! | what happened | answer |
//! |---|---|
//! | the model could not be started | 503 `model_start_failed` with `Retry-After`, to all that wait for it, and until it is tried again: after 1 s, doubled each time in a row, up to 60 s. Those with a fallback wait for that; if it has to be loaded, it serves for 60 s at least |
//! | its process ended, or was ended because it answers no more, before it answered | 502 `model_crashed` (by [`Forward`](crate::upstream::Forward)); it is started again when it is asked for, or by itself if it is [pinned](SwapModel::pinned) |
//! | its process ended before it was connected to | the request waits for the next process, once. With a body that is streamed, or beyond [`retry_body_limit_bytes`](crate::route::RoutingConfig::retry_body_limit_bytes), 502 `model_crashed` |
//! | its process runs on, but broke off before it answered | 502 `upstream_failed`, as of any endpoint |
//! | it was [unloaded](SwapHandle::unload) | 503 `model_unloaded` |
//!
//! If the program is killed by `SIGKILL`, the next one finds the processes that are left, and ends them before it starts a
//! model (on Linux).

mod board;
mod cleanup;
mod config;
mod driver;
mod handle;
mod launcher;
mod layer;
#[cfg(unix)]
mod process;
mod scheduler;
mod status;
mod swapper;

pub use crate::endpoints::on_demand::Progress;
pub use cleanup::Cleanup;
pub use config::{AbandonedLoad, InvalidSwap, StopSignal, SwapConfig, SwapModel, SwapPolicy};
pub use handle::{SwapEvents, SwapHandle, UnknownModel, Unload};
pub use launcher::{BoxFuture, Instance, Launch, Launcher, StartError};
pub use layer::{InvalidSwapLayer, SwapLayer, SwapLayerBuilder};
#[cfg(unix)]
pub use process::ProcessLauncher;
pub use status::{ModelState, ModelStatus, SwapEvent};
pub use swapper::{
    ExpressionError, Group, Groups, InvalidGroups, InvalidMatrix, InvalidMemory, Matrix,
    MatrixConfig, MemoryBudget, MemoryConfig, ModelId, Plan, Running, Swapper,
};
