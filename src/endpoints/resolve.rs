//! Name resolution, which turns a name into the models to try by aliases and fallbacks. It runs once per routing table.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::backends::ModelBackends;
use super::config::RoutingConfig;
use super::lane::Capabilities;
use super::{Lane, RouteError, Via};

/// The condition on which a request goes to a fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FallbackWhen {
    /// Takes a fallback if all endpoints that can serve the model asked for are out of service. While they are busy, the
    /// request waits.
    #[default]
    Unavailable,
    /// Takes a fallback with a free slot also while these endpoints are busy. If the fallbacks are busy, too, the request
    /// waits for the first slot of any of them.
    Busy,
}

/// The models to try for a name, in order.
#[derive(Debug)]
pub(super) struct Resolution {
    pub(super) name: Arc<str>,
    pub(super) targets: Box<[Target]>,
    /// The context lengths of the models' endpoints in ascending order, each once.
    pub(super) contexts: Box<[u32]>,
    /// The capabilities that fields ask for which the alias removes from bodies.
    pub(super) stripped: Capabilities,
}

/// A model to try, with the rule that led to it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) model: Arc<str>,
    pub(super) via: Via,
    /// The endpoints that serve the model, or `None` if it has none.
    pub(super) served: Option<Arc<ModelBackends>>,
}

/// The number of tokens that are estimated for a prompt of one token at most. A prompt is refused for its length only if
/// it must be too long for every context.
const MARGIN: u32 = 2;

/// Resolves all names that are models or aliases or have fallbacks.
pub(super) fn resolve_all(
    config: &RoutingConfig,
    models: &HashMap<&str, Arc<ModelBackends>>,
) -> Vec<Resolution> {
    let configured = config.aliases.keys().chain(config.fallbacks.keys());
    let names = configured.map(String::as_str).chain(models.keys().copied());
    let names: BTreeSet<&str> = names.collect();
    let names = names.into_iter();
    names
        .map(|name| Resolution::new(name, config, models))
        .collect()
}

/// Returns the context lengths of the targets' endpoints in ascending order, each once.
fn contexts(targets: &[Target]) -> Box<[u32]> {
    let served = targets.iter().filter_map(|target| target.served.as_ref());
    let backends = served.flat_map(|served| &served.backends);
    let contexts: BTreeSet<u32> = backends.map(|backend| backend.context_length).collect();
    contexts.into_iter().collect()
}

impl Resolution {
    /// Resolves one name, and leaves out models that come up a second time.
    fn new(name: &str, config: &RoutingConfig, models: &HashMap<&str, Arc<ModelBackends>>) -> Self {
        let shared = |name: &str| {
            let served = models.get(name);
            served.map_or_else(|| name.into(), |served| Arc::clone(&served.model))
        };
        let edits = config.aliases.get(name);
        let alias = edits.map(|alias| &*alias.model);
        // A name that is only an alias is not a model of its own.
        let direct = (alias.is_none() || models.contains_key(name)).then_some((name, Via::Direct));
        let chain_of = |name: &str| {
            let chain = config.fallbacks.get(name);
            chain.filter(|chain| !chain.is_empty())
        };
        // An alias without fallbacks takes those of its target.
        let chain = chain_of(name).or_else(|| chain_of(alias?));
        let fallbacks = chain.into_iter().flatten();
        let all = direct
            .into_iter()
            .chain(alias.map(|model| (model, Via::Alias)))
            .chain(fallbacks.map(|model| (model.as_str(), Via::Fallback)));

        let mut targets: Vec<Target> = Vec::new();
        for (model, via) in all {
            if !targets.iter().any(|target| &*target.model == model) {
                targets.push(Target {
                    model: shared(model),
                    via,
                    served: models.get(model).cloned(),
                });
            }
        }
        // An alias changes no request for a model of its own name.
        let edits = edits.filter(|_| direct.is_none());
        let stripped = edits.map(|alias| Capabilities::of_fields(&alias.strip_params));
        Self {
            name: shared(name),
            stripped: stripped.unwrap_or(Capabilities::empty()),
            contexts: contexts(&targets),
            targets: targets.into(),
        }
    }

    /// Returns the models to try for `lane`, in order.
    #[inline]
    pub(super) fn targets(&self, lane: &Lane) -> impl Iterator<Item = &Target> {
        let without_fallbacks = lane.without_fallbacks;
        let targets = self.targets.iter();
        targets.filter(move |target| !(without_fallbacks && target.via == Via::Fallback))
    }

