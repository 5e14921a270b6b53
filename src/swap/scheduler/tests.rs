//! The scheduler in a world without processes: its effects are noted, and end when the test says so.

mod operator;
mod random;
mod simulation;
mod table;
mod tree;

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::swap::swapper::{Group, Groups, MemoryBudget, MemoryConfig};

const SECOND: Nanos = 1_000_000_000;

/// What the scheduler has asked for, and what is the case.
#[derive(Default)]
struct World {
    models: Vec<Process>,
    /// Swaps and stops on their way.
    begun: Vec<Begun>,
    /// What was asked for, in words.
    log: Vec<String>,
    /// Models of which the waiters are to be told that they can't be served.
    failed: Vec<ModelId>,
}

#[derive(Default, Clone, Debug)]
struct Process {
    is_up: bool,
    is_open: bool,
    serves: u32,
    /// The time at which it became idle, if the scheduler has not asked since.
    idled: Option<Nanos>,
    waiting: VecDeque<Head>,
}

#[derive(Debug, Clone)]
struct Begun {
    generation: Generation,
    target: Option<ModelId>,
    stops: Vec<ModelId>,
    is_aborted: bool,
}

impl World {
    fn of(&self, ModelId(model): ModelId) -> &Process {
        &self.models[model as usize]
    }

    fn of_mut(&mut self, ModelId(model): ModelId) -> &mut Process {
        &mut self.models[model as usize]
    }

    /// The log since the last call.
    fn said(&mut self) -> String {
        std::mem::take(&mut self.log).join(", ")
    }
}

/// A model's letter.
fn letter(ModelId(model): ModelId) -> char {
    char::from(b'a' + model as u8)
}

fn letters(models: &[ModelId]) -> String {
    models.iter().copied().map(letter).collect()
}

impl Effects for World {
    fn is_busy(&self, model: ModelId) -> bool {
        self.of(model).serves > 0
    }

    fn take_idled(&mut self, model: ModelId) -> Option<Nanos> {
        self.of_mut(model).idled.take()
    }

    fn open(&mut self, model: ModelId) {
        assert!(self.of(model).is_up);
        self.of_mut(model).is_open = true;
        self.log.push(format!("open {}", letter(model)));
    }

    fn close(&mut self, model: ModelId) {
        self.of_mut(model).is_open = false;
        self.log.push(format!("close {}", letter(model)));
    }

    fn close_if_idle(&mut self, model: ModelId) -> bool {
        let process = self.of_mut(model);
        let is_idle = process.serves == 0;
        process.is_open &= !is_idle;
        is_idle
    }

    fn swap(&mut self, generation: Generation, target: ModelId, plan: &Plan) {
        for &model in &plan.evict {
            assert!(!self.is_busy(model), "a model that serves is stopped");
            assert!(
                !self.of(model).is_open,
                "a model that gives slots is stopped"
            );
        }
        self.log.push(match plan.evict.as_slice() {
            [] => format!("start {}", letter(target)),
            evict => format!("start {} for {}", letter(target), letters(evict)),
        });
        self.begun.push(Begun {
            generation,
            target: Some(target),
            stops: plan.evict.clone(),
            is_aborted: false,
        });
    }

    fn abort(&mut self, generation: Generation) {
        for begun in &mut self.begun {
            begun.is_aborted |= begun.generation == generation;
        }
        self.log.push("abort".to_owned());
    }

    fn stop(&mut self, generation: Generation, model: ModelId) {
        assert!(!self.of(model).is_open);
        self.log.push(format!("stop {}", letter(model)));
        self.begun.push(Begun {
            generation,
            target: None,
            stops: vec![model],
            is_aborted: false,
        });
    }

    fn impossible(&mut self, model: ModelId) {
        self.log.push(format!("fail {}", letter(model)));
        self.failed.push(model);
    }
}

/// A scheduler and its world, in which the room is simple: requests of a model wait in the order in which they came.
struct Test {
    scheduler: Scheduler,
    world: World,
    now: Nanos,
    /// How many requests a model serves at a time.
    slots: u32,
    /// The requests that got a slot.
    granted: Vec<(ModelId, Head)>,
}

