//! The routing configuration. A value that makes no sense is an error; one that may be a mistake is a warning.

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

/// How requests are routed: which model serves a name, which endpoint a request, and what happens when one fails.
///
/// With feature `serde` it reads from TOML, its durations as seconds.
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
    /// Which of the endpoints that can serve a request now is given it. Default `smart`.
    pub strategy: StrategyChoice,
    /// What `smart` weighs. Must sum to 100. Default: priority 50, load 30, latency 20.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::weights"))]
    pub weights: Weights,
    /// Other names for models. A name that endpoints serve is tried before what it is an alias of. One level: a target
    /// that is itself an alias is not followed further.
    /// Default: none.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::aliases"))]
    pub aliases: BTreeMap<String, String>,
    /// Which models to try, in order, when no endpoint can serve the one that was asked for. An alias without fallbacks
    /// has those of its target. One level: a fallback is a model and no alias, and its own fallbacks are not tried.
    /// Default: none.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::fallbacks"))]
    pub fallbacks: BTreeMap<String, Vec<String>>,
    /// Whether a fallback is taken only when no endpoint can serve the model asked for, or also when all that can are
    /// busy. Default: `unavailable`.
    pub fallback_when: FallbackWhen,
    /// What a request uses of its tenant's share, with the discipline `fair`: the tokens of its prompt and its answer, or
    /// one. Default: `tokens`.
    pub fair_by: FairBy,
    /// How often a request that failed at an endpoint is tried again, each time at another one; if there is none, the
    /// failure is the response. After a connection that broke off it is tried once more at most; a request with a
    /// streamed body never is. Default 2.
    pub max_retries: u32,
    /// The number of retries of a model per request that it was given in the last 10 seconds and that could be tried
    /// again, beside 10 a second that are always allowed: 0 to 1, rounded up to one in a whole number (1, 1/2, 1/3 and so on). Default 0.2.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::share"))]
    pub retry_share: f64,
    /// How many bytes a request's body may have to be kept for a retry. Default 1 MiB.
    pub retry_body_limit_bytes: usize,
    /// How many failures in a row, or answers in a row that break off, take an endpoint out of service for a
    /// while; 0: never. A request that fails at several endpoints counts against the first. Default 5.
    pub eject_after: u32,
    /// How many of a model's endpoints may be out of service at a time because they failed, as a share of them
    /// rounded down: 0 to 100. The last one that is in service is never taken out, whatever this says; a model's
    /// only one is where a fallback could serve instead, unless this is 0. An endpoint of several models stays
    /// if one of them would lose too many. Default 50.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::percent"))]
    pub max_ejected_percent: u32,
    /// How long the first ejection lasts; each further one in a row lasts twice as long as the one before,
    /// up to a minute, or this if it is longer. Default 1 s.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "eject_seconds", deserialize_with = "read::seconds")
    )]
    pub eject_for: Duration,
    /// How many requests for one model may wait, and in which order. Default: as many as the waiting room takes, in its
    /// order.
    pub rooms: BTreeMap<String, ModelRoom>,
    /// The highest size that a [`ModelRoom`] may come to, whatever it says. A model without a size of its own is bounded
    /// by the whole waiting room alone. Default 1,000.
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
            room_ceiling: 1_000, // Workers AI's clamp
        }
    }
}

impl RoutingConfig {
    /// Which of the endpoints that can serve a request now is given it.
    #[must_use]
    pub fn strategy(mut self, strategy: StrategyChoice) -> Self {
        self.strategy = strategy;
        self
    }

    /// What `smart` weighs.
    #[must_use]
    pub fn weights(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// One more name for the model `target`.
    #[must_use]
    pub fn alias(mut self, alias: impl Into<String>, target: impl Into<String>) -> Self {
        self.aliases.insert(alias.into(), target.into());
        self
    }

    /// The models to try when no endpoint can serve `model`.
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

    /// When a fallback is taken.
    #[must_use]
    pub fn fallback_when(mut self, when: FallbackWhen) -> Self {
        self.fallback_when = when;
        self
    }

    /// How often a request that failed at an endpoint is tried again at another one.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// How many of a model's endpoints may be out of service at a time because they failed: 0 to 100 per cent.
    #[must_use]
    pub fn max_ejected_percent(mut self, percent: u32) -> Self {
        self.max_ejected_percent = percent;
        self
    }

    /// What a request uses of its tenant's share, with the discipline `fair`.
    #[must_use]
    pub fn fair_by(mut self, fair_by: FairBy) -> Self {
        self.fair_by = fair_by;
        self
    }

    /// How many requests for `model` may wait, and in which order.
    #[must_use]
    pub fn room(mut self, model: impl Into<String>, room: ModelRoom) -> Self {
        self.rooms.insert(model.into(), room);
        self
    }

    /// Checks what no type can.
    ///
    /// # Errors
    ///
    /// The first invalid value: its field, and what is allowed.
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

    /// What [`Endpoints`](crate::endpoints::Endpoints) choose by: this configuration, checked.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn rules(&self) -> Result<RoutingRules, InvalidRouting> {
        self.validate()?;
        Ok(RoutingRules::unchecked(self.clone()))
    }

    /// Values that are allowed and may be mistakes.
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

/// How [`Endpoints`](crate::endpoints::Endpoints) chooses: which models a name leads to, and which of their endpoints.
///
/// Made by [`RoutingConfig::rules`], which checks them. The default is that of
/// an empty configuration: no aliases, no fallbacks, the strategy `smart`.
#[derive(Debug, Clone)]
pub struct RoutingRules {
    pub(crate) config: Arc<RoutingConfig>,
    pub(in crate::endpoints) strategy: Arc<dyn Strategy>,
}

impl RoutingRules {
    /// The rules of a configuration that is valid.
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

/// Whether `weights` are shares of 100.
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

/// The first fallbacks with an empty name.
fn empty_fallback(fallbacks: &BTreeMap<String, Vec<String>>) -> Option<(&String, &Vec<String>)> {
    let mut fallbacks = fallbacks.iter();
    fallbacks.find(|(model, chain)| model.is_empty() || chain.iter().any(String::is_empty))
}
