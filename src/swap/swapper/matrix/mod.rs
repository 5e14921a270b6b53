//! Sets of models that may run together, and the cost of stopping each.

mod parse;
mod solve;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use self::parse::{Expression, is_name, parse, unknown_name};
use self::solve::{Form, Mask, MatrixNode, MatrixPart, Solver, plan_classes};
use super::{InstanceId, Plan, RunningInstance, Swapper, model_named};

/// The configuration of a [matrix](crate::swap::SwapPolicy::Matrix), which has sets of models that may run together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct MatrixConfig {
    /// Short names for models in `sets`, each with the name of its model.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::swap::config::pairs")
    )]
    pub vars: Vec<(String, String)>,
    /// The cost of stopping a model, by its short name or its own. At least 1, which is the default.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::swap::config::pairs")
    )]
    pub evict_costs: Vec<(String, u64)>,
    /// Named sets of models that may run together, such as `"(g | q) & v"`. Each set is a permission for any part of any of
    /// its combinations, and `+name` stands for another set. Of two combinations with the same cost, the one that is defined
    /// first is chosen.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::swap::config::pairs")
    )]
    pub sets: Vec<(String, String)>,
}

/// The cost of stopping a pinned model, above all sums of other costs.
const PINNED: u64 = u64::MAX / 2;

/// The number of models that a [`Mask`] has bits for.
const MAX_MODELS: usize = Mask::BITS as usize;

/// A [`Swapper`] by sets of models that may run together.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    /// The nodes of all expressions, each of which comes after its parts.
    nodes: Vec<MatrixNode>,
    /// The expression of each set, in the order of the configuration.
    sets: Vec<MatrixPart>,
    /// The bit of each model, or 0 if it is in no set.
    bits: Vec<Mask>,
    /// The plan class of each model, by the number of the model.
    classes: Vec<u32>,
    /// The cost of stopping each model, by bit.
    costs: Vec<u64>,
}

impl Matrix {
    /// Returns a matrix of `models`, which its configuration names. A model without a cost in the configuration has its cost
    /// in `costs`, or else 1.
    pub(crate) fn new(
        models: &[String],
        costs: &[u64],
        config: &MatrixConfig,
    ) -> Result<Self, String> {
        MatrixBuilder::new(models, config)?.build(costs)
    }

    fn bit(&self, InstanceId(model): InstanceId) -> Mask {
        self.bits.get(model as usize).copied().unwrap_or(0)
    }

    /// Returns the costs of all models, of which a pinned one costs more than all others together.
    fn costs_beside(&self, running: &[RunningInstance]) -> Vec<u64> {
        let mut costs = self.costs.clone();
        for one in running {
            let cost = match one {
                one if one.is_stopping => 0,
                one if one.is_pinned => PINNED,
                _ => continue,
            };
            let bit = self.bit(one.id);
            if bit != 0 {
                costs[bit.trailing_zeros() as usize] = cost;
            }
        }
        costs
    }
}

impl Swapper for Matrix {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        let running_bits = running.iter().fold(0, |all, one| all | self.bit(one.id));
        let costs = self.costs_beside(running);
        let solver = Solver::new(&self.nodes, &costs, self.bit(target), running_bits);
        let mut best = None;
        for &set in &self.sets {
            // Of sets with equal costs, the one that was defined first is chosen.
            let cost = solver.least_cost(set);
            if let Some(cost) = cost.filter(|&cost| best.is_none_or(|(_, least)| cost < least)) {
                best = Some((set, cost));
            }
        }
        // A target outside of all sets runs alone.
        let kept = best.map_or(0, |(set, cost)| solver.first(set, cost));
        let evicted = running.iter().map(|running| running.id);
        let evicted = evicted.filter(|&id| kept & self.bit(id) == 0);
        Plan {
            evict: evicted.collect(),
            ..Plan::default()
        }
    }

    fn plan_class(&self, InstanceId(target): InstanceId) -> u32 {
        self.classes.get(target as usize).copied().unwrap_or(target)
    }

    fn regards_use(&self) -> bool {
        false
    }
}

/// The builder of a matrix, which resolves names and references between sets.
struct MatrixBuilder<'a> {
    models: &'a [String],
    config: &'a MatrixConfig,
    vars: HashMap<&'a str, InstanceId>,
    nodes: Vec<MatrixNode>,
    /// The number of the bit of each model that is in a set.
    bits: HashMap<InstanceId, u32>,
    /// The expression of each set, once it is known.
    known: Vec<Option<MatrixPart>>,
}

impl<'a> MatrixBuilder<'a> {
    fn new(models: &'a [String], config: &'a MatrixConfig) -> Result<Self, String> {
        let mut vars = HashMap::new();
        for (var, model) in &config.vars {
            check_name("vars", var)?;
            let unknown =
                || format!("vars: `{var}` stands for `{model}`, and there is no such model");
            let id = model_named(models, model).ok_or_else(unknown)?;
            if vars.insert(var.as_str(), id).is_some() {
                return Err(twice("vars", var));
            }
        }
        for (nth, (set, _)) in config.sets.iter().enumerate() {
            check_name("sets", set)?;
            if config.sets[..nth].iter().any(|(other, _)| other == set) {
                return Err(twice("sets", set));
            }
        }
        Ok(Self {
            models,
            config,
            vars,
            nodes: Vec::new(),
            bits: HashMap::new(),
            known: vec![None; config.sets.len()],
        })
    }