impl Test {
    fn new(swapper: Arc<dyn Swapper>, models: usize) -> Self {
        let settings = Settings {
            swap_after: 10 * SECOND,
            min_loaded: 0,
            finishes_abandoned: false,
            backoff: SECOND,
            max_backoff: 60 * SECOND,
            default: None,
            models: vec![Some(ModelSettings::default()); models],
        };
        Self {
            scheduler: Scheduler::new(settings, swapper),
            world: World {
                models: vec![Process::default(); models],
                ..World::default()
            },
            now: 1_000 * SECOND,
            slots: 1,
            granted: Vec::new(),
        }
    }

    /// Each model takes one unit of so many.
    fn with_memory(memory: u32, models: u32) -> Self {
        Self::new(memory_of(memory, models), models as usize)
    }

    /// The configuration of a model.
    fn settings(&mut self, ModelId(model): ModelId) -> &mut ModelSettings {
        let settings = &mut self.scheduler.settings.models[model as usize];
        settings.get_or_insert_default()
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
        if self
            .scheduler
            .next_tick()
            .is_some_and(|tick| tick <= self.now)
        {
            self.scheduler.on_tick(self.now, &mut self.world);
        }
    }

    /// A request arrives.
    fn ask(&mut self, model: ModelId, level: u8) {
        let arrival = self.now;
        let waiting = &mut self.world.of_mut(model).waiting;
        waiting.push_back(Head { level, arrival });
        waiting.make_contiguous().sort();
        self.tell(model);
        self.grant();
    }

    /// A request is served.
    fn serve(&mut self, model: ModelId) {
        let process = self.world.of_mut(model);
        process.serves -= 1;
        if process.serves == 0 {
            process.idled = Some(self.now);
            self.scheduler.on_tick(self.now, &mut self.world);
        }
        self.grant();
    }

    /// The first waiter leaves.
    fn leave(&mut self, model: ModelId) {
        self.world.of_mut(model).waiting.pop_front();
        self.tell(model);
        self.grant();
    }

    fn tell(&mut self, model: ModelId) {
        let head = self.world.of(model).waiting.front().copied();
        self.scheduler
            .on_waiter(model, head, self.now, &mut self.world);
    }

    /// What the room does with free slots.
    fn grant(&mut self) {
        for id in (0..self.world.models.len() as u32).map(ModelId) {
            while self.world.of(id).is_open && self.world.of(id).serves < self.slots {
                let process = self.world.of_mut(id);
                let Some(head) = process.waiting.pop_front() else {
                    break;
                };
                process.serves += 1;
                self.granted.push((id, head));
                self.tell(id);
            }
        }
    }

    /// One step in words, as `ask a`, `ask a 1` (of that level), `serve a`, `use a` (it serves one unseen), `leave a`, `pass_by a 1` (it passes those that wait), `crash a`, `load a`, `unload a`,
    /// `kill a`, `pass 10`; `stopped a`: a swap has stopped it and goes on; `ok` and `fail` end the first swap or stop
    /// on its way. Returns what was asked for.
    fn act(&mut self, step: &str) -> String {
        let mut words = step.split(' ');
        let (verb, object) = (words.next().unwrap(), words.next().unwrap_or("a"));
        let model = ModelId(u32::from(object.as_bytes()[0].wrapping_sub(b'a')));
        match verb {
            "ask" => {
                let level = words.next().map_or(0, |level| level.parse().unwrap());
                self.ask(model, level);
            }
            "serve" => self.serve(model),
            "use" => self.world.of_mut(model).idled = Some(self.now),
            "leave" => self.leave(model),
            "pass_by" => {
                let level = words.next().map_or(0, |level| level.parse().unwrap());
                let arrival = self.now;
                let (passed, now) = (Head { level, arrival }, self.now);
                self.scheduler
                    .on_passed(model, passed, now, &mut self.world);
            }
            "crash" => self.crash(model),
            "load" => (self.scheduler).on_load(model, self.now, &mut self.world),
            "unload" | "kill" => {
                let is_kill = verb == "kill";
                (self.scheduler).on_unload(model, is_kill, self.now, &mut self.world);
            }
            "pass" => self.pass(object.parse().unwrap()),
            "stopped" => self.has_stopped(model),
            "ok" | "fail" => _ = self.end(verb == "ok"),
            _ => panic!("{step}"),
        }
        self.grant();
        self.world.said()
    }

