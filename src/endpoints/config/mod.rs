//! The routing configuration. A value that is invalid is an error, and a value that may be a mistake is a warning.

mod alias;
mod choices;
mod error;
#[cfg(feature = "serde")]
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use alias::Alias;
pub use choices::{StrategyChoice, UnknownStrategy};
pub use error::{InvalidRouting, RoutingWarning};

use super::{FallbackWhen, Weights};
use crate::Discipline;
use crate::setters::setters;

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
    /// Other names for models, each with the model that it stands for and changes to its requests. Default: empty. Aliases have one level. If endpoints
    /// serve a model of the alias's own name, that model is tried before the target.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::aliases"))]
    pub aliases: BTreeMap<String, Alias>,
    /// The models to try, in order, when the endpoints cannot serve the model that was asked for. Default: empty. An alias
    /// without fallbacks takes those of its target. Fallbacks have one level, and name models rather than aliases.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::fallbacks"))]
    pub fallbacks: BTreeMap<String, Vec<String>>,
    /// The condition on which a request goes to a fallback. Default `unavailable`.
    pub fallback_when: FallbackWhen,
    /// The cost of a request to its tenant's share, with the discipline `fair`. Default `tokens`.
    pub fair_by: FairBy,
    /// The number of times that a failed request is tried again, each time at another endpoint. Default 2. It is at most 1
    /// after a connection that broke off, and 0 for a request with a streamed body.
    pub max_retries: u32,
    /// The number of retries that a model may have per request of the last 10 seconds, in addition to 10 retries a second
    /// that are always allowed. It must be from 0 to 1, and is rounded up to one divided by a whole number. Default 0.2.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::share"))]
    pub retry_share: f64,
    /// The largest request body in bytes that is kept for a retry. Default 1 MiB.
    pub retry_body_limit_bytes: usize,
    /// The number of failures in a row that take an endpoint out of service for a while. Default 5. With 0, endpoints
    /// are not ejected. Twice as many failures among four times as many requests do the same, if that is at most 64 requests.
    ///
    /// Responses that break off are counted apart. A request that fails at several endpoints counts against the first one
    /// only. The failures of one tenant do not count while the endpoint serves others. Refusals of an endpoint that is full are
    /// no failures, and neither are callers that leave. If one leaves after many times the usual time, in which the endpoint
    /// answered nobody, other endpoints go first until it answers or passes a check, for up to 30 s.
    pub eject_after: u32,
    /// The share of a model's endpoints that may be ejected at a time, in per cent from 0 to 100 and rounded down.
    /// Default 50.
    ///
    /// The last endpoint in service is never ejected. A model's only endpoint is ejected if a fallback can serve it and
    /// this is not 0. An endpoint with several models stays in service if one of them would lose too many endpoints.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::percent"))]
    pub max_ejected_percent: u32,
    /// The duration of the first ejection, above 0. Each further ejection in a row lasts twice as long as the one before, up
    /// to a minute, or up to this value if it is longer. Default 1 s.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "eject_seconds", deserialize_with = "read::seconds")
    )]
    pub eject_for: Duration,
    /// The name of the endpoint for requests that name no model. Default `None`, so they are rejected with 400
    /// (`model_missing`), as they are if no endpoint has this name. In a file it is also called `default_backend`.
    ///
    /// The JSON or the form of such a request has no `model`, or its
    /// [requirements](crate::endpoints::Requirements::without_model) have none. The endpoint takes it whatever its models can
    /// do.
    #[cfg_attr(feature = "serde", serde(alias = "default_backend"))]
    pub default_endpoint: Option<String>,
    /// The partitions of the waiting room, by model. Default: empty, so the bound and the order of the whole room apply.
    pub rooms: BTreeMap<String, ModelRoom>,
    /// The upper bound on the size of every [`ModelRoom`], however large it is configured. Default 1,000.
    pub room_ceiling: usize,
}

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            strategy: StrategyChoice::default(),
            weights: Weights::default(),
            aliases: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            fallback_when: FallbackWhen::default(),
            fair_by: FairBy::default(),
            max_retries: 2,
            retry_share: 0.2,
            retry_body_limit_bytes: 1 << 20,
            eject_after: 5,
            max_ejected_percent: 50,
            eject_for: Duration::from_secs(1),
            default_endpoint: None,
            rooms: BTreeMap::new(),
            room_ceiling: 1_000, // the same bound as Workers AI
        }
    }
}

