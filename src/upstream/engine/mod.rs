//! Readings of the load that the engines behind the endpoints report.

mod metrics_text;
mod readings;

pub(super) use readings::read_engines;
