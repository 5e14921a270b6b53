//! Groups of models that replace each other, or other groups.

use super::{InstanceId, Plan, RunningInstance, Swapper, model_named};

/// A group of models that replace each other, or run side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Group {
    /// The names of the models in the group.
    pub members: Vec<String>,
    /// `true` (default) if only one of its models runs at a time.
    #[cfg_attr(feature = "serde", serde(default = "yes"))]
    pub swap: bool,
    /// `true` (default) if models of other groups stop when one of its models is started.
    #[cfg_attr(feature = "serde", serde(default = "yes"))]
    pub exclusive: bool,
    /// `true` if its models go on running when one of another, exclusive group is started. Default `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub persistent: bool,
}

impl Group {
    /// Returns a group of which one model runs at a time, alone.
    #[must_use]
    pub fn new<N: Into<String>>(members: impl IntoIterator<Item = N>) -> Self {
        Self {
            members: members.into_iter().map(Into::into).collect(),
            swap: true,
            exclusive: true,
            persistent: false,
        }
    }
}

#[cfg(feature = "serde")]
fn yes() -> bool {
    true
}

/// A [`Swapper`] by groups, of which each model is in one.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    /// All groups, of which the default one is the last.
    groups: Vec<Group>,
    /// The number of each model's group, by the number of the model.
    group_of: Vec<usize>,
}

impl Groups {
    /// Returns the groups of `models`, by name. Models without a group form one of their own, with the default settings.
    pub(crate) fn new(
        models: &[String],
        groups: impl IntoIterator<Item = (String, Group)>,
    ) -> Result<Self, String> {
        let (names, mut groups): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let mut group_of = vec![None; models.len()];
        for (nth, group) in groups.iter().enumerate() {
            let own: &String = &names[nth];
            for model in &group.members {
                let unknown = || format!("group `{own}`: there is no model `{model}`");
                let InstanceId(id) = model_named(models, model).ok_or_else(unknown)?;
                let other = group_of[id as usize].replace(nth);
                if let Some(other) = other.filter(|&other| other != nth) {
                    return Err(format!(
                        "model `{model}` is in group `{}` and in group `{own}`: it may be in one",
                        names[other]
                    ));
                }
            }
        }
        let default = groups.len();
        groups.push(Group::new([""; 0]));
        let group_of = group_of.into_iter();
        let group_of = group_of.map(|group| group.unwrap_or(default)).collect();
        Ok(Self { groups, group_of })
    }

    /// Returns the number of a model's group: the default one for a model that has left the configuration.
    fn group_of(&self, InstanceId(model): InstanceId) -> usize {
        let group = self.group_of.get(model as usize);
        group.copied().unwrap_or(self.groups.len() - 1)
    }
}

impl Swapper for Groups {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        let own = self.group_of(target);
        let has_to_stop = |id: &InstanceId| match self.group_of(*id) {
            other if other == own => self.groups[own].swap,
            other => self.groups[own].exclusive && !self.groups[other].persistent,
        };
        let running = running.iter().map(|running| running.id);
        Plan {
            evict: running.filter(has_to_stop).collect(),
            ..Plan::default()
        }
    }

    fn plan_class(&self, target: InstanceId) -> u32 {
        self.group_of(target) as u32
    }

    fn regards_use(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns groups in which a, b and c swap; d and e run side by side and let others run; f stays; g has no group.
    fn groups() -> (Vec<String>, Groups) {
        let models = ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned);
        let mut groups = [
            ("main".to_owned(), Group::new(["a", "b", "c"])),
            ("small".to_owned(), Group::new(["d", "e"])),
            ("stays".to_owned(), Group::new(["f"])),
        ];
        (groups[1].1.swap, groups[1].1.exclusive) = (false, false);
        groups[2].1.persistent = true;
        let groups = Groups::new(&models, groups).unwrap();
        (models.into(), groups)
    }

    /// Returns the models that stop for `target`.
    fn evicted(target: &str, running: &str) -> String {
        let (models, groups) = groups();
        let id = |name: &str| model_named(&models, name).unwrap();
        let running = running.split_terminator(' ');
        let running = running.map(|name| RunningInstance::new(id(name)));
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
        // A group that is not exclusive lets all others run.
        assert_eq!(evicted("d", "a b f g"), "");
    }

    #[test]
    fn models_in_no_group_form_one() {
        assert_eq!(evicted("g", "a d f"), "a d");
        assert_eq!(evicted("a", "g"), "g");
    }

    #[test]
    fn errors_name_group_and_model() {
        let models = ["a", "b"].map(str::to_owned);
        let error = |groups: &[(&str, &[&str])]| {
            let groups = groups.iter().map(|(name, members)| {
                let members = members.iter().copied();
                ((*name).to_owned(), Group::new(members))
            });
            Groups::new(&models, groups).unwrap_err()
        };
        assert_eq!(
            error(&[("one", &["a", "c"])]),
            "group `one`: there is no model `c`"
        );
        assert_eq!(
            error(&[("one", &["a"]), ("two", &["b", "a"])]),
            "model `a` is in group `one` and in group `two`: it may be in one"
        );
        // A model may be in one group twice.
        assert!(Groups::new(&models, [("one".to_owned(), Group::new(["a", "a"]))]).is_ok());
    }
}
