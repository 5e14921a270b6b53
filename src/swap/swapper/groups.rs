//! Groups of models that replace each other, or other groups.

use thiserror::Error;

use super::{ModelId, Plan, Running, Swapper, model_named, runs};

/// Models that replace each other, or run side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Group {
    /// The names of its models.
    pub members: Vec<String>,
    /// Whether only one of its models runs at a time. Default `true`.
    #[cfg_attr(feature = "serde", serde(default = "yes"))]
    pub swap: bool,
    /// Whether models of other groups stop when one of its models is started. Default `true`.
    #[cfg_attr(feature = "serde", serde(default = "yes"))]
    pub exclusive: bool,
    /// Whether its models go on running when one of another, exclusive group is started. Default `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub persistent: bool,
}

impl Group {
    /// A group in which one model runs at a time, and in which no other group does.
    #[must_use]
    pub fn new<N: Into<String>>(members: impl IntoIterator<Item = N>) -> Self {
        Self {
            members: members.into_iter().map(Into::into).collect(),
            swap: true,
            exclusive: true,
            persistent: false,
        }
    }

    /// Whether only one of its models runs at a time.
    #[must_use]
    pub fn swap(mut self, swap: bool) -> Self {
        self.swap = swap;
        self
    }

    /// Whether models of other groups stop when one of its models is started.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Whether its models go on running when one of another, exclusive group is started.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
        self
    }
}

#[cfg(feature = "serde")]
fn yes() -> bool {
    true
}

/// Why groups are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidGroups {
    /// A member is not configured.
    #[error("group `{group}`: there is no model `{model}`")]
    UnknownModel {
        /// The group.
        group: String,
        /// The member.
        model: String,
    },
    /// A model is in two groups.
    #[error("model `{model}` is in group `{first}` and in group `{second}`: it may be in one")]
    InTwoGroups {
        /// The model.
        model: String,
        /// The first group that has it.
        first: String,
        /// Another one.
        second: String,
    },
}

/// A [`Swapper`] by groups.
#[derive(Debug, Clone)]
pub struct Groups {
    groups: Vec<Group>,
    /// By model.
    group_of: Vec<usize>,
}

impl Groups {
    /// Groups of `models`, by name. Models that are in none form a group of their own, with the default settings.
    ///
    /// # Errors
    ///
    /// A member that is no model, or a model in two groups.
    pub fn new(
        models: &[String],
        groups: impl IntoIterator<Item = (String, Group)>,
    ) -> Result<Self, InvalidGroups> {
        let (names, mut groups): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let mut group_of = vec![None; models.len()];
        for (nth, group) in groups.iter().enumerate() {
            for model in &group.members {
                let Some(ModelId(id)) = model_named(models, model) else {
                    let (group, model) = (names[nth].clone(), model.clone());
                    return Err(InvalidGroups::UnknownModel { group, model });
                };
                match group_of[id as usize].replace(nth) {
                    Some(other) if other != nth => {
                        return Err(InvalidGroups::InTwoGroups {
                            model: model.clone(),
                            first: names[other].clone(),
                            second: names[nth].clone(),
                        });
                    }
                    _ => {}
                }
            }
        }
        let default = groups.len();
        groups.push(Group::new([""; 0]));
        let group_of = group_of.into_iter();
        let group_of = group_of.map(|group| group.unwrap_or(default)).collect();
        Ok(Self { groups, group_of })
    }

    /// The number of a model's group. A model that is not configured is in the default one.
    fn group_of(&self, ModelId(model): ModelId) -> usize {
        let group = self.group_of.get(model as usize);
        group.copied().unwrap_or(self.groups.len() - 1)
    }
}

impl Swapper for Groups {
    fn plan(&self, target: ModelId, running: &[Running]) -> Plan {
        if runs(target, running).is_some() {
            return Plan::default();
        }
        let own = self.group_of(target);
        let has_to_stop = |model: &ModelId| match self.group_of(*model) {
            other if other == own => self.groups[own].swap,
            other => self.groups[own].exclusive && !self.groups[other].persistent,
        };
        let running = running.iter().map(|running| running.model);
        Plan {
            evict: running.filter(has_to_stop).collect(),
            ..Plan::default()
        }
    }

    fn kind(&self, target: ModelId) -> u32 {
        self.group_of(target) as u32
    }

    fn regards_use(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a, b and c swap; d and e run side by side and let others run; f stays whatever starts; g is in no group.
    fn groups() -> (Vec<String>, Groups) {
        let models = ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned);
        let groups = [
            ("main".to_owned(), Group::new(["a", "b", "c"])),
            (
                "small".to_owned(),
                Group::new(["d", "e"]).swap(false).exclusive(false),
            ),
            ("stays".to_owned(), Group::new(["f"]).persistent(true)),
        ];
        let groups = Groups::new(&models, groups).unwrap();
        (models.into(), groups)
    }

    /// The models that stop for `target`.
    fn evicted(target: &str, running: &str) -> String {
        let (models, groups) = groups();
        let id = |name: &str| model_named(&models, name).unwrap();
        let running = running.split_terminator(' ');
        let running = running.map(|name| Running::new(id(name)));
        let plan = groups.plan(id(target), &running.collect::<Vec<_>>());
        let names = plan
            .evict
            .iter()
            .map(|model| models[model.0 as usize].as_str());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn models_of_a_group_replace_each_other_unless_they_run_side_by_side() {
        assert_eq!(evicted("a", "b"), "b");
        assert_eq!(evicted("a", "b c"), "b c");
        assert_eq!(evicted("d", "e"), "");
        assert_eq!(evicted("f", ""), "");
    }

    #[test]
    fn an_exclusive_group_replaces_others_that_are_not_persistent() {
        assert_eq!(evicted("a", "d e f g"), "d e g");
        assert_eq!(evicted("f", "a d"), "a d");
        // The other way round, what is not exclusive lets all others run.
        assert_eq!(evicted("d", "a b f g"), "");
    }

    #[test]
    fn models_in_no_group_form_one() {
        assert_eq!(evicted("g", "a d f"), "a d");
        assert_eq!(evicted("a", "g"), "g");
    }

    #[test]
    fn what_runs_already_replaces_nothing() {
        assert_eq!(evicted("a", "a b"), "");
    }

    #[test]
    fn errors_name_group_and_model() {
        let models = ["a", "b"].map(str::to_owned);
        let error = |groups: &[(&str, &[&str])]| {
            let groups = groups.iter().map(|(name, members)| {
                let members = members.iter().copied();
                ((*name).to_owned(), Group::new(members))
            });
            Groups::new(&models, groups).unwrap_err().to_string()
        };
        assert_eq!(
            error(&[("one", &["a", "c"])]),
            "group `one`: there is no model `c`"
        );
        assert_eq!(
            error(&[("one", &["a"]), ("two", &["b", "a"])]),
            "model `a` is in group `one` and in group `two`: it may be in one"
        );
        // Twice in one group is once.
        assert!(Groups::new(&models, [("one".to_owned(), Group::new(["a", "a"]))]).is_ok());
    }
}
