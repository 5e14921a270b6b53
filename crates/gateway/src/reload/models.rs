//! What a reload changes of `[swap]`.

use tower_triage::swap::{SwapConfig, SwapModel};

/// One line for each kind of change.
pub(super) fn summary(old: &SwapConfig, new: &SwapConfig) -> Vec<String> {
    let added = names(new, |model| find(model, old).is_none());
    let removed = names(old, |model| find(model, new).is_none());
    let changed = names(new, |model| {
        find(model, old).is_some_and(|old| old != model)
    });
    let mut rest = old.clone();
    rest.models.clone_from(&new.models);
    let rest = (rest != *new).then(|| "[swap] has changed".to_owned());
    super::lines("models", [&added, &removed, &changed])
        .chain(rest)
        .collect()
}

/// The model of the same name.
fn find<'a>(model: &SwapModel, config: &'a SwapConfig) -> Option<&'a SwapModel> {
    let name = &model.model.name;
    config.models.iter().find(|model| model.model.name == *name)
}

fn names(config: &SwapConfig, is: impl Fn(&SwapModel) -> bool) -> Vec<String> {
    let models = config.models.iter().filter(|model| is(model));
    models.map(|model| model.model.name.clone()).collect()
}
