//! Name resolution: from a name to the models to try, in order, by aliases and fallbacks. Done once per routing table.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // unique numbers: no other memory depends on them

use super::backends::ModelBackends;
use super::{RoutingRules, Via};

/// When a fallback is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FallbackWhen {
    /// When no endpoint in service can serve the model that was asked for. While those that can are busy, the request
    /// waits, or is rejected if the waiting room is full.
    #[default]
    Unavailable,
    /// Also when all endpoints that can are busy and the fallback is not. While all are busy, the request waits for
    /// whichever is free first.
    Busy,
}

/// The models to try for a name, in order.
#[derive(Debug)]
pub(super) struct Resolution {
    pub(super) targets: Box<[Target]>,
    /// The context lengths of their endpoints, each once, ascending.
    pub(super) contexts: Box<[u32]>,
}

/// A model to try.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) model: Arc<str>,
    pub(super) via: Via,
    /// Its index among the models of the table. `None` if no endpoint has it.
    pub(super) model_idx: Option<usize>,
}

/// The resolutions of all names that are models or aliases or have fallbacks.
#[derive(Debug)]
pub(super) struct Resolutions {
    /// Unique in the process.
    id: u64,
    all: Vec<Resolution>,
    by_name: HashMap<Arc<str>, usize>,
}

/// The index of a resolution, valid in one [`Resolutions`] only: it saves a second look-up of the name.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolutionIdx {
    id: u64,
    idx: usize,
}

impl Resolutions {
    pub(super) fn new(
        rules: &RoutingRules,
        models: &[ModelBackends],
        by_model: &HashMap<Arc<str>, usize>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let (names, all): (Vec<_>, Vec<_>) = resolve_all(rules, models, by_model).unzip();
        Self {
            id: IDS.fetch_add(1, Relaxed),
            all,
            by_name: names.into_iter().zip(0..).collect(),
        }
    }

    /// The shared copy of `name`, and the index of its resolution.
    pub(super) fn find(&self, name: &str) -> Option<(&Arc<str>, ResolutionIdx)> {
        let (name, &idx) = self.by_name.get_key_value(name)?;
        let id = self.id;
        Some((name, ResolutionIdx { id, idx }))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Resolution> {
        self.by_name.get(name).map(|&idx| &self.all[idx])
    }

    /// The resolution of `name`, by its index if that is of this table.
    pub(super) fn at(&self, idx: Option<ResolutionIdx>, name: &str) -> Option<&Resolution> {
        match idx {
            Some(ResolutionIdx { id, idx }) if id == self.id => self.all.get(idx),
            _ => self.get(name),
        }
    }
}

fn resolve_all<'a>(
    rules: &'a RoutingRules,
    models: &'a [ModelBackends],
    by_model: &'a HashMap<Arc<str>, usize>,
) -> impl Iterator<Item = (Arc<str>, Resolution)> + use<'a> {
    let configured = rules.aliases.keys().chain(rules.fallbacks.keys());
    let names: BTreeSet<&str> = configured
        .map(String::as_str)
        .chain(by_model.keys().map(|name| &**name))
        .collect();
    names.into_iter().map(move |name| {
        let shared = by_model
            .get_key_value(name)
            .map(|(name, _)| Arc::clone(name));
        let resolution = Resolution::new(name, rules, models, by_model);
        (shared.unwrap_or_else(|| name.into()), resolution)
    })
}

impl Resolution {
    fn new(
        name: &str,
        rules: &RoutingRules,
        models: &[ModelBackends],
        by_model: &HashMap<Arc<str>, usize>,
    ) -> Self {
        let alias = rules.aliases.get(name).map(String::as_str);
        // A name that is an alias only is no model of its own.
        let direct =
            (alias.is_none() || by_model.contains_key(name)).then_some((name, Via::Direct));
        let chain_of = |name: &str| {
            let chain = rules.fallbacks.get(name);
            chain.filter(|chain| !chain.is_empty())
        };
        // An alias without fallbacks has those of its model.
        let chain = chain_of(name).or_else(|| chain_of(alias?));
        let fallbacks = chain.into_iter().flatten();
        let all = direct
            .into_iter()
            .chain(alias.map(|model| (model, Via::Alias)))
            .chain(fallbacks.map(|model| (model.as_str(), Via::Fallback)));

        let mut targets: Vec<Target> = Vec::new();
        for (model, via) in all {
            let is_known = targets.iter().any(|target| &*target.model == model);
            if !is_known {
                let served = by_model.get_key_value(model);
                targets.push(Target {
                    model: served.map_or_else(|| model.into(), |(model, _)| Arc::clone(model)),
                    via,
                    model_idx: served.map(|(_, &idx)| idx),
                });
            }
        }
        let backends = targets
            .iter()
            .filter_map(|target| target.model_idx)
            .flat_map(|idx| &models[idx].backends);
        let mut contexts: Vec<u32> = backends.map(|backend| backend.context_length).collect();
        contexts.sort_unstable();
        contexts.dedup();
        Self {
            targets: targets.into(),
            contexts: contexts.into(),
        }
    }

    /// The model that the name is an alias of.
    pub(super) fn alias_of(&self) -> Option<&Arc<str>> {
        let mut targets = self.targets.iter();
        let alias = targets.find(|target| target.via == Via::Alias);
        alias.map(|target| &target.model)
    }

    pub(super) fn has_fallbacks(&self) -> bool {
        let mut targets = self.targets.iter();
        targets.any(|target| target.via == Via::Fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resolution of `name` where endpoints serve `models`, as `model:via` for each target.
    fn resolve(name: &str, rules: &RoutingRules, models: &[&str]) -> String {
        let by_model = (0..).zip(models).map(|(idx, &m)| (m.into(), idx)).collect();
        let models = models.iter().map(|&m| ModelBackends::new(m.into(), None));
        let models: Vec<_> = models.collect();
        let resolutions = Resolutions::new(rules, &models, &by_model);
        let targets = resolutions.get(name).unwrap().targets.iter();
        let words: Vec<_> = targets
            .map(|target| format!("{}:{}", target.model, target.via.as_str()))
            .collect();
        words.join(" ")
    }

    fn rules<const N: usize, const M: usize>(
        aliases: [(&str, &str); N],
        fallbacks: [(&str, &[&str]); M],
    ) -> RoutingRules {
        let chain = |models: &[&str]| models.iter().map(|&model| model.into()).collect();
        RoutingRules {
            aliases: aliases.map(|(alias, to)| (alias.into(), to.into())).into(),
            fallbacks: fallbacks
                .map(|(model, to)| (model.into(), chain(to)))
                .into(),
            ..RoutingRules::default()
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
