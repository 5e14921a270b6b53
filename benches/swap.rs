//! Deciding which model is started: what an event costs with 100 models, of which 10 run, and requests for all others.

use std::hint::black_box;
use std::sync::Arc;

use support::{Bench, is_measuring};

/// The code itself: it is not public.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "lints of the crate that it is a part of, where all of it is used"
)]
#[path = "../src/swap"]
mod swap {
    pub mod scheduler;
    pub mod swapper;
}

use swap::scheduler::{Effects, Generation, Head, ModelSettings, Nanos, Scheduler, Settings};
use swap::swapper::{
    Group, Groups, Matrix, MatrixConfig, MemoryBudget, MemoryConfig, ModelId, Plan, Swapper,
};

const MODELS: u32 = 100;
const RUNNING: u32 = 10;
/// Requests that wait for each model that does not run.
const WAITING: u64 = 11;
const SECOND: Nanos = 1_000_000_000;

/// What is asked for is done at once, when the bench says so.
#[derive(Default)]
struct World {
    is_busy: Vec<bool>,
    /// The model that has become idle, and when.
    idled: Option<(ModelId, Nanos)>,
    begun: Vec<(Generation, ModelId, Vec<ModelId>)>,
}

impl Effects for World {
    fn is_busy(&self, ModelId(model): ModelId) -> bool {
        self.is_busy[model as usize]
    }

    fn take_idled(&mut self, model: ModelId) -> Option<Nanos> {
        let (_, at) = self.idled.take_if(|(idled, _)| *idled == model)?;
        Some(at)
    }

    fn open(&mut self, _: ModelId) {}

    fn close(&mut self, _: ModelId) {}

    fn close_if_idle(&mut self, model: ModelId) -> bool {
        !self.is_busy(model)
    }

    fn swap(&mut self, generation: Generation, target: ModelId, plan: &Plan) {
        self.begun.push((generation, target, plan.evict.clone()));
    }

    fn abort(&mut self, _: Generation) {}

    fn stop(&mut self, _: Generation, _: ModelId) {}

    fn impossible(&mut self, _: ModelId) {}
}

struct Test {
    scheduler: Scheduler,
    world: World,
    now: Nanos,
}

impl Test {
    /// The first models run, and serve; requests wait for all others.
    fn new(swapper: Arc<dyn Swapper>) -> Self {
        let settings = Settings {
            swap_after: 10 * SECOND,
            min_loaded: 0,
            finishes_abandoned: false,
            backoff: SECOND,
            max_backoff: SECOND,
            default: None,
            models: vec![Some(ModelSettings::default()); MODELS as usize],
        };
        let mut test = Self {
            scheduler: Scheduler::new(settings, swapper),
            world: World {
                is_busy: vec![false; MODELS as usize],
                ..World::default()
            },
            now: 1_000 * SECOND,
        };
        for model in 0..MODELS {
            // Those that run together are of different kinds.
            let model = ModelId(model * RUNNING % MODELS + model * RUNNING / MODELS);
            test.wait(model, test.now);
            test.end_swaps();
        }
        test
    }

    fn wait(&mut self, model: ModelId, arrival: Nanos) {
        let head = Some(Head { level: 0, arrival });
        (self.scheduler).on_waiter(model, head, self.now, &mut self.world);
    }

    /// All that are being started are ready, and have a request.
    fn end_swaps(&mut self) {
        while let Some((generation, target, evicted)) = self.world.begun.pop() {
            let (now, world) = (self.now, &mut self.world);
            (self.scheduler).on_swap_done(generation, true, now, world);
            self.world.is_busy[target.0 as usize] = true;
            (self.scheduler).on_waiter(target, None, now, &mut self.world);
            for model in evicted {
                self.wait(model, now);
            }
        }
    }

    /// A request joins those that wait, or leaves: a model's first waiter changes, to one that came so long ago.
    fn change(&mut self, nth: u64, ago: Nanos) {
        let model = ModelId((nth * 7 % u64::from(MODELS)) as u32);
        if !self.world.is_busy(model) {
            self.wait(black_box(model), self.now - ago - nth % WAITING);
        }
    }

    /// A model becomes idle, is stopped for another one, and that is ready.
    fn swap(&mut self) {
        self.now += SECOND;
        let mut models = self.world.is_busy.iter();
        let busy = models.position(|is_busy| *is_busy).expect("models run");
        self.world.is_busy[busy] = false;
        self.world.idled = Some((ModelId(busy as u32), self.now));
        (self.scheduler).on_tick(self.now, &mut self.world);
        assert_eq!(self.world.begun.len(), 1);
        self.end_swaps();
    }
}

fn swappers() -> Vec<(&'static str, Arc<dyn Swapper>)> {
    let names: Vec<String> = (0..MODELS).map(|model| format!("m{model}")).collect();
    let kinds = || names.chunks((MODELS / RUNNING) as usize);
    let memory = |pools: usize| MemoryConfig {
        pools: (0..pools)
            .map(|pool| (pool.to_string(), f64::from(RUNNING) / pools as f64 + 0.1))
            .collect(),
        // Of 20 sizes.
        models: (0..)
            .zip(&names)
            .map(|(nth, name)| (name.clone(), 1.0 + f64::from(nth % 20) / 1e4))
            .collect(),
        ..MemoryConfig::default()
    };
    let groups = kinds().enumerate().map(|(nth, models)| {
        let group = Group::new(models.to_vec()).exclusive(false);
        (nth.to_string(), group)
    });
    let kinds: Vec<String> = kinds()
        .map(|models| format!("({})", models.join("|")))
        .collect();
    let matrix = MatrixConfig {
        sets: vec![("all".to_owned(), kinds.join("&"))],
        ..MatrixConfig::default()
    };
    vec![
        (
            "memory, one budget",
            Arc::new(MemoryBudget::new(&names, &memory(1)).expect("valid")),
        ),
        (
            "memory, five pools",
            Arc::new(MemoryBudget::new(&names, &memory(5)).expect("valid")),
        ),
        (
            "groups, ten",
            Arc::new(Groups::new(&names, groups).expect("valid")),
        ),
        (
            "matrix, ten kinds",
            Arc::new(Matrix::new(&names, &matrix).expect("valid")),
        ),
    ]
}

fn main() {
    if is_measuring() {
        println!("\nA decision with {MODELS} models and 1,000 waiting  (goal: ≤ 10 µs)");
        println!(
            "  {:<24} {:>14} {:>14} {:>14}",
            "µs", "no time is up", "all are due", "of a swap"
        );
    }
    for (name, swapper) in swappers() {
        let [mut fresh, mut due, mut swaps] = [(); 3].map(|()| Test::new(Arc::clone(&swapper)));
        let times = Bench::new("", 201, 200)
            .subject("fresh", |n| (0..n).for_each(|nth| fresh.change(nth, 0)))
            .subject("due", |n| {
                (0..n).for_each(|nth| due.change(nth, 100 * SECOND))
            })
            .subject("swap", |n| (0..n).for_each(|_| swaps.swap()))
            .measure();
        let [fresh, due, swap] = times[..] else {
            unreachable!("there are three subjects");
        };
        if is_measuring() {
            println!(
                "  {name:<24} {:>14.2} {:>14.2} {:>14.2}",
                fresh / 1e3,
                due / 1e3,
                swap / 4e3 // idle, ready, served, waiting
            );
        }
    }
}
