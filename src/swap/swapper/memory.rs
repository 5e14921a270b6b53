//! Models that fit into memory together.

use std::borrow::Cow;

use thiserror::Error;

use super::{ModelId, Plan, Running, Swapper, model_named, runs};

/// The configuration of a [`MemoryBudget`]. Memory is in any unit, the same everywhere.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The memory that there is, by the name of the pool: one, or one for each GPU. A model is in one pool.
    pub pools: Vec<(String, f64)>,
    /// What each model takes, by its name.
    pub models: Vec<(String, f64)>,
    /// What it costs to stop a model, by its name: at least 1, which is the default. For example, how long it takes to
    /// load.
    pub evict_costs: Vec<(String, u64)>,
}

/// Why a memory budget is invalid.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum InvalidMemory {
    /// There is no pool.
    #[error("memory: there has to be a budget, or at least one pool")]
    NoPools,
    /// A number that is no amount of memory.
    #[error("memory of `{name}`: {memory} is not between 0 and a billion")]
    NoAmount {
        /// The pool or the model.
        name: String,
        /// What was given.
        memory: f64,
    },
    /// A model without an amount of memory.
    #[error("model `{0}`: `memory` is missing")]
    Missing(String),
    /// An amount or a cost for a model that is not configured.
    #[error("there is no model `{0}`")]
    UnknownModel(String),
    /// A model that fits nowhere.
    #[error("model `{model}` takes {memory}, and the largest pool has {largest}")]
    TooLarge {
        /// The model.
        model: String,
        /// What it takes.
        memory: f64,
        /// What there is.
        largest: f64,
    },
}

/// A [`Swapper`] by memory: the models that were not used for the longest time stop until the new one fits.
///
/// Models that serve or are being loaded come last, and pinned ones behind them. Of several pools, the one is chosen where
/// the least has to stop, and of equal ones that where it was not used for longer.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    /// In millionths, so that sums are exact.
    pools: Vec<u64>,
    /// By model.
    models: Vec<u64>,
    /// By model.
    costs: Vec<u64>,
    /// By model: the first one that takes as much.
    kinds: Vec<u32>,
}

impl MemoryBudget {
    /// A budget for `models`, by name.
    ///
    /// # Errors
    ///
    /// What is missing, no amount of memory, or larger than any pool.
    pub fn new(models: &[String], config: &MemoryConfig) -> Result<Self, InvalidMemory> {
        let amounts = |all: &[(String, f64)]| -> Result<Vec<u64>, InvalidMemory> {
            let all = all.iter();
            all.map(|(name, memory)| amount(name, *memory)).collect()
        };
        let pools = amounts(&config.pools)?;
        let Some(&largest) = pools.iter().max() else {
            return Err(InvalidMemory::NoPools);
        };
        let mut taken = vec![None; models.len()];
        for ((name, memory), amount) in config.models.iter().zip(amounts(&config.models)?) {
            let Some(ModelId(model)) = model_named(models, name) else {
                return Err(InvalidMemory::UnknownModel(name.clone()));
            };
            if amount > largest {
                return Err(InvalidMemory::TooLarge {
                    model: name.clone(),
                    memory: *memory,
                    largest: largest as f64 / MILLION,
                });
            }
            taken[model as usize] = Some(amount);
        }
        let taken = taken.into_iter().zip(models);
        let taken = taken.map(|(taken, name)| taken.ok_or(InvalidMemory::Missing(name.clone())));
        let mut costs = vec![1; models.len()];
        for (name, cost) in &config.evict_costs {
            let Some(ModelId(model)) = model_named(models, name) else {
                return Err(InvalidMemory::UnknownModel(name.clone()));
            };
            costs[model as usize] = (*cost).max(1);
        }
        let models: Vec<u64> = taken.collect::<Result<_, _>>()?;
        let first = |taken: &u64| models.iter().position(|other| other == taken);
        let kinds = models.iter().filter_map(first).map(|nth| nth as u32);
        Ok(Self {
            pools,
            kinds: kinds.collect(),
            models,
            costs,
        })
    }

