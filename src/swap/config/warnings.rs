//! Settings of models that are allowed, and are probably mistakes.

use std::collections::HashMap;

use super::{SwapConfig, SwapModel};
use crate::swap::swapper::{InstanceId, RunningInstance, Swapper};

impl SwapConfig {
    /// Returns the settings that are allowed and probably mistakes, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.models.iter().filter_map(without_port).collect();
        warnings.extend(self.shared_proxies());
        if let Ok(swapper) = self.swapper() {
            warnings.extend(self.too_large_starts(&*swapper));
        }
        warnings
    }

    /// Returns a warning for each model with the `proxy` of an earlier one.
    fn shared_proxies(&self) -> Vec<String> {
        let mut known = HashMap::new();
        let mut warnings = Vec::new();
        for model in &self.models {
            let Some(proxy) = &model.proxy else { continue };
            let name = &model.model.name;
            let at = (proxy.authority(), proxy.path().trim_end_matches('/'));
            if let Some(other) = known.insert(at, name) {
                warnings.push(format!(
                    "the models `{other}` and `{name}` have the same `proxy`, {proxy}: while one of them listens there, the \
                     other one can't be loaded"
                ));
            }
        }
        warnings
    }

    /// Returns a warning for each model that the pinned ones leave no room, and for those of the start that do not fit
    /// together.
    fn too_large_starts(&self, swapper: &dyn Swapper) -> Vec<String> {
        let firsts = self.models.iter().scan(0, |next, model| {
            let first = InstanceId(*next);
            *next += model.instances;
            Some((model, first))
        });
        let firsts: Vec<(&SwapModel, InstanceId)> = firsts.collect();
        let mut running: Vec<RunningInstance> = Vec::new();
        for (model, first) in firsts.iter().filter(|(model, _)| model.pinned) {
            for id in (first.0..first.0 + model.instances).map(InstanceId) {
                running.push(planned(id, swapper, &running).0);
            }
        }
        let mut warnings = Vec::new();
        let mut beside = running.clone();
        for (model, first) in firsts.iter().filter(|(model, _)| !model.pinned) {
            let name = &model.model.name;
            if !planned(*first, swapper, &running).1.is_empty() {
                warnings.push(format!(
                    "the model `{name}` can never be loaded: the models that are `pinned` leave no room for it"
                ));
                continue;
            }
            if !model.preload {
                continue;
            }
            let (started, evicted) = planned(*first, swapper, &beside);
            match evicted.is_empty() {
                true => beside.push(started),
                false => warnings.push(format!(
                    "the model `{name}` is `preload`, and does not fit beside those that are loaded with it at the start: \
                     one of them is stopped for it"
                )),
            }
        }
        warnings
    }
}

/// Returns an instance as it would run, and the instances that would have to stop for it.
fn planned(
    id: InstanceId,
    swapper: &dyn Swapper,
    running: &[RunningInstance],
) -> (RunningInstance, Vec<InstanceId>) {
    let plan = swapper.plan(id, running);
    let started = RunningInstance {
        pool: plan.pool,
        memory: plan.memory,
        ..RunningInstance::new(id)
    };
    (started, plan.evict)
}

/// Returns a warning about a model whose process is not told where to listen.
fn without_port(model: &SwapModel) -> Option<String> {
    let texts = std::iter::once(&model.cmd).chain(model.env.values());
    let is_told = texts.into_iter().any(|text| text.contains("${PORT}"));
    (!is_told && model.proxy.is_none()).then(|| {
        format!(
            "the model `{}` has no `${{PORT}}` in its `cmd` and no `proxy`: its requests go to a port on which its process does \
             not listen",
            model.model.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> SwapModel {
        SwapModel::new(name, "serve --port ${PORT}").memory(1.0)
    }

    fn warnings(memory: f64, models: impl IntoIterator<Item = SwapModel>) -> Vec<String> {
        let config = SwapConfig::memory(memory);
        let config = models.into_iter().fold(config, SwapConfig::model);
        config.validate().unwrap();
        config.warnings()
    }

    /// Asserts that there is one warning, with these words.
    fn warns(warnings: &[String], words: &[&str]) {
        let [warning] = warnings else {
            panic!("{warnings:?}");
        };
        assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
    }

    #[test]
    fn a_command_is_told_its_port() {
        let mut fixed = model("a");
        fixed.cmd = "serve --port 8080".into();
        warns(&warnings(1.0, [fixed.clone()]), &["`a`", "`${PORT}`"]);
        let mut proxied = fixed.clone();
        proxied.proxy = Some(http::Uri::from_static("http://127.0.0.1:8080"));
        fixed.env.insert("PORT".into(), "${PORT}".into());
        assert!(warnings(1.0, [fixed]).is_empty());
        assert!(warnings(1.0, [proxied]).is_empty());
    }

    #[test]
    fn two_models_have_different_proxies() {
        let at = |name, url| {
            let mut model = model(name);
            model.proxy = Some(http::Uri::from_static(url));
            model
        };
        let first = at("a", "http://127.0.0.1:8080");
        let same = at("b", "http://127.0.0.1:8080/");
        warns(&warnings(2.0, [first.clone(), same]), &["`a`", "`b`"]);
        let others = [at("b", "http://127.0.0.1:8080/b"), at("c", "http://h:8080")];
        assert!(warnings(2.0, [vec![first], others.into()].concat()).is_empty());
    }

    #[test]
    fn preloaded_models_fit_together() {
        let preloaded = |name| {
            let mut model = model(name);
            model.preload = true;
            model
        };
        let both = || [preloaded("a"), preloaded("b"), model("c")];
        warns(&warnings(1.0, both()), &["`b`", "`preload`"]);
        assert!(warnings(2.0, both()).is_empty());
    }

    #[test]
    fn pinned_models_leave_room_for_each_other_model() {
        let mut pinned = model("a").memory(2.0);
        pinned.pinned = true;
        let both = || [pinned.clone(), model("b")];
        warns(&warnings(2.0, both()), &["`b`", "never"]);
        assert!(warnings(3.0, both()).is_empty());
    }
}
