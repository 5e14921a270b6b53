//! Models that are started when they are asked for.

mod config;
mod launcher;
#[cfg(unix)]
mod process;
mod scheduler;
mod status;
mod swapper;

pub use config::{AbandonedLoad, StopSignal, SwapConfig, SwapModel, SwapPolicy};
pub use launcher::{BoxFuture, Instance, Launch, Launcher, StartError};
#[cfg(unix)]
pub use process::ProcessLauncher;
pub use status::{ModelState, ModelStatus, Progress, SwapEvent};
pub use swapper::{
    Group, Groups, InvalidGroups, InvalidMatrix, InvalidMemory, Matrix, MatrixConfig, MemoryBudget,
    MemoryConfig, ModelId, Plan, Running, Swapper,
};
