//! Instances of models are what the scheduler starts and stops; which may run together is said of models.

use std::sync::Arc;

use super::{InvalidSwap, SwapConfig, SwapModel, SwapPolicy};
use crate::endpoints::Endpoint;
use crate::endpoints::on_demand::{self, OnDemand};
use crate::swap::swapper::{
    Groups, Matrix, MatrixConfig, MemoryBudget, MemoryConfig, ModelId, Plan, Running, Swapper,
};

impl SwapConfig {
    /// The names of all instances, in the order of the models.
    pub(crate) fn instance_names(&self) -> impl Iterator<Item = String> {
        self.models.iter().flat_map(SwapModel::instance_names)
    }

    /// The endpoints of all instances, of which none runs.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.models.iter().flat_map(|model| {
            let names = model.instance_names();
            names.map(|name| {
                on_demand::endpoint(&name, &model.model, model.concurrency, OnDemand::default())
            })
        })
    }

    /// What says which instances may run together. A [`ModelId`] is the number of an instance.
    pub(crate) fn swapper(&self) -> Result<Arc<dyn Swapper>, InvalidSwap> {
        self.swapper_of(&self.instance_names().collect::<Vec<_>>())
    }

    /// The same for instances that have other numbers: a [`ModelId`] is a place in `names`. A name that is not configured
    /// is one that was.
    pub(crate) fn swapper_of(&self, names: &[String]) -> Result<Arc<dyn Swapper>, InvalidSwap> {
        let models: Vec<String> = self
            .models
            .iter()
            .map(|one| one.model.name.clone())
            .collect();
        let configured: Vec<String> = self.instance_names().collect();
        let of_instance = |model: &dyn Fn(u32) -> u32| -> Vec<ModelId> {
            let unknown = configured.len() as u32;
            let ids = names.iter().zip(unknown..).map(|(name, unknown)| {
                let nth = configured.iter().position(|one| one == name);
                ModelId(nth.map_or(unknown, |nth| model(nth as u32)))
            });
            ids.collect()
        };
        let model_of: Vec<u32> = (0..)
            .zip(&self.models)
            .flat_map(|(nth, model)| std::iter::repeat_n(nth, model.instances as usize))
            .collect();
        let to_model = |nth: u32| model_of[nth as usize];
        let (swapper, inner): (Arc<dyn Swapper>, _) = match &self.policy {
            SwapPolicy::Memory(pools) => {
                let budget = MemoryBudget::new(&configured, &self.memory_of_instances(pools))?;
                (Arc::new(budget), of_instance(&|nth| nth))
            }
            SwapPolicy::Groups(groups) => {
                let groups = Groups::new(&models, groups.iter().cloned())?;
                (Arc::new(groups), of_instance(&to_model))
            }
            SwapPolicy::Matrix(matrix) => {
                let matrix = Matrix::new(&models, &self.with_costs(matrix))?;
                (Arc::new(matrix), of_instance(&to_model))
            }
        };
        let is_same = inner.iter().zip(0..).all(|(&ModelId(id), nth)| id == nth);
        Ok(match is_same {
            true => swapper,
            false => Arc::new(Instances { swapper, inner }),
        })
    }

    fn memory_of_instances(&self, pools: &[(String, f64)]) -> MemoryConfig {
        let mut config = MemoryConfig {
            pools: pools.to_vec(),
            ..MemoryConfig::default()
        };
        for model in &self.models {
            for name in model.instance_names() {
                config.evict_costs.push((name.clone(), model.evict_cost));
                config
                    .models
                    .extend(model.memory.map(|memory| (name, memory)));
            }
        }
        config
    }

    /// The matrix with the costs of the models, where it has none of its own for them.
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
            // Its name may be the short one of another.
            let var = matrix.vars.iter().find(|(_, model)| model == name);
            let key = var.map_or(name, |(var, _)| var).clone();
            if var.is_some() || matrix.vars.iter().all(|(var, _)| *var != key) {
                all.evict_costs.push((key, model.evict_cost));
            }
        }
        all
    }
}

/// A swapper that knows the models by other numbers; several may be the same to it.
#[derive(Debug)]
struct Instances {
    swapper: Arc<dyn Swapper>,
    /// By our number: its own.
    inner: Vec<ModelId>,
}

impl Instances {
    fn inner(&self, ModelId(id): ModelId) -> ModelId {
        let known = self.inner.get(id as usize).copied();
        // As unknown to it as to us.
        known.unwrap_or(ModelId(u32::MAX))
    }
}

impl Swapper for Instances {
    fn plan(&self, target: ModelId, running: &[Running]) -> Plan {
        let own = self.inner(target);
        let is_own = |one: &Running| self.inner(one.model) == own;
        let others = running.iter();
        let others = others.filter(|one| one.model == target || !is_own(one));
        let inner = others.map(|one| Running {
            model: self.inner(one.model),
            ..*one
        });
        let plan = self.swapper.plan(own, &inner.collect::<Vec<_>>());
        // Beside an instance that stays another one stops no more. But what is being stopped for the first has to be gone.
        let has_other = running.iter().any(|one| is_own(one) && !one.is_stopping);
        let evicted = running.iter();
        let evicted = evicted.filter(|one| one.is_stopping || !has_other);
        let evicted = evicted.map(|one| one.model);
        Plan {
            evict: evicted
                .filter(|&model| plan.evict.contains(&self.inner(model)))
                .collect(),
            ..plan
        }
    }

    fn kind(&self, target: ModelId) -> u32 {
        let inner = self.inner(target);
        let instances = self.inner.iter().filter(|&&other| other == inner);
        // One of several may start while another one runs, and then stops none: other models of its kind do.
        match instances.count() > 1 {
            true => inner.0.saturating_mul(2),
            false => self.swapper.kind(inner).saturating_mul(2).saturating_add(1),
        }
    }

    fn regards_use(&self) -> bool {
        self.swapper.regards_use()
    }
}
