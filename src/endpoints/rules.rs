//! What decides which endpoint gets a request: aliases, fallbacks, the strategy, and rooms of models.

use std::sync::Arc;

use super::config::RoutingConfig;
use super::strategy::Strategy;

/// How [`Endpoints`](super::Endpoints) chooses: which models a name leads to, and which of their endpoints.
///
/// Made by [`RoutingConfig::rules`](crate::route::RoutingConfig::rules), which checks them. The default is that of
/// an empty configuration: no aliases, no fallbacks, the strategy `smart`.
#[derive(Debug, Clone)]
pub struct RoutingRules {
    pub(crate) config: Arc<RoutingConfig>,
    pub(super) strategy: Arc<dyn Strategy>,
}

impl RoutingRules {
    /// The rules of a configuration that is valid.
    pub(super) fn unchecked(config: RoutingConfig) -> Self {
        Self {
            strategy: config.strategy.strategy(config.weights),
            config: Arc::new(config),
        }
    }
}

impl Default for RoutingRules {
    fn default() -> Self {
        Self::unchecked(RoutingConfig::default())
    }
}
