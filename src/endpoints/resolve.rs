//! Resolving aliases and fallbacks for every request anew would follow the same two tables to the same end.
//!
//! A [`Way`] is what they come to for one name: which models to try, in order.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // each gets another number, nothing else depends on them

use super::RoutingRules;
use super::Via;
use super::backends::Served;

/// When a fallback is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FallbackWhen {
    /// When nobody can serve the model that was asked for; while those who can are busy, one waits, or is
    /// turned away if there is no chair.
    #[default]
    Unavailable,
    /// Also when all who can are busy and the fallback is not. While all are busy, one waits for whichever
    /// is free first.
    Busy,
}

/// The models to try for a name, in order.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) steps: Box<[Step]>,
    /// The context lengths to be had on it, each once, ascending.
    pub(super) contexts: Box<[u32]>,
}

/// A model to try.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) model: Arc<str>,
    pub(super) via: Via,
    /// Which of the served models it is, if it is one.
    pub(super) served: Option<usize>,
}

/// The ways of all names that are served, aliases, or have fallbacks.
#[derive(Debug)]
pub(super) struct Ways {
    /// Which ones these are: no others have this number.
    id: u64,
    all: Vec<Way>,
    by_name: HashMap<Arc<str>, usize>,
}

/// Where a way was found, so that it need not be looked for again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    among: u64,
    at: usize,
}

impl Ways {
    pub(super) fn new(
        rules: &RoutingRules,
        served: &[Served],
        index: &HashMap<Arc<str>, usize>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let (names, all): (Vec<_>, Vec<_>) = ways(rules, served, index).unzip();
        Self {
            id: IDS.fetch_add(1, Relaxed),
            all,
            by_name: names.into_iter().zip(0..).collect(),
        }
    }

    /// The name as it is shared, and where its way is.
    pub(super) fn find(&self, name: &str) -> Option<(&Arc<str>, Found)> {
        let (name, &at) = self.by_name.get_key_value(name)?;
        let among = self.id;
        Some((name, Found { among, at }))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Way> {
        self.by_name.get(name).map(|&at| &self.all[at])
    }

    /// The way of `name`, which may have been found before.
    pub(super) fn at(&self, found: Option<Found>, name: &str) -> Option<&Way> {
        match found {
            Some(Found { among, at }) if among == self.id => self.all.get(at),
            _ => self.get(name),
        }
    }
}

fn ways<'a>(
    rules: &'a RoutingRules,
    served: &'a [Served],
    index: &'a HashMap<Arc<str>, usize>,
) -> impl Iterator<Item = (Arc<str>, Way)> + use<'a> {
    let configured = rules.aliases.keys().chain(rules.fallbacks.keys());
    let names: BTreeSet<&str> = configured
        .map(String::as_str)
        .chain(index.keys().map(|name| &**name))
        .collect();
    names.into_iter().map(move |name| {
        let shared = index.get_key_value(name).map(|(name, _)| Arc::clone(name));
        (
            shared.unwrap_or_else(|| name.into()),
            Way::new(name, rules, served, index),
        )
    })
}

impl Way {
    fn new(
        name: &str,
        rules: &RoutingRules,
        served: &[Served],
        index: &HashMap<Arc<str>, usize>,
    ) -> Self {
        let alias = rules.aliases.get(name).map(String::as_str);
        let direct = (alias.is_none() || index.contains_key(name)).then_some((name, Via::Direct));
        let chain_of = |name: &str| rules.fallbacks.get(name).filter(|chain| !chain.is_empty());
        let chain = chain_of(name).or_else(|| chain_of(alias?));
        let fallbacks = chain
            .into_iter()
            .flatten()
            .map(|model| (model.as_str(), Via::Fallback));
        let all = direct
            .into_iter()
            .chain(alias.map(|target| (target, Via::Alias)))
            .chain(fallbacks);

        let mut steps: Vec<Step> = Vec::new();
        for (model, via) in all {
            if steps.iter().all(|step| &*step.model != model) {
                let known = index.get_key_value(model);
                steps.push(Step {
                    model: known.map_or_else(|| model.into(), |(model, _)| Arc::clone(model)),
                    via,
                    served: known.map(|(_, &served)| served),
                });
            }
        }
        let mut contexts: Vec<u32> = steps
            .iter()
            .filter_map(|step| step.served)
            .flat_map(|at| {
                served[at]
                    .servers
                    .iter()
                    .map(|server| server.context_length)
            })
            .collect();
        contexts.sort_unstable();
        contexts.dedup();
        Self {
            steps: steps.into(),
            contexts: contexts.into(),
        }
    }

    /// What the name is an alias of.
    pub(super) fn alias_of(&self) -> Option<&Arc<str>> {
        let alias = self.steps.iter().find(|step| step.via == Via::Alias);
        alias.map(|step| &step.model)
    }

    pub(super) fn has_fallbacks(&self) -> bool {
        self.steps.iter().any(|step| step.via == Via::Fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of `name` where `models` are served, as `model:via` for each step.
    fn way(name: &str, rules: &RoutingRules, models: &[&str]) -> String {
        let served: Vec<Served> = models
            .iter()
            .map(|&m| Served::new(m.into(), None))
            .collect();
        let index = (0..).zip(models).map(|(at, &m)| (m.into(), at)).collect();
        let ways = Ways::new(rules, &served, &index);
        let steps = ways.get(name).unwrap().steps.iter();
        let words: Vec<_> = steps
            .map(|step| format!("{}:{}", step.model, step.via.as_str()))
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
    fn a_name_leads_to_itself_then_its_alias_then_its_fallbacks() {
        let rules = rules(
            [("gpt", "big"), ("opus", "big"), ("m", "big")],
            [
                ("big", &["small", "tiny"]),
                ("small", &["tiny"]),
                ("opus", &["huge", "big", "tiny"]),
                ("none", &[]),
            ],
        );
        for (name, steps) in [
            ("big", "big:direct small:fallback tiny:fallback"),
            ("small", "small:direct tiny:fallback"),
            ("gpt", "big:alias small:fallback tiny:fallback"),
            ("opus", "big:alias huge:fallback tiny:fallback"),
            ("m", "m:direct big:alias small:fallback tiny:fallback"),
            ("none", "none:direct"),
        ] {
            assert_eq!(way(name, &rules, &["m", "big", "small"]), steps, "{name}");
        }
    }

    #[test]
    fn an_alias_is_followed_once() {
        let rules = rules([("a", "b"), ("b", "c")], []);
        assert_eq!(way("a", &rules, &["c"]), "b:alias");
        assert_eq!(way("b", &rules, &["c"]), "c:alias");
    }
}
