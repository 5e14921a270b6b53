//! The scheduler of models: the cost of an event with 100 models, of which 10 run, and requests for all others.

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

use swap::scheduler::{
    AbandonedLoad, Effects, InstanceHead, InstanceSettings, Nanos, Schedule, Scheduler,
    SchedulerSettings,
};
use swap::swapper::{
    Group, Groups, InstanceId, Matrix, MatrixConfig, MemoryBudget, MemoryNeed, Plan, Swapper,
};

const MODELS: u32 = 100;
const RUNNING: u32 = 10;
/// Requests that wait for each model that does not run.
const WAITING: u64 = 11;
const SECOND: Nanos = 1_000_000_000;

/// A world in which effects end when the bench ends them.
#[derive(Default)]
struct World {
    schedules: Vec<Schedule>,
    is_busy: Vec<bool>,
    /// The model that became idle, and the time.
    idled: Option<(InstanceId, Nanos)>,
    begun: Vec<(InstanceId, Vec<InstanceId>)>,
    now: Nanos,
}

impl Effects for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn count(&self) -> usize {
        self.schedules.len()
    }

    fn schedule(&self, InstanceId(id): InstanceId) -> &Schedule {
        &self.schedules[id as usize]
    }

    fn schedule_mut(&mut self, InstanceId(id): InstanceId) -> &mut Schedule {
        &mut self.schedules[id as usize]
    }

    fn is_busy(&self, InstanceId(model): InstanceId) -> bool {
        self.is_busy[model as usize]
    }

    fn take_idled(&mut self, model: InstanceId) -> Option<Nanos> {
        let (_, at) = self.idled.take_if(|(idled, _)| *idled == model)?;
        Some(at)
    }

    fn open(&mut self, _: InstanceId) {}

    fn close(&mut self, _: InstanceId) {}

    fn close_if_idle(&mut self, model: InstanceId) -> bool {
        !self.is_busy(model)
    }

    fn swap(&mut self, target: InstanceId, plan: &Plan) {
        self.begun.push((target, plan.evict.clone()));
    }

    fn abort(&mut self, _: InstanceId) {}

    fn stop(&mut self, _: InstanceId) {}

    fn impossible(&mut self, _: InstanceId) {}
}

struct Test {
    scheduler: Scheduler,
    world: World,
}

impl Test {
    /// Returns a test in which the first models run and serve, and requests wait for all others.
    fn new(swapper: Arc<dyn Swapper>) -> Self {
        let settings = SchedulerSettings {
            swap_after: 10 * SECOND,
            min_loaded: 0,
            abandoned_load: AbandonedLoad::default(),
            default: None,
        };
        let mut schedule = Schedule::default();
        schedule.settings = Some(InstanceSettings::default());
        let mut world = World {
            is_busy: vec![false; MODELS as usize],
            schedules: vec![schedule; MODELS as usize],
            now: 1_000 * SECOND,
            ..World::default()
        };
        let mut test = Self {
            scheduler: Scheduler::new(settings, swapper, &mut world),
            world,
        };
        for model in 0..MODELS {
            // Models that run together are of different classes.
            let model = InstanceId(model * RUNNING % MODELS + model * RUNNING / MODELS);
            test.wait(model, test.world.now);
            test.end_swaps();
        }
        test
    }

    fn wait(&mut self, model: InstanceId, arrival: Nanos) {
        let head = Some(InstanceHead { level: 0, arrival });
        (self.scheduler).on_head(model, head, &mut self.world);
    }

    /// Ends all swaps. Each target is ready, and has a request.
    fn end_swaps(&mut self) {
        while let Some((target, evicted)) = self.world.begun.pop() {
            let (now, world) = (self.world.now, &mut self.world);
            for &model in &evicted {
                (self.scheduler).on_stopped(model, world);
            }
            (self.scheduler).on_swap_done(target, true, world);
            self.world.is_busy[target.0 as usize] = true;
            (self.scheduler).on_head(target, None, &mut self.world);
            for model in evicted {
                self.wait(model, now);
            }
        }
    }

    /// Changes a model's first waiter, to one that came so long `ago`.
    fn change(&mut self, nth: u64, ago: Nanos) {
        let model = InstanceId((nth * 7 % u64::from(MODELS)) as u32);
        if !self.world.is_busy(model) {
            self.wait(black_box(model), self.world.now - ago - nth % WAITING);
        }
    }

    /// Makes a model idle, so that another one takes its place.
    fn swap(&mut self) {
        self.world.now += SECOND;
        let mut models = self.world.is_busy.iter();
        let busy = models.position(|is_busy| *is_busy).expect("models run");
        self.world.is_busy[busy] = false;
        self.world.idled = Some((InstanceId(busy as u32), self.world.now));
        (self.scheduler).decide(&mut self.world);
        assert_eq!(self.world.begun.len(), 1);
        self.end_swaps();
    }
}

fn swappers() -> Vec<(&'static str, Arc<dyn Swapper>)> {
    let names: Vec<String> = (0..MODELS).map(|model| format!("m{model}")).collect();
    let classes = || names.chunks((MODELS / RUNNING) as usize);
    let memory = |pools: usize| {
        let size = f64::from(RUNNING) / pools as f64 + 0.1;
        let pools: Vec<_> = (0..pools).map(|pool| (pool.to_string(), size)).collect();
        // Of 20 sizes.
        let needs: Vec<_> = (0..)
            .zip(&names)
            .map(|(nth, name)| MemoryNeed::new(name, 1.0 + f64::from(nth % 20) / 1e4))
            .collect();
        Arc::new(MemoryBudget::new(&pools, &needs).expect("valid"))
    };
    let groups = classes().enumerate().map(|(nth, models)| {
        let group = Group {
            exclusive: false,
            ..Group::new(models.to_vec())
        };
        (nth.to_string(), group)
    });
    let classes: Vec<String> = classes()
        .map(|models| format!("({})", models.join("|")))
        .collect();
    let matrix = MatrixConfig {
        sets: vec![("all".to_owned(), classes.join("&"))],
        ..MatrixConfig::default()
    };
    vec![
        ("memory, one budget", memory(1)),
        ("memory, five pools", memory(5)),
        (
            "groups, ten",
            Arc::new(Groups::new(&names, groups).expect("valid")),
        ),
        (
            "matrix, ten classes",
            Arc::new(Matrix::new(&names, &[], &matrix).expect("valid")),
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
                swap / 5e3 // idle, stopped, ready, served, waiting
            );
        }
    }
}
