//! What decides which endpoint gets a request: aliases, fallbacks, the strategy, and rooms of models.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::strategy::{Smart, Strategy, Weights};
use super::{FallbackWhen, ModelRoom};

/// How [`Endpoints`](super::Endpoints) chooses: which models a name leads to, and which of their endpoints.
///
/// Made by [`RoutingConfig::rules`](crate::route::RoutingConfig::rules), which checks them. The default is that of
/// an empty configuration: no aliases, no fallbacks, the strategy `smart`.
#[derive(Debug, Clone)]
pub struct RoutingRules {
    pub(crate) strategy: Arc<dyn Strategy>,
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) fallbacks: BTreeMap<String, Vec<String>>,
    pub(crate) fallback_when: FallbackWhen,
    /// In percent of a model's endpoints.
    pub(crate) max_ejected_percent: u32,
    pub(crate) rooms: BTreeMap<String, ModelRoom>,
    /// No room of a model is larger.
    pub(crate) room_ceiling: usize,
}

/// How many of a model's endpoints may be ejected at a time, in percent.
pub(crate) const MAX_EJECTED_PERCENT: u32 = 50;

/// How many requests for one model may wait.
pub(crate) const ROOM_CEILING: usize = 1_000; // Workers AI's clamp

impl Default for RoutingRules {
    fn default() -> Self {
        Self {
            strategy: Arc::new(Smart::new(Weights::default())),
            aliases: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            fallback_when: FallbackWhen::default(),
            max_ejected_percent: MAX_EJECTED_PERCENT,
            rooms: BTreeMap::new(),
            room_ceiling: ROOM_CEILING,
        }
    }
}