    /// What has to stop so that `needed` is free in a pool. `there`: the models in it, those that stop first in front.
    fn room_in<'a>(&self, pool: u32, needed: u64, there: &'a [&'a Running]) -> Room<'a> {
        let budget = self.pools[pool as usize];
        let fits = |used: u64| used.saturating_add(needed) <= budget;
        let mut used: u64 = there.iter().map(|one| self.taken(one)).sum();
        let mut stops = 0;
        while !fits(used) && stops < there.len() {
            used -= self.taken(there[stops]);
            stops += 1;
        }
        let mut stopped = Cow::Borrowed(&there[..stops]);
        if stops > 1 {
            self.keep(stopped.to_mut(), |one| {
                let taken = self.taken(one);
                let stays = fits(used.saturating_add(taken));
                used += u64::from(stays) * taken;
                stays
            });
        }
        let costs = stopped.iter().map(|one| self.cost(one));
        let running = stopped.iter().filter(|one| !one.is_stopping);
        Room {
            has_pinned: stopped.iter().any(|one| one.is_pinned),
            has_busy: stopped.iter().any(|one| one.is_busy),
            cost: costs.fold(0, u64::saturating_add),
            last_used: running.map(|one| one.last_used).max().unwrap_or(0),
            left: budget.saturating_sub(used.saturating_add(needed)),
            pool,
            stopped,
        }
    }

    /// Keeps those that can stay: a large model may have freed enough that smaller ones before it need not stop.
    /// Pinned models stay first; then busy ones, the most expensive, the last used. Those that are stopping stay last.
    fn keep(&self, stopped: &mut Vec<&Running>, mut stays: impl FnMut(&Running) -> bool) {
        stopped.sort_by_key(|one| {
            let cost = u64::MAX - self.cost(one);
            let latest = u64::MAX - one.last_used;
            let is_busy = one.is_busy;
            (!one.is_pinned, one.is_stopping, !is_busy, cost, latest)
        });
        stopped.retain(|one| !stays(one));
    }

    /// What a model takes that runs: that of its plan, or as it is configured now if another policy has started it.
    fn taken(&self, one: &Running) -> u64 {
        match one.memory {
            0 => self.memory(one.model),
            planned => planned,
        }
    }

    /// 0 for a model that is not configured any more.
    fn memory(&self, ModelId(model): ModelId) -> u64 {
        self.models.get(model as usize).copied().unwrap_or(0)
    }

    fn cost(&self, one: &Running) -> u64 {
        let cost = self.costs.get(one.model.0 as usize).copied().unwrap_or(1);
        u64::from(!one.is_stopping) * cost
    }
}

/// How room can be made in a pool.
struct Room<'a> {
    has_pinned: bool,
    has_busy: bool,
    cost: u64,
    /// Of what stops, when the last was used.
    last_used: u64,
    left: u64,
    pool: u32,
    stopped: Cow<'a, [&'a Running]>,
}

impl Room<'_> {
    /// The order in which pools are preferred; of equal ones the tightest fit, which leaves more memory in the others.
    fn rank(&self) -> (bool, bool, u64, bool, u64, u64) {
        let has_to_wait = !self.stopped.is_empty();
        (
            self.has_pinned,
            self.has_busy,
            self.cost,
            has_to_wait,
            self.last_used,
            self.left,
        )
    }
}

/// The order in which models are stopped.
fn stops_first(one: &Running) -> (u8, u64) {
    let class =
        4 * u8::from(one.is_pinned) + 2 * u8::from(!one.is_stopping) + u8::from(one.is_busy);
    (class, one.last_used)
}

