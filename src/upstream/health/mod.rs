//! Health checks: each endpoint that has a `HealthCheck` is asked again and again whether it works.

mod checks;
mod probe;
mod schedule;
mod threshold;

pub use checks::HealthChecks;
