//! Health checks of the endpoints of a router.

mod checks;
mod probe;
mod schedule;

pub use checks::HealthChecks;
pub(crate) use probe::{CheckError, Prober};
pub(super) use schedule::jittered;
