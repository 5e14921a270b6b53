//! Models that are started when they are asked for.

mod config;
mod launcher;
mod scheduler;
mod status;
mod swapper;

pub use config::{AbandonedLoad, InvalidSwap, StopSignal, SwapConfig, SwapModel, SwapPolicy};
pub use launcher::{BoxFuture, Instance, Launch, Launcher, StartError};
pub use status::{ModelState, ModelStatus, Progress, SwapEvent};
pub use swapper::{
    ExpressionError, Group, Groups, InvalidGroups, InvalidMatrix, InvalidMemory, Matrix,
    MatrixConfig, MemoryBudget, MemoryConfig, ModelId, Plan, Running, Swapper,
};
