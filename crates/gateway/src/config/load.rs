//! The table `load` of a backend: where its engine reports its load.

use std::time::Duration;

use serde::Deserialize;
use tower_triage::endpoints::EngineMetrics;

use super::{health, seconds};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Load {
    #[serde(deserialize_with = "health::path")]
    metrics: Option<String>,
    #[serde(
        rename = "interval_seconds",
        deserialize_with = "seconds::some_positive"
    )]
    interval: Option<Duration>,
}

impl Load {
    pub(super) fn metrics(&self) -> EngineMetrics {
        let default = EngineMetrics::default();
        EngineMetrics::new(self.metrics.as_ref().unwrap_or(&default.path))
            .interval(self.interval.unwrap_or(default.interval))
    }
}
