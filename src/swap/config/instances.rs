//! The instances of models, and the policy for them: a policy tells which models may run together.

use std::collections::HashMap;
use std::sync::Arc;

use super::{InvalidSwap, SwapConfig, SwapModel, SwapPolicy};
use crate::endpoints::Endpoint;
use crate::endpoints::on_demand::{self, OnDemand};
use crate::swap::swapper::{
    Groups, InstanceId, Matrix, MatrixConfig, MemoryBudget, MemoryNeed, Plan, RunningInstance,
    Swapper,
};

impl SwapConfig {
    /// Returns the names of all instances, in the order of the models.
    pub(crate) fn instance_names(&self) -> impl Iterator<Item = String> {
        self.models.iter().flat_map(SwapModel::instance_names)
    }

    /// Returns the endpoints of all instances, which do not run yet.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.models.iter().flat_map(|model| {
            let names = model.instance_names();
            names.map(|name| {
                on_demand::endpoint(&name, &model.model, model.concurrency, OnDemand::default())
            })
        })
    }

    /// Returns the swapper for all instances in the order of the models.
    pub(crate) fn swapper(&self) -> Result<Arc<dyn Swapper>, InvalidSwap> {
        self.swapper_of(&self.instance_names().collect::<Vec<_>>())
    }

    /// Returns the swapper for instances with these names, in the order of their [`InstanceId`]s. Some of them may have left
    /// the configuration.
    pub(crate) fn swapper_of(&self, names: &[String]) -> Result<Arc<dyn Swapper>, InvalidSwap> {
        let models: Vec<String> = self.models.iter().map(|it| it.model.name.clone()).collect();
        let numbered = self.models.iter().enumerate();
        let model_of: HashMap<String, usize> = numbered
            .flat_map(|(nth, model)| model.instance_names().map(move |name| (name, nth)))
            .collect();
        let (swapper, swaps_models): (Arc<dyn Swapper>, _) = match &self.policy {
            SwapPolicy::Memory(pools) => {
                let need = |name: &String| match model_of.get(name).map(|&nth| &self.models[nth]) {
                    Some(model) => MemoryNeed {
                        evict_cost: model.evict_cost,
                        ..MemoryNeed::new(&model.model.name, model.memory)
                    },
                    None => MemoryNeed::new(name, 0.0),
                };
                let needs: Vec<MemoryNeed> = names.iter().map(need).collect();
                let budget = MemoryBudget::new(pools, &needs).map_err(InvalidSwap::policy)?;
                (Arc::new(budget), false)
            }
            SwapPolicy::Groups(groups) => {
                let groups = Groups::new(&models, groups.iter().cloned());
                (Arc::new(groups.map_err(InvalidSwap::policy)?), true)
            }
            SwapPolicy::Matrix(matrix) => {
                let matrix = Matrix::new(&models, &self.with_costs(matrix));
                (Arc::new(matrix.map_err(InvalidSwap::policy)?), true)
            }
        };
        // An instance without configuration is a model of its own, which the policy does not know.
        let models = names.iter().zip(models.len()..);
        let models = models.map(|(name, unknown)| model_of.get(name).copied().unwrap_or(unknown));
        let model_of: Vec<InstanceId> = models.map(|nth| InstanceId(nth as u32)).collect();
        let is_same = (0..)
            .map(InstanceId)
            .zip(&model_of)
            .all(|(id, nth)| id == *nth);
        Ok(match is_same || !swaps_models {
            true => swapper,
            false => Arc::new(ByModel { swapper, model_of }),
        })
    }

    /// Returns the matrix with the costs of the models that it leaves out.
    fn with_costs(&self, matrix: &MatrixConfig) -> MatrixConfig {
        let mut all = matrix.clone();
        for model in self.models.iter().filter(|model| model.evict_cost > 1) {
            let name = &model.model.name;
            let is_meant = |(key, _): &(String, u64)| {
                let var = matrix.vars.iter().find(|(var, _)| var == key);
                var.map_or(key, |(_, model)| model) == name
            };
            if matrix.evict_costs.iter().any(is_meant) {
                continue;
            }
            // Its name may be the short name of another model.
            let var = matrix.vars.iter().find(|(_, model)| model == name);
            let key = var.map_or(name, |(var, _)| var).clone();
            if var.is_some() || matrix.vars.iter().all(|(var, _)| *var != key) {
                all.evict_costs.push((key, model.evict_cost));
            }
        }
        all
    }
}

/// A swapper for instances over a swapper for models.
#[derive(Debug)]
struct ByModel {
    /// The swapper for models, which takes the number of a model as an [`InstanceId`].
    swapper: Arc<dyn Swapper>,
    /// The number of each instance's model.
    model_of: Vec<InstanceId>,
}

impl ByModel {
    fn model(&self, InstanceId(id): InstanceId) -> InstanceId {
        let model = self.model_of.get(id as usize).copied();
        model.unwrap_or(InstanceId(u32::MAX)) // a number that the inner swapper does not know either
    }
}

impl Swapper for ByModel {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        let own = self.model(target);
        let is_own = |one: &RunningInstance| self.model(one.id) == own;
        let others = running.iter();
        let others = others.filter(|one| one.id == target || !is_own(one));
        let models = others.map(|one| RunningInstance {
            id: self.model(one.id),
            ..*one
        });
        let plan = self.swapper.plan(own, &models.collect::<Vec<_>>());
        // The first instance of a model stops others, and a further one starts beside it. But it has to wait for the stops
        // that are still going on for the first one.
        let has_other = running.iter().any(|one| is_own(one) && !one.is_stopping);
        let evicted = running.iter();
        let evicted = evicted.filter(|one| one.is_stopping || !has_other);
        let evicted = evicted.map(|one| one.id);
        Plan {
            evict: evicted
                .filter(|&id| plan.evict.contains(&self.model(id)))
                .collect(),
            ..plan
        }
    }

    fn plan_class(&self, target: InstanceId) -> u32 {
        let model = self.model(target);
        let instances = self.model_of.iter().filter(|&&other| other == model);
        // A model with several instances is a class of its own, because a further instance starts beside the first one.
        match instances.count() > 1 {
            true => model.0.saturating_mul(2),
            false => self
                .swapper
                .plan_class(model)
                .saturating_mul(2)
                .saturating_add(1),
        }
    }

    fn regards_use(&self) -> bool {
        self.swapper.regards_use()
    }
}
