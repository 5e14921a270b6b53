//! Swappers: policies that tell which running instances have to stop so that another one can run.

mod groups;
mod matrix;
mod memory;

use std::fmt;

pub use groups::Group;
pub(crate) use groups::Groups;
pub(crate) use matrix::Matrix;
pub use matrix::MatrixConfig;
pub(crate) use memory::{MemoryBudget, MemoryNeed};

/// The number of an instance of a model, which is a process that may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InstanceId(pub(crate) u32);

/// An instance that runs, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningInstance {
    pub(crate) id: InstanceId,
    /// The number of its memory pool; 0 if there is one pool, or none.
    pub(crate) pool: u32,
    /// The memory that it takes, from the [`Plan`] that started it.
    pub(crate) memory: u64,
    /// The time of its last use, in any unit.
    pub(crate) last_used: u64,
    /// `true` if it serves a request or is being loaded, so that its stop has to wait.
    pub(crate) is_busy: bool,
    /// `true` if it is being stopped, so that its stop is free.
    pub(crate) is_stopping: bool,
    /// `true` if it is never stopped. The target of a plan that stops it can't run.
    pub(crate) is_pinned: bool,
}

impl RunningInstance {
    /// Returns an instance that is idle, was never used, and takes no memory.
    pub(crate) fn new(id: InstanceId) -> Self {
        Self {
            id,
            pool: 0,
            memory: 0,
            last_used: 0,
            is_busy: false,
            is_stopping: false,
            is_pinned: false,
        }
    }
}

/// The plan of a start: the stops before it, and its place in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    /// The instances that have to stop, in the order of `running`.
    pub(crate) evict: Vec<InstanceId>,
    /// The number of the memory pool in which the target will run.
    pub(crate) pool: u32,
    /// The memory that the target will take, in a unit of the swapper's own.
    pub(crate) memory: u64,
}

/// A policy that tells which running instances have to stop so that another one can run.
///
/// It decides by its arguments alone, knows no requests and starts nothing.
pub(crate) trait Swapper: fmt::Debug + Send + Sync {
    /// Returns the plan by which `target`, which does not run, can run beside the rest of `running`. The scheduler asks far more often than it swaps, so this must be quick and log nothing.
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan;

    /// Returns the instances that have to stop because all together exceed the memory, as after a change of the
    /// configuration. By default, there are none.
    fn excess(&self, running: &[RunningInstance]) -> Vec<InstanceId> {
        _ = running;
        Vec::new()
    }

    /// Returns the class of an instance. Instances of one class have the same plan while they are stopped, so the scheduler
    /// asks for it once. By default, each has a class of its own.
    fn plan_class(&self, target: InstanceId) -> u32 {
        target.0
    }

    /// Returns `true` (default) if a plan depends on when instances were used, and on whether they are busy. If not, the
    /// scheduler asks for it once for each set of running instances.
    fn regards_use(&self) -> bool {
        true
    }
}

/// Returns the number of the model with this name.
fn model_named(models: &[String], name: &str) -> Option<InstanceId> {
    let nth = models.iter().position(|model| model == name)?;
    Some(InstanceId(nth as u32))
}
