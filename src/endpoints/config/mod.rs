//! The routing configuration. A value that is invalid is an error, and a value that may be a mistake is a warning.

mod aliases;
mod choices;
mod error;
mod fair_by;
#[cfg(feature = "serde")]
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use choices::StrategyChoice;
pub use error::{InvalidRouting, RoutingWarning};
pub use fair_by::FairBy;

use super::{FallbackWhen, ModelRoom, Strategy, Weights};

/// The settings of the router, with aliases, fallbacks, the strategy, retries and ejection.
///
/// With feature `serde`, it can be read from TOML. Durations are written there as seconds.
///
/// ```
/// use tower_triage::route::{RoutingConfig, StrategyChoice};
///
/// let routing = RoutingConfig::default()
///     .strategy(StrategyChoice::LeastLoaded)
///     .alias("gpt-4", "llama3:70b")
///     .fallbacks("llama3:70b", ["llama3:8b", "mistral:7b"]);
/// routing.validate()?;
/// # Ok::<(), tower_triage::route::InvalidRouting>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct RoutingConfig {
    /// The strategy that picks one of the endpoints that can serve a request now. Default `smart`.
    pub strategy: StrategyChoice,
    /// The weights of the strategy `smart`, which must sum to 100. Default: priority 50, load 30, latency 20.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::weights"))]
    pub weights: Weights,
    /// Other names for models, each with the model that it stands for. Default: empty.
    ///
    /// If endpoints serve a model of the alias's own name, that model is tried before the target. Aliases have one
    /// level, so a target that is itself an alias is not followed further.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::aliases"))]
    pub aliases: BTreeMap<String, String>,
    /// The models to try, in order, when the endpoints cannot serve the model that was asked for. Default: empty.
    ///
    /// An alias without fallbacks takes those of its target. Fallbacks have one level. Each fallback names a model
    /// rather than an alias, and the fallbacks of a fallback are not tried.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::fallbacks"))]
    pub fallbacks: BTreeMap<String, Vec<String>>,
    /// The condition on which a request goes to a fallback. With `unavailable`, which is the default, the endpoints of
    /// the model asked for must all be unable to serve it. With `busy`, it is enough that they are all busy.
    pub fallback_when: FallbackWhen,
    /// The cost of a request to its tenant's share, with the discipline `fair`. With `tokens`, which is the default, the
    /// cost grows with the tokens of the prompt and the answer. With `requests`, each request costs 1.
    pub fair_by: FairBy,
    /// The number of times that a failed request is tried again, each time at another endpoint. Default 2.
    ///
    /// If all other endpoints are used up, the client gets the failure. A request is tried again at most once after a
    /// connection that broke off. A request with a streamed body is not tried again.
    pub max_retries: u32,
    /// The number of retries that a model may have per request, in addition to 10 retries a second that are always
    /// allowed. Default 0.2.
    ///
    /// The router counts the requests of the last 10 seconds that could be tried again. The value must be from 0 to 1,
    /// and is rounded up to one divided by a whole number (1, 1/2, 1/3 and so on).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::share"))]
    pub retry_share: f64,
    /// The largest request body in bytes that is kept for a retry. Default 1 MiB.
    pub retry_body_limit_bytes: usize,
    /// The number of failures in a row that take an endpoint out of service for a while. Default 5. With 0, endpoints
    /// are not ejected.
    ///
    /// Responses that break off are counted apart, with the same limit. A request that fails at several endpoints
    /// counts against the first one only.
    pub eject_after: u32,
    /// The share of a model's endpoints that may be ejected at a time, in per cent from 0 to 100 and rounded down.
    /// Default 50.
    ///
    /// The last endpoint in service is never ejected. A model's only endpoint is ejected if a fallback can serve it and
    /// this is not 0. An endpoint with several models stays in service if one of them would lose too many endpoints.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::percent"))]
    pub max_ejected_percent: u32,
    /// The duration of the first ejection. Each further ejection in a row lasts twice as long as the one before, up to
    /// a minute, or up to this value if it is longer. Default 1 s.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "eject_seconds", deserialize_with = "read::seconds")
    )]
    pub eject_for: Duration,
    /// The partitions of the waiting room, by model. Each bounds the requests that wait for its model and sets their
    /// order.
    ///
    /// By default a model has no partition of its own, so the bound and the order of the whole room apply.
    pub rooms: BTreeMap<String, ModelRoom>,
    /// The upper bound on the size of every [`ModelRoom`], however large it is configured. Default 1,000.
    ///
    /// A model without a size of its own is bounded only by the whole waiting room.
    pub room_ceiling: usize,
}

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            strategy: StrategyChoice::Smart,
            weights: Weights::default(),
            aliases: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            fallback_when: FallbackWhen::Unavailable,
            fair_by: FairBy::Tokens,
            max_retries: 2,
            retry_share: 0.2,
            retry_body_limit_bytes: 1 << 20,
            eject_after: 5,
            max_ejected_percent: 50,
            eject_for: Duration::from_secs(1),
            rooms: BTreeMap::new(),
            room_ceiling: 1_000, // the same bound as Workers AI
        }
    }
}