    /// Each step does what is said beside it.
    fn goes(&mut self, steps: &[(&str, &str)]) {
        for (nth, (step, expected)) in steps.iter().enumerate() {
            assert_eq!(
                self.act(step),
                *expected,
                "step {nth}, {step}, of {steps:?}"
            );
        }
    }

    /// Other models: `is_there` says which there are.
    fn reconfigure(&mut self, is_there: &[bool], changed: &[ModelId]) -> String {
        let mut settings = self.scheduler.settings.clone();
        settings.models.resize(is_there.len(), None);
        for (settings, &is_there) in settings.models.iter_mut().zip(is_there) {
            *settings = is_there.then(|| settings.unwrap_or_default());
        }
        self.world.models.resize(is_there.len(), Process::default());
        let swapper = Arc::clone(&self.scheduler.swapper);
        let (now, world) = (self.now, &mut self.world);
        (self.scheduler).on_reconfigure(settings, swapper, changed, now, world);
        self.grant();
        self.world.said()
    }

    /// One of the models that a swap stops has stopped.
    fn has_stopped(&mut self, model: ModelId) {
        let mut begun = self.world.begun.iter_mut();
        let swap = begun.find(|begun| begun.stops.contains(&model)).unwrap();
        swap.stops.retain(|&other| other != model);
        let generation = swap.generation;
        self.world.of_mut(model).is_up = false;
        (self.scheduler).on_stopped(generation, model, self.now, &mut self.world);
    }

    /// A model ends by itself, and its requests with it.
    fn crash(&mut self, model: ModelId) {
        let stops = |begun: &Begun| begun.stops.contains(&model);
        let is_stopping = self.world.begun.iter().any(stops);
        let process = self.world.of_mut(model);
        (process.is_up, process.serves) = (is_stopping, 0);
        self.scheduler.on_exit(model, self.now, &mut self.world);
    }

    /// The first swap or stop on its way ends. `is_well`: what was to start runs.
    fn end(&mut self, is_well: bool) -> bool {
        self.end_nth(0, is_well)
    }

    fn end_nth(&mut self, nth: usize, is_well: bool) -> bool {
        let begun = self.world.begun.remove(nth);
        for &model in &begun.stops {
            self.world.of_mut(model).is_up = false;
        }
        let has_started = is_well && !begun.is_aborted;
        let is_told = match begun.target {
            Some(target) => {
                self.world.of_mut(target).is_up = has_started;
                let (now, world) = (self.now, &mut self.world);
                self.scheduler
                    .on_swap_done(begun.generation, has_started, now, world)
            }
            None => {
                let (now, world) = (self.now, &mut self.world);
                self.scheduler
                    .on_stopped(begun.generation, begun.stops[0], now, world);
                false
            }
        };
        self.grant();
        is_told
    }
}

fn memory_of(memory: u32, models: u32) -> Arc<dyn Swapper> {
    let names: Vec<_> = (0..models)
        .map(|model| letter(ModelId(model)).to_string())
        .collect();
    let config = MemoryConfig {
        pools: vec![("all".to_owned(), memory.into())],
        models: names.iter().map(|name| (name.clone(), 1.0)).collect(),
        evict_costs: Vec::new(),
    };
    Arc::new(MemoryBudget::new(&names, &config).unwrap())
}

/// One model of all at a time.
fn one_at_a_time(models: u32) -> Arc<dyn Swapper> {
    let names: Vec<_> = (0..models)
        .map(|model| letter(ModelId(model)).to_string())
        .collect();
    let group = ("all".to_owned(), Group::new(names.clone()));
    Arc::new(Groups::new(&names, [group]).unwrap())
}