impl Swapper for MemoryBudget {
    fn plan(&self, target: ModelId, running: &[Running]) -> Plan {
        if let Some(target) = runs(target, running) {
            return Plan {
                evict: Vec::new(),
                pool: target.pool,
                memory: target.memory,
            };
        }
        let needed = self.memory(target);
        let mut sorted: Vec<&Running> = running.iter().collect();
        sorted.sort_by_key(|one| (one.pool, stops_first(one)));
        let there = |pool: u32| {
            let from = sorted.partition_point(|one| one.pool < pool);
            let end = sorted.partition_point(|one| one.pool <= pool);
            &sorted[from..end]
        };
        // A pool that is too small has no room even without all others.
        let pools =
            (0..self.pools.len() as u32).filter(|&pool| self.pools[pool as usize] >= needed);
        let rooms = pools.map(|pool| self.room_in(pool, needed, there(pool)));
        // Of equal ones, the first.
        let Some(best) = rooms.min_by_key(Room::rank) else {
            return Plan::default();
        };
        let mut evict: Vec<ModelId> = best.stopped.iter().map(|one| one.model).collect();
        if evict.len() > 1 {
            let all = running.iter().map(|one| one.model);
            evict = all.filter(|model| evict.contains(model)).collect();
        }
        Plan {
            evict,
            pool: best.pool,
            memory: needed,
        }
    }

    fn excess(&self, running: &[Running]) -> Vec<ModelId> {
        let mut excess = Vec::new();
        for pool in 0..self.pools.len() as u32 {
            let mut there: Vec<&Running> = running.iter().filter(|one| one.pool == pool).collect();
            there.sort_by_key(|one| stops_first(one));
            let stopped = self.room_in(pool, 0, &there).stopped;
            let running = stopped.iter().filter(|one| !one.is_stopping);
            excess.extend(running.map(|one| one.model));
        }
        excess
    }

    fn kind(&self, ModelId(target): ModelId) -> u32 {
        self.kinds.get(target as usize).copied().unwrap_or(target)
    }
}

/// An amount in this unit, times this.
const MILLION: f64 = 1e6;

