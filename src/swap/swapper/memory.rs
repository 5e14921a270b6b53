//! A swapper by memory: models run together while they fit.

use super::{InstanceId, Plan, RunningInstance, Swapper};

/// The memory that one instance needs, in the unit of the pools.
#[derive(Debug, Clone)]
pub(crate) struct MemoryNeed {
    /// The name of the model, for errors.
    pub(crate) name: String,
    pub(crate) memory: Option<f64>,
    /// The cost of stopping the instance, at least 1.
    pub(crate) evict_cost: u64,
}

impl MemoryNeed {
    pub(crate) fn new(name: impl Into<String>, memory: impl Into<Option<f64>>) -> Self {
        Self {
            name: name.into(),
            memory: memory.into(),
            evict_cost: 1,
        }
    }
}

/// A [`Swapper`] by memory: the least recently used models stop until the new one fits.
///
/// Models that serve or are being loaded stop last, and pinned ones after them. Of several pools, the one is chosen where
/// the least has to stop, and of equal ones the one whose victim was not used for the longest time.
#[derive(Debug, Clone)]
pub(crate) struct MemoryBudget {
    /// The memory of each pool, in millionths of its unit, so that sums are exact.
    pools: Vec<u64>,
    /// The memory that each instance needs, in the same unit.
    needs: Vec<u64>,
    /// The cost of stopping each instance, at least 1.
    costs: Vec<u64>,
    /// The plan class of each instance, which is the first one that needs as much memory.
    classes: Vec<u32>,
}

impl MemoryBudget {
    /// Returns a budget of named pools for the instances with these needs.
    pub(crate) fn new(pools: &[(String, f64)], instances: &[MemoryNeed]) -> Result<Self, String> {
        let pools = pools.iter().map(|(name, memory)| amount(name, *memory));
        let pools: Vec<u64> = pools.collect::<Result<_, _>>()?;
        let no_pools = "memory: there has to be a budget, or at least one pool";
        let &largest = pools.iter().max().ok_or(no_pools)?;
        let need = |MemoryNeed { name, memory, .. }: &MemoryNeed| {
            let missing = || format!("model `{name}`: `memory` is missing");
            let memory = memory.ok_or_else(missing)?;
            let need = amount(name, memory)?;
            match need <= largest {
                true => Ok(need),
                false => Err(format!(
                    "model `{name}` takes {memory}, and the largest pool has {}",
                    largest as f64 / MILLION
                )),
            }
        };
        let needs: Vec<u64> = instances.iter().map(need).collect::<Result<_, _>>()?;
        let first = |need: &u64| needs.iter().position(|other| other == need);
        let classes = needs.iter().filter_map(first).map(|nth| nth as u32);
        Ok(Self {
            pools,
            classes: classes.collect(),
            needs,
            costs: instances.iter().map(|it| it.evict_cost.max(1)).collect(),
        })
    }

