//! Random requests, ends, failures, unloads and crashes: what has to hold after each step.

use super::*;
use crate::swap::swapper::{Matrix, MatrixConfig};

const MODELS: u32 = 5;

/// What may run together, said in another way than the swappers say it.
type Permits = Box<dyn Fn(&[InstanceId]) -> bool>;

fn swappers() -> Vec<(Arc<dyn Swapper>, Permits)> {
    let names: Vec<_> = (0..MODELS)
        .map(|model| letter(InstanceId(model)).to_string())
        .collect();
    let memory = [1.0, 2.0, 3.0, 1.0, 0.5];
    let fits = move |up: &[InstanceId]| {
        up.iter().map(|model| memory[model.0 as usize]).sum::<f64>() <= 4.0
    };
    let sets = MatrixConfig {
        sets: vec![
            ("one".to_owned(), "(a|b)&c".to_owned()),
            ("two".to_owned(), "c&d|e".to_owned()),
        ],
        ..MatrixConfig::default()
    };
    let matrix = Matrix::new(&names, &[], &sets).unwrap();
    let in_a_set = |up: &[InstanceId]| {
        let up = letters(up);
        ["ac", "bc", "cd", "e"]
            .iter()
            .any(|set| up.chars().all(|model| set.contains(model)))
    };
    let groups = [
        ("one".to_owned(), Group::new(["a", "b"])),
        (
            "two".to_owned(),
            Group {
                swap: false,
                exclusive: false,
                ..Group::new(["c", "d"])
            },
        ),
    ];
    let groups = Groups::new(&names, groups).unwrap();
    let one_of_each = |up: &[InstanceId]| {
        let up = letters(up);
        !(up.contains('a') && up.contains('b'))
    };
    vec![
        (budget(4.0, &memory), Box::new(fits)),
        (Arc::new(matrix), Box::new(in_a_set)),
        (Arc::new(groups), Box::new(one_of_each)),
    ]
}

/// The models that run as processes: those that are being stopped still do, and those that are being started do once all has
/// stopped that has to.
fn up(test: &Test) -> Vec<InstanceId> {
    let starts = |model| {
        let mut begun = test.world.begun.iter();
        begun.any(|begun| begun.target == Some(model) && begun.stops.is_empty())
    };
    let all = (0..MODELS).map(InstanceId);
    all.filter(|&model| test.world.of(model).is_up || starts(model))
        .collect()
}

/// The waiters of a model are told that they can't be served.
fn reject(test: &mut Test, model: InstanceId) {
    test.world.of_mut(model).waiting.clear();
    test.tell(model);
}

/// `is_calm`: no new requests, and nothing else from outside. `may_fail`: a model may fail to start.
fn step(test: &mut Test, random: &mut fastrand::Rng, is_calm: bool, may_fail: bool) {
    let model = InstanceId(random.u32(..MODELS));
    match random.u32(..if is_calm { 6 } else { 12 }) {
        0..3 if test.world.of(model).serves > 0 => test.serve(model),
        3 | 4 if !test.world.begun.is_empty() => {
            let nth = random.usize(..test.world.begun.len());
            let begun = &test.world.begun[nth];
            let target = begun.target;
            match begun.stops.first().filter(|_| target.is_some()) {
                Some(&model) if random.bool() => test.has_stopped(model),
                _ => {
                    let is_told = test.end_nth(nth, !may_fail || random.u8(..5) > 0);
                    if let Some(target) = target.filter(|_| is_told) {
                        reject(test, target);
                    }
                }
            }
        }
        5 => test.pass(random.u64(..5)),
        6 | 7 if test.world.schedule(model).settings.is_some() => test.ask(model, random.u8(..2)),
        8 => test.leave(model),
        9 => match random.u8(..3) {
            0 => {
                test.scheduler.on_unload(model, false, &mut test.world);
            }
            1 => (test.scheduler).on_load(model, &mut test.world),
            _ if test.world.of(model).is_up => test.crash(model),
            _ => {}
        },
        10 if random.u8(..10) == 0 => {
            let is_pinned = |model| {
                let settings = test.world.schedule(InstanceId(model)).settings;
                settings.is_some_and(|model| model.is_pinned)
            };
            let stays = |model| is_pinned(model) || random.u8(..5) > 0;
            let is_there: Vec<bool> = (0..MODELS).map(stays).collect();
            test.reconfigure(&is_there, &[model]);
            for (model, _) in (0..)
                .map(InstanceId)
                .zip(is_there)
                .filter(|(_, there)| !there)
            {
                reject(test, model);
            }
        }
        _ => {}
    }
    for model in std::mem::take(&mut test.world.failed) {
        reject(test, model);
    }
    test.grant();
}