fn amount(name: &str, memory: f64) -> Result<u64, InvalidMemory> {
    match (0.0..=1e9).contains(&memory) {
        true => Ok((memory * MILLION).round() as u64),
        false => Err(InvalidMemory::NoAmount {
            name: name.to_owned(),
            memory,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: [(&str, f64); 5] = [("a", 8.0), ("b", 8.0), ("c", 16.0), ("d", 0.1), ("e", 0.2)];

    fn budget(pools: &[f64], costs: &[(&str, u64)]) -> MemoryBudget {
        let pools = pools.iter().enumerate();
        let config = MemoryConfig {
            pools: pools
                .map(|(nth, size)| (format!("gpu{nth}"), *size))
                .collect(),
            models: MODELS
                .map(|(name, memory)| (name.to_owned(), memory))
                .into(),
            evict_costs: costs
                .iter()
                .map(|(name, cost)| ((*name).to_owned(), *cost))
                .collect(),
        };
        MemoryBudget::new(&names(), &config).unwrap()
    }

    fn names() -> Vec<String> {
        MODELS.map(|(name, _)| name.to_owned()).into()
    }

    /// What stops for `target`, and where it runs. `running`: pool and model, in capitals if it is busy, the one that was
    /// used last in the end.
    fn plan(budget: &MemoryBudget, target: &str, running: &str) -> (String, u32) {
        let id = |name: &str| model_named(&names(), &name.to_lowercase()).unwrap();
        let running = running
            .split_terminator(' ')
            .zip(1..)
            .map(|(one, last_used)| {
                let (pool, name) = one.split_at(1);
                Running {
                    pool: pool.parse().unwrap(),
                    memory: budget.memory(id(name)),
                    last_used,
                    is_busy: name.chars().all(char::is_uppercase),
                    ..Running::new(id(name))
                }
            });
        let plan = budget.plan(id(target), &running.collect::<Vec<_>>());
        let evict = plan.evict.iter().map(|model| MODELS[model.0 as usize].0);
        (evict.collect::<Vec<_>>().join(" "), plan.pool)
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_stops_until_it_fits() {
        let one = budget(&[24.0], &[]);
        for (target, running, expected) in [
            ("a", "", ""),
            ("a", "0c", ""),
            ("c", "0a", ""),
            ("c", "0a 0b", "a"),
            ("c", "0b 0a", "b"),
            ("b", "0a 0c", "a"),
            ("b", "0c 0a", "c"),
            // It runs.
            ("a", "0a 0c", ""),
        ] {
            assert_eq!(
                plan(&one, target, running),
                (expected.to_owned(), 0),
                "{target} beside {running}"
            );
        }
    }

    #[test]
    fn no_more_stops_than_has_to() {
        let one = budget(&[16.2], &[]);
        // a alone does not make room for c, and b does with it; d need not stop.
        assert_eq!(plan(&one, "c", "0d 0a 0b").0, "a b");
        // Exactly, where a sum of fractions is not.
        assert_eq!(plan(&budget(&[16.3], &[]), "d", "0a 0b 0e").0, "");
    }

    #[test]
    fn what_exceeds_a_smaller_budget_stops() {
        let id = |name| model_named(&names(), name).unwrap();
        let running = |name, last_used| Running {
            memory: budget(&[32.0], &[]).memory(id(name)),
            last_used,
            ..Running::new(id(name))
        };
        let all = [running("a", 2), running("b", 1), running("c", 3)];
        for (memory, excess) in [(32.0, &[][..]), (24.0, &["b"]), (16.0, &["a", "b"])] {
            let expected: Vec<_> = excess.iter().copied().map(id).collect();
            assert_eq!(budget(&[memory], &[]).excess(&all), expected, "{memory}");
        }
    }

    #[test]
    fn the_dearest_goes_on_running() {
        let dear = budget(&[24.0], &[("b", 9)]);
        assert_eq!(plan(&dear, "c", "0b 0a").0, "b");
        let room_for_one = budget(&[25.0], &[("a", 9)]);
        assert_eq!(plan(&room_for_one, "c", "0a 0d 0b").0, "a");
    }

    #[test]
    fn what_is_busy_stops_last() {
        let one = budget(&[24.0], &[]);
        assert_eq!(plan(&one, "c", "0A 0b").0, "b");
        assert_eq!(plan(&one, "c", "0A 0B").0, "A".to_lowercase());
    }

    #[test]
    fn what_is_stopping_makes_room_first_and_what_is_pinned_last() {
        let one = budget(&[16.0], &[("b", 9)]);
        let running = |name: &str, last_used: u64| Running {
            memory: one.memory(model_named(&names(), name).unwrap()),
            last_used,
            ..Running::new(model_named(&names(), name).unwrap())
        };
        let target = model_named(&names(), "d").unwrap();
        let mut pair = [running("a", 1), running("b", 2)];
        assert_eq!(one.plan(target, &pair).evict, [pair[0].model]);
        pair[1].is_stopping = true;
        assert_eq!(one.plan(target, &pair).evict, [pair[1].model]);
        pair[1].is_stopping = false;
        pair[0].is_pinned = true;
        assert_eq!(one.plan(target, &pair).evict, [pair[1].model]);
        // Both have to stop for this one: it can't run.
        let large = model_named(&names(), "c").unwrap();
        assert_eq!(one.plan(large, &pair).evict.len(), 2);
    }

    #[test]
    fn what_another_policy_has_started_takes_what_is_configured() {
        let one = budget(&[16.0], &[]);
        let id = |name| model_named(&names(), name).unwrap();
        let (a, d) = (Running::new(id("a")), Running::new(id("d")));
        assert_eq!(one.plan(id("c"), &[a]).evict, [a.model]);
        assert_eq!(one.plan(id("b"), &[a]).evict, []);
        assert_eq!(one.plan(id("b"), &[d, a]).evict, [d.model]);
    }

    #[test]
    fn of_several_pools_that_is_chosen_where_the_least_stops() {
        let two = budget(&[16.0, 24.0], &[("c", 5)]);
        for (target, running, expected) in [
            // Where less remains.
            ("a", "", ("", 0)),
            ("a", "0c", ("", 1)),
            ("c", "0a", ("", 1)),
            ("c", "0a 1b 1d", ("a", 0)),
            ("c", "0A 1b 1d", ("b", 1)),
            // It would cost more in the other one.
            ("a", "0c 1b 1d 1e", ("", 1)),
        ] {
            let (evicted, pool) = expected;
            assert_eq!(
                plan(&two, target, running),
                (evicted.to_owned(), pool),
                "{target} beside {running}"
            );
        }
    }

    #[test]
    fn of_equal_pools_that_is_chosen_where_what_stops_was_not_used_for_longer() {
        let two = budget(&[16.0, 16.2], &[]);
        for (running, evicted, pool) in [("0a 1b", "a", 0), ("1b 0a", "b", 1), ("1b", "", 0)] {
            assert_eq!(plan(&two, "c", running), (evicted.to_owned(), pool));
        }
    }

    #[test]
    fn of_several_pools_that_is_chosen_where_nothing_is_still_stopping() {
        let two = budget(&[16.0, 24.0], &[]);
        let id = |name| model_named(&names(), name).unwrap();
        let stopping = Running {
            memory: two.memory(id("a")),
            is_stopping: true,
            ..Running::new(id("a"))
        };
        let plan = |running: &[Running]| {
            let plan = two.plan(id("c"), running);
            (plan.evict, plan.pool)
        };
        assert_eq!(plan(&[stopping]), (vec![], 1));
        // It is waited for before another one stops.
        let other = Running {
            pool: 1,
            memory: two.memory(id("c")),
            ..Running::new(id("b"))
        };
        assert_eq!(plan(&[stopping, other]), (vec![stopping.model], 0));
    }

    #[test]
    fn errors_name_model_and_amounts() {
        let error = |pools: &[f64], models: &[(&str, f64)]| {
            let pools = pools.iter().map(|&size| ("gpu".to_owned(), size));
            let config = MemoryConfig {
                pools: pools.collect(),
                models: models
                    .iter()
                    .map(|(name, memory)| ((*name).to_owned(), *memory))
                    .collect(),
                evict_costs: Vec::new(),
            };
            MemoryBudget::new(&["a".to_owned(), "b".to_owned()], &config)
                .unwrap_err()
                .to_string()
        };
        for (found, expected) in [
            (
                error(&[], &[]),
                "memory: there has to be a budget, or at least one pool",
            ),
            (
                error(&[8.0], &[("a", 1.0)]),
                "model `b`: `memory` is missing",
            ),
            (error(&[8.0], &[("x", 1.0)]), "there is no model `x`"),
            (
                error(&[8.0], &[("a", -1.0)]),
                "memory of `a`: -1 is not between 0 and a billion",
            ),
            (
                error(&[f64::NAN], &[]),
                "memory of `gpu`: NaN is not between 0 and a billion",
            ),
            (
                error(&[8.0, 6.0], &[("a", 9.5)]),
                "model `a` takes 9.5, and the largest pool has 8",
            ),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn costs_beyond_all_measure_are_the_highest() {
        let models = ["a", "b", "c"].map(str::to_owned);
        let config = MemoryConfig {
            pools: vec![("all".to_owned(), 2.0)],
            models: models.iter().cloned().zip([1.0, 1.0, 2.0]).collect(),
            evict_costs: models
                .iter()
                .cloned()
                .map(|name| (name, u64::MAX))
                .collect(),
        };
        let budget = MemoryBudget::new(&models, &config).unwrap();
        let both = [0, 1].map(|id| Running {
            memory: budget.memory(ModelId(id)),
            ..Running::new(ModelId(id))
        });
        let plan = budget.plan(ModelId(2), &both);
        assert_eq!(plan.evict, [ModelId(0), ModelId(1)]);
    }
}
