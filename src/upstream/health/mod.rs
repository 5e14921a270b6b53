//! Health checks of the endpoints of a router.

mod checks;
mod probe;
mod schedule;
mod threshold;

pub use checks::HealthChecks;
pub(crate) use probe::{CheckError, Prober};
pub(super) use schedule::jittered;
