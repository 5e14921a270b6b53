//! Models that are started when they are asked for.

mod board;
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