impl RoutingConfig {
    /// Sets the strategy that picks one of the endpoints that can serve a request now.
    #[must_use]
    pub fn strategy(mut self, strategy: StrategyChoice) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the weights of the strategy `smart`, which must sum to 100.
    #[must_use]
    pub fn weights(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// Adds `alias` as another name for the model `target`.
    #[must_use]
    pub fn alias(mut self, alias: impl Into<String>, target: impl Into<String>) -> Self {
        self.aliases.insert(alias.into(), target.into());
        self
    }

    /// Sets the models to try, in order, when the endpoints cannot serve `model`.
    #[must_use]
    pub fn fallbacks<M: Into<String>>(
        mut self,
        model: impl Into<String>,
        chain: impl IntoIterator<Item = M>,
    ) -> Self {
        let chain = chain.into_iter().map(Into::into).collect();
        self.fallbacks.insert(model.into(), chain);
        self
    }

    /// Sets the condition on which a request goes to a fallback.
    #[must_use]
    pub fn fallback_when(mut self, when: FallbackWhen) -> Self {
        self.fallback_when = when;
        self
    }

    /// Sets the number of times that a failed request is tried again at another endpoint.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the share of a model's endpoints that may be ejected at a time, from 0 to 100 per cent.
    #[must_use]
    pub fn max_ejected_percent(mut self, percent: u32) -> Self {
        self.max_ejected_percent = percent;
        self
    }

    /// Sets the cost of a request to its tenant's share, with the discipline `fair`.
    #[must_use]
    pub fn fair_by(mut self, fair_by: FairBy) -> Self {
        self.fair_by = fair_by;
        self
    }

    /// Sets the partition of the waiting room for `model`, which bounds its waiters and sets their order.
    #[must_use]
    pub fn room(mut self, model: impl Into<String>, room: ModelRoom) -> Self {
        self.rooms.insert(model.into(), room);
        self
    }

    /// Checks the values that their types alone cannot guarantee.
    ///
    /// # Errors
    ///
    /// Returns the first invalid value, with its field and the values that are allowed.
    pub fn validate(&self) -> Result<(), InvalidRouting> {
        check_weights(self.weights)?;
        let share = self.retry_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(InvalidRouting::RetryShare { share });
        }
        let percent = self.max_ejected_percent;
        if percent > 100 {
            return Err(InvalidRouting::MaxEjectedPercent { percent });
        }
        if self.eject_for.is_zero() {
            return Err(InvalidRouting::NoEjection);
        }
        aliases::validate(&self.aliases)?;
        if let Some((model, _)) = empty_fallback(&self.fallbacks) {
            let model = model.clone();
            return Err(InvalidRouting::EmptyFallback { model });
        }
        Ok(())
    }

    /// Validates this configuration and returns it as the rules by which [`Endpoints`](crate::endpoints::Endpoints)
    /// choose.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`validate`](Self::validate).
    pub fn rules(&self) -> Result<RoutingRules, InvalidRouting> {
        self.validate()?;
        Ok(RoutingRules::unchecked(self.clone()))
    }

    /// Returns the values that are allowed and may be mistakes.
    #[must_use]
    pub fn warnings(&self) -> Vec<RoutingWarning> {
        let mut warnings = Vec::new();
        if let StrategyChoice::Unknown(name) = &self.strategy {
            warnings.push(RoutingWarning::UnknownStrategy { name: name.clone() });
        }
        warnings.extend(aliases::warnings(&self.aliases));
        warnings
    }
}

/// The rules by which [`Endpoints`](crate::endpoints::Endpoints) resolve a name to models and choose an endpoint.
///
/// [`RoutingConfig::rules`] makes them from a configuration that it has checked. The default rules are those of an
/// empty configuration, which means the strategy `smart` without aliases or fallbacks.
#[derive(Debug, Clone)]
pub struct RoutingRules {
    pub(crate) config: Arc<RoutingConfig>,
    pub(in crate::endpoints) strategy: Arc<dyn Strategy>,
}

impl RoutingRules {
    /// Makes rules from a configuration that is known to be valid.
    fn unchecked(config: RoutingConfig) -> Self {
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

/// Returns an error if `weights` do not sum to 100.
fn check_weights(weights: Weights) -> Result<(), InvalidRouting> {
    let Weights {
        priority,
        load,
        latency,
    } = weights;
    match u64::from(priority) + u64::from(load) + u64::from(latency) {
        100 => Ok(()),
        _ => Err(InvalidRouting::Weights {
            priority,
            load,
            latency,
        }),
    }
}

/// Returns the first entry with an empty name, if there is one.
fn empty_fallback(fallbacks: &BTreeMap<String, Vec<String>>) -> Option<(&String, &Vec<String>)> {
    let mut fallbacks = fallbacks.iter();
    fallbacks.find(|(model, chain)| model.is_empty() || chain.iter().any(String::is_empty))
}
