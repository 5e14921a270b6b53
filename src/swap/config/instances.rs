//! The instances of models, and the policy for them: a policy tells which models may run together.

use std::collections::HashMap;
use std::sync::Arc;

use super::{InvalidSwap, SwapConfig, SwapModel, SwapPolicy};
use crate::endpoints::Endpoint;
use crate::endpoints::on_demand::{self, OnDemand};
use crate::swap::swapper::{
    Groups, InstanceId, Matrix, MemoryBudget, MemoryNeed, Plan, RunningInstance, Swapper,
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
        let swapper: Result<Box<dyn Swapper>, String> = match &self.policy {
            SwapPolicy::Memory(pools) => {
                let need = |name: &String| match model_of.get(name).map(|&nth| &self.models[nth]) {
                    Some(model) => MemoryNeed {
                        evict_cost: model.evict_cost,
                        ..MemoryNeed::new(&model.model.name, model.memory)
                    },
                    None => MemoryNeed::new(name, 0.0),
                };
                let needs: Vec<MemoryNeed> = names.iter().map(need).collect();
                let budget = MemoryBudget::new(pools, &needs).map_err(InvalidSwap::Policy)?;
                return Ok(Arc::new(budget));
            }
            SwapPolicy::Groups(groups) => {
                let groups = Groups::new(&models, groups.iter().cloned());
                groups.map(|groups| Box::new(groups) as _)
            }
            SwapPolicy::Matrix(matrix) => {
                let costs: Vec<u64> = self.models.iter().map(|it| it.evict_cost).collect();
                let matrix = Matrix::new(&models, &costs, matrix);
                matrix.map(|matrix| Box::new(matrix) as _)
            }
        };
        // An instance without configuration is a model of its own, which the policy does not know.
        let instances = names.iter().zip(models.len()..);
        let models = instances.map(|(name, own)| model_of.get(name).copied().unwrap_or(own));
        Ok(Arc::new(ByModel {
            swapper: swapper.map_err(InvalidSwap::Policy)?,
            model_of: models.map(|nth| InstanceId(nth as u32)).collect(),
        }))
    }
}

/// A swapper for instances over a swapper for models.
#[derive(Debug)]
struct ByModel {
    /// The swapper for models, which takes the number of a model as an [`InstanceId`].
    swapper: Box<dyn Swapper>,
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
        let others = running.iter().filter(|one| !is_own(one));
        let models = others.map(|one| RunningInstance {
            id: self.model(one.id),
            ..*one
        });
        let plan = self.swapper.plan(own, &models.collect::<Vec<_>>());
        // The first instance of a model stops others, and a further one starts beside it. But it has to wait for the stops
        // that are still going on for the first one.
        let has_other = running.iter().any(|one| is_own(one) && !one.is_stopping);
        let evicted = running.iter().filter(|one| {
            (one.is_stopping || !has_other) && plan.evict.contains(&self.model(one.id))
        });
        Plan {
            evict: evicted.map(|one| one.id).collect(),
            ..plan
        }
    }

    fn plan_class(&self, target: InstanceId) -> u32 {
        let model = self.model(target);
        let instances = self.model_of.iter().filter(|&&other| other == model);
        // A model with several instances is a class of its own, because a further instance starts beside the first one.
        match instances.count() > 1 {
            true => model.0.saturating_mul(2),
            false => self.swapper.plan_class(model).saturating_mul(2) | 1,
        }
    }

    fn regards_use(&self) -> bool {
        self.swapper.regards_use()
    }
}