    /// Returns the way to free `needed` memory in a pool.
    fn free<'a>(&self, pool: u32, needed: u64, running: &'a [RunningInstance]) -> FreedPool<'a> {
        let budget = self.pools[pool as usize];
        let mut there: Vec<_> = running.iter().filter(|one| one.pool == pool).collect();
        there.sort_by_key(|one| stop_order(one));
        let fits = |used: u64| used.saturating_add(needed) <= budget;
        let mut used: u64 = there.iter().map(|one| self.taken(one)).sum();
        let mut stops = 0;
        while !fits(used) && stops < there.len() {
            used -= self.taken(there[stops]);
            stops += 1;
        }
        let mut stopped = there;
        stopped.truncate(stops);
        if stops > 1 {
            self.keep(&mut stopped, |one| {
                let taken = self.taken(one);
                let stays = fits(used.saturating_add(taken));
                used += u64::from(stays) * taken;
                stays
            });
        }
        let costs = stopped.iter().map(|one| self.cost(one));
        let running = stopped.iter().filter(|one| !one.is_stopping);
        FreedPool {
            has_pinned: stopped.iter().any(|one| one.is_pinned),
            has_busy: stopped.iter().any(|one| one.is_busy),
            cost: costs.fold(0, u64::saturating_add),
            last_used: running.map(|one| one.last_used).max().unwrap_or(0),
            left: budget.saturating_sub(used.saturating_add(needed)),
            pool,
            stopped,
        }
    }

    /// Takes the instances out of `stopped` that can stay: a large one may have freed enough memory for smaller ones before
    /// it. Pinned ones stay first, then busy ones, the most expensive, and the most recently used, and at last stopping ones.
    fn keep(
        &self,
        stopped: &mut Vec<&RunningInstance>,
        mut stays: impl FnMut(&RunningInstance) -> bool,
    ) {
        stopped.sort_by_key(|one| {
            let cost = u64::MAX - self.cost(one);
            let latest = u64::MAX - one.last_used;
            let is_busy = one.is_busy;
            (!one.is_pinned, one.is_stopping, !is_busy, cost, latest)
        });
        stopped.retain(|one| !stays(one));
    }

    /// Returns the memory that an instance takes: by its plan, or as it is configured now if another policy started it.
    fn taken(&self, one: &RunningInstance) -> u64 {
        match one.memory {
            0 => self.need(one.id),
            planned => planned,
        }
    }

    /// Returns the memory that an instance needs, or 0 for one without configuration.
    fn need(&self, InstanceId(id): InstanceId) -> u64 {
        self.needs.get(id as usize).copied().unwrap_or(0)
    }

    fn cost(&self, one: &RunningInstance) -> u64 {
        let cost = self.costs.get(one.id.0 as usize).copied().unwrap_or(1);
        u64::from(!one.is_stopping) * cost
    }
}

/// A way to free memory in a pool.
struct FreedPool<'a> {
    has_pinned: bool,
    has_busy: bool,
    /// The total cost of all stops.
    cost: u64,
    /// The last use of an instance that stops.
    last_used: u64,
    /// The memory that stays free beside the target.
    left: u64,
    pool: u32,
    stopped: Vec<&'a RunningInstance>,
}

impl FreedPool<'_> {
    /// Returns a rank: the pool with the lowest is chosen. Of otherwise equal pools, that is the tightest fit, which leaves
    /// more memory in the others.
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

/// Returns a key that sorts instances in the order in which they stop.
fn stop_order(one: &RunningInstance) -> (u8, u64) {
    let class =
        4 * u8::from(one.is_pinned) + 2 * u8::from(!one.is_stopping) + u8::from(one.is_busy);
    (class, one.last_used)
}

impl Swapper for MemoryBudget {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        let needed = self.need(target);
        // A pool that is too small for the target is left out.
        let pools =
            (0..self.pools.len() as u32).filter(|&pool| self.pools[pool as usize] >= needed);
        let freed = pools.map(|pool| self.free(pool, needed, running));
        // Of equal pools, the first one wins.
        let Some(best) = freed.min_by_key(FreedPool::rank) else {
            return Plan::default();
        };
        let evicted = running.iter().filter(|one| best.stopped.contains(one));
        Plan {
            evict: evicted.map(|one| one.id).collect(),
            pool: best.pool,
            memory: needed,
        }
    }

    fn excess(&self, running: &[RunningInstance]) -> Vec<InstanceId> {
        let mut excess = Vec::new();
        for pool in 0..self.pools.len() as u32 {
            let stopped = self.free(pool, 0, running).stopped;
            let running = stopped.iter().filter(|one| !one.is_stopping);
            excess.extend(running.map(|one| one.id));
        }
        excess
    }

    fn plan_class(&self, InstanceId(target): InstanceId) -> u32 {
        self.classes.get(target as usize).copied().unwrap_or(target)
    }
}

/// The number of parts of a unit of memory.
const MILLION: f64 = 1e6;