impl RoutingConfig {
    setters! {
        strategy: StrategyChoice,
        weights: Weights,
        fallback_when: FallbackWhen,
        max_retries: u32,
        retry_share: f64,
        retry_body_limit_bytes: usize,
        eject_after: u32,
        max_ejected_percent: u32,
        eject_for: Duration,
        fair_by: FairBy,
        room_ceiling: usize,
    }

    /// Adds `alias` as another name for the model `target`.
    #[must_use]
    pub fn alias(mut self, alias: impl Into<String>, target: impl Into<Alias>) -> Self {
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

    /// Sets the endpoint for requests that name no model, by its name.
    #[must_use]
    pub fn default_endpoint(mut self, name: impl Into<String>) -> Self {
        self.default_endpoint = Some(name.into());
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
        check_weights(&self.weights)?;
        check_retry_share(&self.retry_share)?;
        check_max_ejected_percent(&self.max_ejected_percent)?;
        if self.eject_for.is_zero() {
            return Err(InvalidRouting::NoEjection);
        }
        check_aliases(&self.aliases)?;
        check_fallbacks(&self.fallbacks)
    }

    /// Validates this configuration and returns it as the rules of [`Endpoints`](crate::endpoints::Endpoints).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`validate`](Self::validate).
    pub fn rules(&self) -> Result<RoutingRules, InvalidRouting> {
        self.validate()?;
        let config = Arc::new(self.clone());
        Ok(RoutingRules { config })
    }

    /// Returns the values that are allowed and may be mistakes, which are aliases whose target is an alias, too.
    #[must_use]
    pub fn warnings(&self) -> Vec<RoutingWarning> {
        let aliases = self.aliases.iter();
        let of_aliases = aliases.filter(|(_, target)| self.aliases.contains_key(&target.model));
        of_aliases
            .map(|(alias, target)| RoutingWarning::AliasOfAlias {
                alias: alias.clone(),
                target: target.model.clone(),
            })
            .collect()
    }
}

fn check_weights(weights: &Weights) -> Result<(), InvalidRouting> {
    let &Weights {
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

fn check_retry_share(&share: &f64) -> Result<(), InvalidRouting> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(()),
        false => Err(InvalidRouting::RetryShare { share }),
    }
}

fn check_max_ejected_percent(&percent: &u32) -> Result<(), InvalidRouting> {
    match percent {
        0..=100 => Ok(()),
        _ => Err(InvalidRouting::MaxEjectedPercent { percent }),
    }
}

/// Returns an error if a name is empty or if aliases lead back to themselves.
fn check_aliases(aliases: &BTreeMap<String, Alias>) -> Result<(), InvalidRouting> {
    for (alias, target) in aliases {
        let target = &target.model;
        if alias.is_empty() || target.is_empty() {
            let (alias, target) = (alias.clone(), target.clone());
            return Err(InvalidRouting::EmptyAlias { alias, target });
        }
        if let Some(chain) = cycle(aliases, alias) {
            return Err(InvalidRouting::AliasCycle { chain });
        }
    }
    Ok(())
}

/// Returns the names of the cycle that `start` belongs to, with `start` at both ends.
fn cycle(aliases: &BTreeMap<String, Alias>, start: &str) -> Option<Vec<String>> {
    let mut chain = vec![start.to_owned()];
    let mut next = &aliases.get(start)?.model;
    // If `start` only leads into a cycle of other aliases, the bound ends the loop. A later `start` inside that cycle
    // finds it.
    while chain.len() <= aliases.len() {
        chain.push(next.clone());
        if next == start {
            return Some(chain);
        }
        next = &aliases.get(next)?.model;
    }
    None
}

fn check_fallbacks(fallbacks: &BTreeMap<String, Vec<String>>) -> Result<(), InvalidRouting> {
    let mut fallbacks = fallbacks.iter();
    match fallbacks.find(|(model, chain)| model.is_empty() || chain.iter().any(String::is_empty)) {
        Some((model, _)) => Err(InvalidRouting::EmptyFallback {
            model: model.clone(),
        }),
        None => Ok(()),
    }
}

/// A configuration that [`RoutingConfig::rules`] has checked. The default is an empty configuration.
#[derive(Debug, Clone, Default)]
pub struct RoutingRules {
    pub(crate) config: Arc<RoutingConfig>,
}

/// The cost of a request to its tenant's share, with the discipline [`Fair`](crate::Discipline::Fair).
///
/// A configuration file names it `"tokens"` or `"requests"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FairBy {
    /// Charges the tokens of the prompt, as they are estimated, and twice the tokens of the answer when that ends. So two
    /// tenants that always wait get the same number of tokens, to within the work in flight (VTC; Sheng et al., OSDI 24).
    ///
    /// The answer's `usage` has the tokens, also those of the prompt beyond the estimate, wherever it stands. Without it, each event of a stream
    /// counts as a token, and so do four bytes of other text, while audio and embeddings count as 0.
    ///
    /// A request costs at least 1. For each choice of its answer, the prompt costs at most the model's `context_length`, and
    /// the choice at most the smaller of that and the request's `max_tokens`. A `usage` that reports more than this, or 0,
    /// is ignored. The router asks endpoints for `accept-encoding: identity`, so that it can read answers.
    #[default]
    Tokens,
    /// Charges 1 for each request, whatever its length.
    Requests,
}

