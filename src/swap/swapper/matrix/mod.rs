//! Sets of models that may run together, and the cost of stopping each.

mod classes;
mod parse;
mod solve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use thiserror::Error;

use self::parse::{Expression, ExpressionError, is_name, parse};
use self::solve::{Form, Mask, MatrixNode, MatrixPart, Solver};
use super::{InstanceId, Plan, RunningInstance, Swapper, model_named, runs};

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

/// The error of a matrix that contradicts itself or the models.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum InvalidMatrix {
    #[error("sets: there has to be at least one")]
    NoSets,
    /// A short name or a set's name that could not be used in an expression.
    #[error("{key}: `{name}` is no name: it may have letters, digits, `-`, `_` and `.`")]
    InvalidName { key: &'static str, name: String },
    #[error("{key}: `{name}` is there twice")]
    Twice { key: &'static str, name: String },
    #[error("vars: `{var}` stands for `{model}`, and there is no such model")]
    UnknownModel { var: String, model: String },
    #[error("evict_costs: `{0}` is neither in `vars` nor a model")]
    UnknownCost(String),
    #[error("evict_costs: `{0}` costs 0, and the least is 1")]
    NoCost(String),
    /// An expression that can't be parsed, with the column in characters from 1.
    #[error("sets: `{set}`, column {column}: {error}")]
    Expression {
        set: String,
        column: usize,
        error: ExpressionError,
    },
    #[error("sets: they name {0} models, and may name {MAX_MODELS}")]
    TooManyModels(usize),
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
    /// Returns a matrix of `models`, which its configuration names.
    pub(crate) fn new(models: &[String], config: &MatrixConfig) -> Result<Self, InvalidMatrix> {
        MatrixBuilder::new(models, config)?.build()
    }

    fn bit(&self, InstanceId(model): InstanceId) -> Mask {
        self.bits.get(model as usize).copied().unwrap_or(0)
    }

    /// Returns the costs of all models, of which a pinned one costs more than all others together.
    fn costs_beside(&self, running: &[RunningInstance]) -> Cow<'_, [u64]> {
        let mut costs = Cow::Borrowed(self.costs.as_slice());
        for one in running {
            let cost = match one {
                one if one.is_stopping => 0,
                one if one.is_pinned => PINNED,
                _ => continue,
            };
            let bit = self.bit(one.id);
            if bit != 0 {
                costs.to_mut()[bit.trailing_zeros() as usize] = cost;
            }
        }
        costs
    }
}

impl Swapper for Matrix {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        if runs(target, running).is_some() {
            return Plan::default();
        }
        let bits = running.iter().map(|running| self.bit(running.id));
        let running_bits = bits.fold(0, |all, bit| all | bit);
        let costs = self.costs_beside(running);
        let mut solver = Solver::new(&self.nodes, &costs, self.bit(target), running_bits);
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
    fn new(models: &'a [String], config: &'a MatrixConfig) -> Result<Self, InvalidMatrix> {
        let mut vars = HashMap::new();
        for (var, model) in &config.vars {
            check_name("vars", var)?;
            let Some(id) = model_named(models, model) else {
                let (var, model) = (var.clone(), model.clone());
                return Err(InvalidMatrix::UnknownModel { var, model });
            };
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

    fn build(mut self) -> Result<Matrix, InvalidMatrix> {
        if self.config.sets.is_empty() {
            return Err(InvalidMatrix::NoSets);
        }
        let sets = 0..self.config.sets.len();
        let sets = sets.map(|set| self.set(set, &mut Vec::new()));
        let sets: Vec<MatrixPart> = sets.collect::<Result<_, _>>()?;
        match self.bits.len() {
            0..=MAX_MODELS => {}
            many => return Err(InvalidMatrix::TooManyModels(many)),
        }
        let given = self.costs()?;
        let mut costs = vec![1; self.bits.len()];
        let mut bits = vec![0; self.models.len()];
        for (model, &bit) in &self.bits {
            bits[model.0 as usize] = 1 << bit;
            costs[bit as usize] = given.get(model).copied().unwrap_or(1);
        }
        Ok(Matrix {
            classes: classes::plan_classes(&self.nodes, &sets, &bits),
            nodes: self.nodes,
            sets,
            bits,
            costs,
        })
    }

    fn costs(&self) -> Result<HashMap<InstanceId, u64>, InvalidMatrix> {
        let mut costs = HashMap::new();
        for (name, cost) in &self.config.evict_costs {
            let Some(model) = self.model(name) else {
                return Err(InvalidMatrix::UnknownCost(name.clone()));
            };
            if *cost == 0 {
                return Err(InvalidMatrix::NoCost(name.clone()));
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
    fn set(&mut self, set: usize, within: &mut Vec<usize>) -> Result<MatrixPart, InvalidMatrix> {
        if let Some(part) = self.known[set] {
            return Ok(part);
        }
        let (name, text) = &self.config.sets[set];
        let located = |(column, error)| InvalidMatrix::Expression {
            set: name.clone(),
            column,
            error,
        };
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
    ) -> Result<MatrixPart, InvalidMatrix> {
        let config = self.config;
        let own = within.last().map_or("", |&set| config.sets[set].0.as_str());
        let error = |column, error| InvalidMatrix::Expression {
            set: own.to_owned(),
            column,
            error,
        };
        match expression {
            Expression::Name { name, column } => {
                let Some(model) = self.model(name) else {
                    return Err(error(*column, ExpressionError::UnknownName(name.clone())));
                };
                let next = self.bits.len() as u32;
                let bit = *self.bits.entry(model).or_insert(next);
                // A model beyond the last bit is reported once all are counted.
                Ok(MatrixPart::Model(Mask::checked_shl(1, bit).unwrap_or(0)))
            }
            Expression::Set { name, column } => {
                let set = config.sets.iter().position(|(set, _)| set == name);
                let Some(set) = set else {
                    return Err(error(*column, ExpressionError::UnknownSet(name.clone())));
                };
                if within.contains(&set) {
                    return Err(error(*column, ExpressionError::Cycle(name.clone())));
                }
                self.set(set, within)
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
    ) -> Result<MatrixPart, InvalidMatrix> {
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

fn check_name(key: &'static str, name: &str) -> Result<(), InvalidMatrix> {
    match is_name(name) {
        true => Ok(()),
        false => Err(InvalidMatrix::InvalidName {
            key,
            name: name.to_owned(),
        }),
    }
}

fn twice(key: &'static str, name: &str) -> InvalidMatrix {
    let name = name.to_owned();
    InvalidMatrix::Twice { key, name }
}