    /// Returns the endpoints of each model to try for `lane`, and skips models without any.
    pub(super) fn served(&self, lane: &Lane) -> impl Iterator<Item = &ModelBackends> {
        let targets = self.targets(lane);
        targets.filter_map(|target| target.served.as_deref())
    }

    /// Returns the context that the prompt of `lane` needs, which is its estimated number of tokens. If all contexts are
    /// shorter than that, it is the longest one, as long as the estimate is within the margin or the prompt may have
    /// `any_length`.
    pub(super) fn context_for(&self, lane: &Lane, any_length: bool) -> u32 {
        let estimated = lane.context_length;
        if self
            .contexts
            .first()
            .is_none_or(|&shortest| estimated <= shortest)
        {
            return estimated; // nearly all prompts fit anywhere
        }
        let backends = self.served(lane).flat_map(|served| &served.backends);
        let able = backends.filter(|backend| backend.has(lane.needs));
        let longest = able.map(|backend| backend.context_length).max();
        match longest {
            Some(longest) if any_length || estimated <= longest.saturating_mul(MARGIN) => {
                estimated.min(longest)
            }
            _ => estimated,
        }
    }

    /// Returns the model that the name is an alias of, if it is an alias.
    pub(super) fn alias_of(&self) -> Option<&Arc<str>> {
        let mut targets = self.targets.iter();
        let alias = targets.find(|target| target.via == Via::Alias);
        alias.map(|target| &target.model)
    }

    /// Returns the error that all models of the fallback chain failed, or `None` if `lane` has no fallbacks.
    pub(super) fn exhausted(&self, lane: &Lane) -> Option<RouteError> {
        let mut targets = self.targets(lane);
        let has_fallbacks = targets.any(|target| target.via == Via::Fallback);
        has_fallbacks.then(|| RouteError::FallbackChainExhausted {
            tried: { self.targets.iter() }
                .map(|target| target.model.clone())
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves `name` while endpoints serve `models`, and writes each target as `model:via`.
    fn resolve(name: &str, config: &RoutingConfig, models: &[&str]) -> String {
        let served = |&model| {
            (
                model,
                Arc::new(ModelBackends::new(model, 0, None, Arc::default())),
            )
        };
        let all = resolve_all(config, &models.iter().map(served).collect());
        let resolution = all.iter().find(|resolution| &*resolution.name == name);
        let words: Vec<_> = { resolution.unwrap().targets.iter() }
            .map(|target| format!("{}:{}", target.model, target.via.as_str()))
            .collect();
        words.join(" ")
    }

    fn rules<const N: usize, const M: usize>(
        aliases: [(&str, &str); N],
        fallbacks: [(&str, &[&str]); M],
    ) -> RoutingConfig {
        let chain = |models: &[&str]| models.iter().map(|&model| model.into()).collect();
        RoutingConfig {
            aliases: aliases.map(|(alias, to)| (alias.into(), to.into())).into(),
            fallbacks: fallbacks
                .map(|(model, to)| (model.into(), chain(to)))
                .into(),
            ..RoutingConfig::default()
        }
    }

    #[test]
    fn a_name_resolves_to_itself_then_alias_then_fallbacks() {
        let rules = rules(
            [("gpt", "big"), ("opus", "big"), ("m", "big")],
            [
                ("big", &["small", "tiny"]),
                ("small", &["tiny"]),
                ("opus", &["huge", "big", "tiny"]),
                ("none", &[]),
            ],
        );
        for (name, targets) in [
            ("big", "big:direct small:fallback tiny:fallback"),
            ("small", "small:direct tiny:fallback"),
            ("gpt", "big:alias small:fallback tiny:fallback"),
            ("opus", "big:alias huge:fallback tiny:fallback"),
            ("m", "m:direct big:alias small:fallback tiny:fallback"),
            ("none", "none:direct"),
        ] {
            assert_eq!(
                resolve(name, &rules, &["m", "big", "small"]),
                targets,
                "{name}"
            );
        }
    }

    #[test]
    fn an_alias_is_followed_once() {
        let rules = rules([("a", "b"), ("b", "c")], []);
        assert_eq!(resolve("a", &rules, &["c"]), "b:alias");
        assert_eq!(resolve("b", &rules, &["c"]), "c:alias");
    }
}