/// A test with anything that can be configured.
fn any(random: &mut fastrand::Rng) -> (Test, Permits) {
    let (swapper, permits) = swappers().swap_remove(random.usize(..3));
    let mut test = Test::new(swapper, MODELS as usize);
    test.slots = random.u32(1..3);
    let settings = &mut test.scheduler.settings;
    settings.min_loaded = random.u64(..3) * SECOND;
    settings.abandoned_load = [
        AbandonedLoad::Yield,
        AbandonedLoad::Abort,
        AbandonedLoad::Finish,
    ][random.usize(..3)];
    settings.default = Some(InstanceId(random.u32(..MODELS))).filter(|_| random.bool());
    let ttl = random.u64(..3) * 5 * SECOND;
    (0..MODELS).for_each(|model| test.settings(InstanceId(model)).ttl = ttl);
    (test, permits)
}

/// Nothing from outside any more: all that wait are served or told.
fn run_out(test: &mut Test, random: &mut fastrand::Rng, may_fail: bool, seed: u64) {
    let waits = |test: &Test| {
        let mut models = test.world.models.iter();
        models.any(|model| !model.waiting.is_empty())
    };
    let mut steps = 0;
    while waits(test) {
        step(test, random, true, may_fail);
        steps += 1;
        assert!(steps < 50_000, "seed {seed}: {:?}", test.world.models);
    }
}

#[test]
fn no_forbidden_models_run_together_and_every_waiter_is_served() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut test, permits) = any(&mut random);
        for _ in 0..400 {
            step(&mut test, &mut random, false, true);
            let up = up(&test);
            assert!(permits(&up), "seed {seed}: {up:?} run together");
        }
        run_out(&mut test, &mut random, seed % 2 == 0, seed);
    }
}

/// A swapper with a class for each instance.
#[derive(Debug)]
struct WithoutClasses(Arc<dyn Swapper>);

impl Swapper for WithoutClasses {
    fn plan(&self, target: InstanceId, running: &[RunningInstance]) -> Plan {
        self.0.plan(target, running)
    }

    fn regards_use(&self) -> bool {
        self.0.regards_use()
    }
}

#[test]
fn classes_change_no_decision() {
    for seed in 0..300 {
        let mut randoms = [(); 2].map(|()| fastrand::Rng::with_seed(seed));
        let [mut test, mut other] = [0, 1].map(|nth: usize| any(&mut randoms[nth]).0);
        let swapper = Arc::new(WithoutClasses(Arc::clone(&other.scheduler.swapper)));
        let settings = other.scheduler.settings.clone();
        other.scheduler = Scheduler::new(settings, swapper, &mut other.world);
        for nth in 0..400 {
            step(&mut test, &mut randoms[0], false, true);
            step(&mut other, &mut randoms[1], false, true);
            let (log, expected) = (test.world.take_log(), other.world.take_log());
            assert_eq!(log, expected, "seed {seed}, step {nth}");
        }
    }
}

#[test]
fn no_pinned_model_is_stopped_for_another() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut test, permits) = any(&mut random);
        let pinned = InstanceId(random.u32(..MODELS));
        test.settings(pinned).is_pinned = true;
        for _ in 0..400 {
            step(&mut test, &mut random, false, true);
            let mut swaps = test
                .world
                .begun
                .iter()
                .filter(|begun| begun.target.is_some());
            let is_evicted = swaps.any(|swap| swap.stops.contains(&pinned));
            // One that is unloaded makes room for others.
            let is_leaving = test.world.schedule(pinned).is_leaving;
            assert!(!is_evicted || is_leaving, "seed {seed}: {pinned:?}");
            assert!(permits(&up(&test)), "seed {seed}: {:?}", up(&test));
        }
        run_out(&mut test, &mut random, true, seed);
    }
}
