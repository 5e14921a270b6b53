//! Readings of what the engines behind the endpoints say of their load.

mod metrics_text;
mod readings;

pub(super) use readings::read_engines;