/// The settings of the part of the waiting room that belongs to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct ModelRoom {
    /// The number of requests that may wait. Default 0.
    pub max_size: usize,
    /// The number of requests that may wait per slot of the model's endpoints. Default 0.
    ///
    /// The larger of the two bounds applies. If both are 0, only the size of the whole room counts.
    pub max_size_per_slot: usize,
    /// The order among requests of equal priority. Default `None`, which takes the order of the whole room.
    pub discipline: Option<Discipline>,
}

impl ModelRoom {
    setters! {
        max_size: usize,
        max_size_per_slot: usize,
        discipline: Discipline,
    }

    /// Returns the number of requests that may wait for `slots` slots, or `None` if only the whole room bounds them. No
    /// slots count as one, because requests wait for an endpoint without slots, too.
    pub(crate) fn max_size_for(&self, slots: usize, ceiling: usize) -> Option<usize> {
        let size = self
            .max_size
            .max(self.max_size_per_slot.saturating_mul(slots.max(1)));
        let is_limited = self.max_size > 0 || self.max_size_per_slot > 0;
        is_limited.then(|| size.min(ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_size_is_the_larger_one_under_the_ceiling() {
        for (max_size, per_slot, slots, expected) in [
            (0, 0, 8, None),
            (5, 0, 8, Some(5)),
            (0, 3, 8, Some(24)),
            (30, 3, 8, Some(30)),
            (10, 3, 8, Some(24)),
            (5_000, 0, 1, Some(1_000)),
            (0, usize::MAX, 2, Some(1_000)),
            (0, 3, 0, Some(3)),
        ] {
            let room = ModelRoom::default()
                .max_size(max_size)
                .max_size_per_slot(per_slot);
            assert_eq!(
                room.max_size_for(slots, 1_000),
                expected,
                "{room:?} {slots}"
            );
        }
    }

    fn aliases(pairs: &[(&str, &str)]) -> RoutingConfig {
        let config = RoutingConfig::default();
        let pairs = pairs.iter();
        pairs.fold(config, |config, &(alias, to)| config.alias(alias, to))
    }

    #[test]
    fn a_circle_is_refused_and_named() {
        for (pairs, chain) in [
            (&[("a", "a")][..], "a → a"),
            (&[("a", "b"), ("b", "a")], "a → b → a"),
            (&[("x", "b"), ("b", "c"), ("c", "b")], "b → c → b"),
        ] {
            let error = aliases(pairs).validate().unwrap_err().to_string();
            assert!(error.contains(chain), "{error}");
        }
    }

    #[test]
    fn an_alias_of_an_alias_is_a_warning() {
        let config = aliases(&[("a", "b"), ("b", "c"), ("d", "c")]);
        assert_eq!(config.validate(), Ok(()));
        let (alias, target) = ("a".to_owned(), "b".to_owned());
        let warning = RoutingWarning::AliasOfAlias { alias, target };
        assert_eq!(config.warnings(), [warning]);
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert!(aliases(&[("", "b")]).validate().is_err());
        assert!(aliases(&[("a", "")]).validate().is_err());
    }
}