/// Returns an amount of memory in millionths of the unit.
fn amount(name: &str, memory: f64) -> Result<u64, String> {
    match (0.0..=1e9).contains(&memory) {
        true => Ok((memory * MILLION).round() as u64),
        false => Err(format!(
            "memory of `{name}`: {memory} is not between 0 and a billion"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: [(&str, f64); 5] = [("a", 8.0), ("b", 8.0), ("c", 16.0), ("d", 0.1), ("e", 0.2)];

    fn budget(pools: &[f64], costs: &[(&str, u64)]) -> MemoryBudget {
        let pools = pools.iter().enumerate();
        let pools: Vec<_> = pools
            .map(|(nth, size)| (format!("gpu{nth}"), *size))
            .collect();
        let needs = MODELS.map(|(name, memory)| {
            let cost = costs.iter().find(|(model, _)| *model == name);
            MemoryNeed {
                evict_cost: cost.map_or(1, |(_, cost)| *cost),
                ..MemoryNeed::new(name, memory)
            }
        });
        MemoryBudget::new(&pools, &needs).unwrap()
    }

    fn id(name: &str) -> InstanceId {
        let mut names = MODELS.iter();
        let nth = names.position(|(model, _)| *model == name.to_lowercase());
        InstanceId(nth.unwrap() as u32)
    }

    /// Returns the models that stop for `target`, and its pool. `running` has pools and models, in capitals if they are busy,
    /// the least recently used one first.
    fn plan(budget: &MemoryBudget, target: &str, running: &str) -> (String, u32) {
        let running = running
            .split_terminator(' ')
            .zip(1..)
            .map(|(one, last_used)| {
                let (pool, name) = one.split_at(1);
                RunningInstance {
                    pool: pool.parse().unwrap(),
                    memory: budget.need(id(name)),
                    last_used,
                    is_busy: name.chars().all(char::is_uppercase),
                    ..RunningInstance::new(id(name))
                }
            });
        let plan = budget.plan(id(target), &running.collect::<Vec<_>>());
        let evict = plan.evict.iter().map(|id| MODELS[id.0 as usize].0);
        (evict.collect::<Vec<_>>().join(" "), plan.pool)
    }

    #[test]
    fn the_least_recently_used_stops_until_the_target_fits() {
        let one = budget(&[24.0], &[]);
        for (target, running, expected) in [
            ("a", "", ""),
            ("a", "0c", ""),
            ("c", "0a", ""),
            ("c", "0a 0b", "a"),
            ("c", "0b 0a", "b"),
            ("b", "0a 0c", "a"),
            ("b", "0c 0a", "c"),
        ] {
            assert_eq!(
                plan(&one, target, running),
                (expected.to_owned(), 0),
                "{target} beside {running}"
            );
        }
    }

    #[test]
    fn as_few_as_possible_stop() {
        let one = budget(&[16.2], &[]);
        // a alone does not make room for c, and b does with it; d need not stop.
        assert_eq!(plan(&one, "c", "0d 0a 0b").0, "a b");
        // Exactly, where a sum of fractions is not.
        assert_eq!(plan(&budget(&[16.3], &[]), "d", "0a 0b 0e").0, "");
    }

    #[test]
    fn the_excess_of_a_smaller_budget_stops() {
        let running = |name, last_used| RunningInstance {
            memory: budget(&[32.0], &[]).need(id(name)),
            last_used,
            ..RunningInstance::new(id(name))
        };
        let all = [running("a", 2), running("b", 1), running("c", 3)];
        for (memory, excess) in [(32.0, &[][..]), (24.0, &["b"]), (16.0, &["a", "b"])] {
            let expected: Vec<_> = excess.iter().copied().map(id).collect();
            assert_eq!(budget(&[memory], &[]).excess(&all), expected, "{memory}");
        }
    }

    #[test]
    fn the_dearest_model_stays() {
        let dear = budget(&[24.0], &[("b", 9)]);
        assert_eq!(plan(&dear, "c", "0b 0a").0, "b");
        let room_for_one = budget(&[25.0], &[("a", 9)]);
        assert_eq!(plan(&room_for_one, "c", "0a 0d 0b").0, "a");
    }

    #[test]
    fn a_busy_model_stops_last() {
        let one = budget(&[24.0], &[]);
        assert_eq!(plan(&one, "c", "0A 0b").0, "b");
        assert_eq!(plan(&one, "c", "0A 0B").0, "A".to_lowercase());
    }

    #[test]
    fn a_stopping_model_goes_first_and_a_pinned_one_last() {
        let one = budget(&[16.0], &[("b", 9)]);
        let running = |name: &str, last_used: u64| RunningInstance {
            memory: one.need(id(name)),
            last_used,
            ..RunningInstance::new(id(name))
        };
        let target = id("d");
        let mut pair = [running("a", 1), running("b", 2)];
        assert_eq!(one.plan(target, &pair).evict, [pair[0].id]);
        pair[1].is_stopping = true;
        assert_eq!(one.plan(target, &pair).evict, [pair[1].id]);
        pair[1].is_stopping = false;
        pair[0].is_pinned = true;
        assert_eq!(one.plan(target, &pair).evict, [pair[1].id]);
        // Both have to stop for this one: it can't run.
        let large = id("c");
        assert_eq!(one.plan(large, &pair).evict.len(), 2);
    }

    #[test]
    fn a_model_of_another_policy_takes_its_configured_memory() {
        let one = budget(&[16.0], &[]);
        let (a, d) = (RunningInstance::new(id("a")), RunningInstance::new(id("d")));
        assert_eq!(one.plan(id("c"), &[a]).evict, [a.id]);
        assert_eq!(one.plan(id("b"), &[a]).evict, []);
        assert_eq!(one.plan(id("b"), &[d, a]).evict, [d.id]);
    }

    #[test]
    fn the_pool_where_the_least_stops_wins() {
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
    fn the_pool_with_the_older_victim_wins() {
        let two = budget(&[16.0, 16.2], &[]);
        for (running, evicted, pool) in [("0a 1b", "a", 0), ("1b 0a", "b", 1), ("1b", "", 0)] {
            assert_eq!(plan(&two, "c", running), (evicted.to_owned(), pool));
        }
    }

    #[test]
    fn a_pool_without_a_pending_stop_wins() {
        let two = budget(&[16.0, 24.0], &[]);
        let stopping = RunningInstance {
            memory: two.need(id("a")),
            is_stopping: true,
            ..RunningInstance::new(id("a"))
        };
        let plan = |running: &[RunningInstance]| {
            let plan = two.plan(id("c"), running);
            (plan.evict, plan.pool)
        };
        assert_eq!(plan(&[stopping]), (vec![], 1));
        // It is waited for before another one stops.
        let other = RunningInstance {
            pool: 1,
            memory: two.need(id("c")),
            ..RunningInstance::new(id("b"))
        };
        assert_eq!(plan(&[stopping, other]), (vec![stopping.id], 0));
    }

    #[test]
    fn errors_name_model_and_amounts() {
        let error = |pools: &[f64], models: &[(&str, f64)]| {
            let pools = pools.iter().map(|&size| ("gpu".to_owned(), size));
            let needs = ["a", "b"].map(|name| {
                let need = models.iter().find(|(model, _)| *model == name);
                MemoryNeed::new(name, need.map(|(_, memory)| *memory))
            });
            let budget = MemoryBudget::new(&pools.collect::<Vec<_>>(), &needs);
            budget.unwrap_err()
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
    fn sums_of_costs_saturate() {
        let needs = [("a", 1.0), ("b", 1.0), ("c", 2.0)].map(|(name, memory)| MemoryNeed {
            evict_cost: u64::MAX,
            ..MemoryNeed::new(name, memory)
        });
        let budget = MemoryBudget::new(&[("all".to_owned(), 2.0)], &needs).unwrap();
        let both = [0, 1].map(|id| RunningInstance {
            memory: budget.need(InstanceId(id)),
            ..RunningInstance::new(InstanceId(id))
        });
        let plan = budget.plan(InstanceId(2), &both);
        assert_eq!(plan.evict, [InstanceId(0), InstanceId(1)]);
    }
}