    fn build(mut self, own_costs: &[u64]) -> Result<Matrix, String> {
        if self.config.sets.is_empty() {
            return Err("sets: there has to be at least one".to_owned());
        }
        let sets = 0..self.config.sets.len();
        let sets = sets.map(|set| self.set(set, &mut Vec::new()));
        let sets: Vec<MatrixPart> = sets.collect::<Result<_, _>>()?;
        let many = self.bits.len();
        if many > MAX_MODELS {
            return Err(format!(
                "sets: they name {many} models, and may name {MAX_MODELS}"
            ));
        }
        let given = self.costs()?;
        let mut costs = vec![1; self.bits.len()];
        let mut bits = vec![0; self.models.len()];
        for (model, &bit) in &self.bits {
            bits[model.0 as usize] = 1 << bit;
            let cost = given.get(model).or(own_costs.get(model.0 as usize));
            costs[bit as usize] = cost.copied().unwrap_or(1);
        }
        Ok(Matrix {
            classes: plan_classes(&self.nodes, &sets, &bits),
            nodes: self.nodes,
            sets,
            bits,
            costs,
        })
    }

    fn costs(&self) -> Result<HashMap<InstanceId, u64>, String> {
        let mut costs = HashMap::new();
        for (name, cost) in &self.config.evict_costs {
            let model = self.model(name);
            let model = model.ok_or_else(|| format!("evict_costs: {}", unknown_name(name)))?;
            if *cost == 0 {
                return Err(format!("evict_costs: `{name}` costs 0, and the least is 1"));
            }
            if costs.insert(model, *cost).is_some() {
                return Err(twice("evict_costs", name));
            }
        }
        Ok(costs)
    }

    /// Returns the model with this short name, or else with this name.
    fn model(&self, name: &str) -> Option<InstanceId> {
        let var = self.vars.get(name).copied();
        var.or_else(|| model_named(self.models, name))
    }

    /// Returns the expression of a set, which the expressions of the sets of `within` led to.
    fn set(&mut self, set: usize, within: &mut Vec<usize>) -> Result<MatrixPart, String> {
        if let Some(part) = self.known[set] {
            return Ok(part);
        }
        let (name, text) = &self.config.sets[set];
        let located = |(column, error)| located(name, column, error);
        let expression = parse(text).map_err(located)?;
        within.push(set);
        let part = self.part(&expression, within)?;
        within.pop();
        self.known[set] = Some(part);
        Ok(part)
    }

    /// Returns an expression of the last set of `within`.
    fn part(
        &mut self,
        expression: &Expression,
        within: &mut Vec<usize>,
    ) -> Result<MatrixPart, String> {
        let config = self.config;
        let own = within.last().map_or("", |&set| config.sets[set].0.as_str());
        match expression {
            Expression::Name { name, column } => {
                let model = self.model(name);
                let model = model.ok_or_else(|| located(own, *column, unknown_name(name)))?;
                let next = self.bits.len() as u32;
                let bit = *self.bits.entry(model).or_insert(next);
                // A model beyond the last bit is reported once all are counted.
                Ok(MatrixPart::Model(Mask::checked_shl(1, bit).unwrap_or(0)))
            }
            Expression::Set { name, column } => {
                let set = config.sets.iter().position(|(set, _)| set == name);
                match set {
                    None => Err(located(own, *column, format!("there is no set `{name}`"))),
                    Some(set) if within.contains(&set) => {
                        let error = format!("set `{name}` would be a part of itself");
                        Err(located(own, *column, error))
                    }
                    Some(set) => self.set(set, within),
                }
            }
            Expression::All(parts) => self.node(Form::All, parts, within),
            Expression::OneOf(parts) => self.node(Form::OneOf, parts, within),
        }
    }

    fn node(
        &mut self,
        form: Form,
        parts: &[Expression],
        within: &mut Vec<usize>,
    ) -> Result<MatrixPart, String> {
        let parts = parts.iter().map(|part| self.part(part, within));
        let parts: Vec<MatrixPart> = parts.collect::<Result<_, _>>()?;
        let are_models = parts
            .iter()
            .all(|part| matches!(part, MatrixPart::Model(_)));
        let models = parts.iter().map(|part| part.models(&self.nodes));
        self.nodes.push(MatrixNode {
            models: models.fold(0, |all, models| all | models),
            form: match form {
                Form::OneOf if are_models => Form::OneModel,
                form => form,
            },
            parts,
        });
        Ok(MatrixPart::Node(self.nodes.len() - 1))
    }
}

fn check_name(key: &str, name: &str) -> Result<(), String> {
    match is_name(name) {
        true => Ok(()),
        false => Err(format!(
            "{key}: `{name}` is no name: it may have letters, digits, `-`, `_` and `.`"
        )),
    }
}

fn twice(key: &str, name: &str) -> String {
    format!("{key}: `{name}` is there twice")
}

fn located(set: &str, column: usize, error: String) -> String {
    format!("sets: `{set}`, column {column}: {error}")
}
