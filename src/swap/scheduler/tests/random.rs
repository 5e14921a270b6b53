//! Random requests, ends, failures, unloads and crashes: what has to hold after each step.

use super::*;
use crate::swap::swapper::{Matrix, MatrixConfig};

/// What may run together, said in another way than the swappers say it.
type Permits = Box<dyn Fn(&[ModelId]) -> bool>;

fn swappers() -> Vec<(Arc<dyn Swapper>, Permits)> {
    let names: Vec<_> = (0..5)
        .map(|model| letter(ModelId(model)).to_string())
        .collect();
    let memory = [1.0, 2.0, 3.0, 1.5, 0.5];
    let config = MemoryConfig {
        pools: vec![("all".to_owned(), 4.0)],
        models: names.iter().cloned().zip(memory).collect(),
        evict_costs: Vec::new(),
    };
    let budget = MemoryBudget::new(&names, &config).unwrap();
    let fits =
        move |up: &[ModelId]| up.iter().map(|model| memory[model.0 as usize]).sum::<f64>() <= 4.0;
    let sets = MatrixConfig {
        sets: vec![
            ("one".to_owned(), "(a|b)&c".to_owned()),
            ("two".to_owned(), "c&d|e".to_owned()),
        ],
        ..MatrixConfig::default()
    };
    let matrix = Matrix::new(&names, &sets).unwrap();
    let in_a_set = |up: &[ModelId]| {
        let up = letters(up);
        ["ac", "bc", "cd", "e"]
            .iter()
            .any(|set| up.chars().all(|model| set.contains(model)))
    };
    let groups = [
        ("one".to_owned(), Group::new(["a", "b"])),
        (
            "two".to_owned(),
            Group::new(["c", "d"]).swap(false).exclusive(false),
        ),
    ];
    let groups = Groups::new(&names, groups).unwrap();
    let one_of_each = |up: &[ModelId]| {
        let up = letters(up);
        !(up.contains('a') && up.contains('b'))
    };
    vec![
        (Arc::new(budget), Box::new(fits)),
        (Arc::new(matrix), Box::new(in_a_set)),
        (Arc::new(groups), Box::new(one_of_each)),
    ]
}

/// The models whose processes run: those that are being stopped still do, and those that are being started do once all has
/// stopped that has to.
fn up(test: &Test) -> Vec<ModelId> {
    let starts = |model| {
        let mut begun = test.world.begun.iter();
        begun.any(|begun| begun.target == Some(model) && begun.stops.is_empty())
    };
    let all = (0..5).map(ModelId);
    all.filter(|&model| test.world.of(model).is_up || starts(model))
        .collect()
}

fn step(test: &mut Test, random: &mut fastrand::Rng, is_calm: bool) {
    let model = ModelId(random.u32(..5));
    match random.u32(..if is_calm { 6 } else { 10 }) {
        0..3 => {
            if test.world.of(model).serves > 0 {
                test.serve(model);
            }
        }
        3 | 4 => {
            if !test.world.begun.is_empty() {
                let nth = random.usize(..test.world.begun.len());
                let stops = test.world.begun[nth].stops.first().copied();
                match stops.filter(|_| test.world.begun[nth].target.is_some()) {
                    Some(model) if random.bool() => test.has_stopped(model),
                    _ => _ = test.end_nth(nth, is_calm || random.u8(..5) > 0),
                }
            }
        }
        5 => test.pass(random.u64(..5)),
        6 | 7 => test.ask(model, random.u8(..2)),
        8 => test.leave(model),
        _ => match random.bool() {
            true => {
                let (now, world) = (test.now, &mut test.world);
                test.scheduler.on_unload(model, false, now, world);
            }
            false if test.world.of(model).is_up => test.crash(model),
            false => {}
        },
    }
    test.grant();
}

#[test]
fn no_forbidden_models_run_together_and_every_waiter_is_served() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (swapper, permits) = swappers().swap_remove(random.usize(..3));
        let mut test = Test::new(swapper, 5);
        test.slots = random.u32(1..3);
        test.scheduler.settings.min_loaded = random.u64(..3) * SECOND;
        let ttl = random.u64(..3) * 5 * SECOND;
        (0..5).for_each(|model| test.settings(ModelId(model)).ttl = ttl);
        for _ in 0..400 {
            step(&mut test, &mut random, false);
            let up = up(&test);
            assert!(permits(&up), "seed {seed}: {up:?} run together");
        }
        // No new requests: all that wait are served.
        let waits = |test: &Test| {
            test.world
                .models
                .iter()
                .any(|model| !model.waiting.is_empty())
        };
        let mut steps = 0;
        while waits(&test) {
            step(&mut test, &mut random, true);
            steps += 1;
            assert!(steps < 50_000, "seed {seed}: {:?}", test.world.models);
        }
    }
}
