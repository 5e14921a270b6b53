//! The scheduler in a world without processes: its effects are logged, and end when the test ends them.

mod operator;
mod random;
mod simulation;
mod table;
mod tree;

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::swap::swapper::{Group, Groups, MemoryBudget, MemoryNeed};

const SECOND: Nanos = 1_000_000_000;

/// The state of the world, and the effects that the scheduler asked for.
#[derive(Default)]
struct World {
    models: Vec<Process>,
    /// The swaps and stops in progress.
    begun: Vec<Begun>,
    /// The effects that the scheduler asked for, in words.
    log: Vec<String>,
    /// The instances whose waiters are to be told that they can't be served.
    failed: Vec<InstanceId>,
    now: Nanos,
}

#[derive(Default, Clone, Debug)]
struct Process {
    schedule: Schedule,
    is_up: bool,
    is_open: bool,
    serves: u32,
    /// The time at which it became idle, if the scheduler has not asked since.
    idled: Option<Nanos>,
    waiting: VecDeque<InstanceHead>,
}

#[derive(Debug, Clone)]
struct Begun {
    target: Option<InstanceId>,
    stops: Vec<InstanceId>,
    is_aborted: bool,
}

impl World {
    fn of(&self, InstanceId(model): InstanceId) -> &Process {
        &self.models[model as usize]
    }

    fn of_mut(&mut self, InstanceId(model): InstanceId) -> &mut Process {
        &mut self.models[model as usize]
    }

    /// Returns the log since the last call.
    fn take_log(&mut self) -> String {
        std::mem::take(&mut self.log).join(", ")
    }
}

/// Returns the letter of an instance.
fn letter(InstanceId(model): InstanceId) -> char {
    char::from(b'a' + model as u8)
}

fn letters(models: &[InstanceId]) -> String {
    models.iter().copied().map(letter).collect()
}

impl Effects for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn count(&self) -> usize {
        self.models.len()
    }

    fn schedule(&self, id: InstanceId) -> &Schedule {
        &self.of(id).schedule
    }

    fn schedule_mut(&mut self, id: InstanceId) -> &mut Schedule {
        &mut self.of_mut(id).schedule
    }

    fn is_busy(&self, model: InstanceId) -> bool {
        self.of(model).serves > 0
    }

    fn take_idled(&mut self, model: InstanceId) -> Option<Nanos> {
        self.of_mut(model).idled.take()
    }

    fn open(&mut self, model: InstanceId) {
        assert!(self.of(model).is_up);
        self.of_mut(model).is_open = true;
        self.log.push(format!("open {}", letter(model)));
    }

    fn close(&mut self, model: InstanceId) {
        self.of_mut(model).is_open = false;
        self.log.push(format!("close {}", letter(model)));
    }

    fn close_if_idle(&mut self, model: InstanceId) -> bool {
        let process = self.of_mut(model);
        let is_idle = process.serves == 0;
        process.is_open &= !is_idle;
        is_idle
    }

    fn swap(&mut self, target: InstanceId, plan: &Plan) {
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
            target: Some(target),
            stops: plan.evict.clone(),
            is_aborted: false,
        });
    }

    fn abort(&mut self, target: InstanceId) {
        for begun in &mut self.begun {
            begun.is_aborted |= begun.target == Some(target);
        }
        self.log.push("abort".to_owned());
    }

    fn stop(&mut self, model: InstanceId) {
        assert!(!self.of(model).is_open);
        self.log.push(format!("stop {}", letter(model)));
        self.begun.push(Begun {
            target: None,
            stops: vec![model],
            is_aborted: false,
        });
    }

    fn impossible(&mut self, model: InstanceId) {
        self.log.push(format!("fail {}", letter(model)));
        self.failed.push(model);
    }
}

/// A scheduler and its world, in which the room is simple: requests of a model wait in the order in which they came.
struct Test {
    scheduler: Scheduler,
    world: World,
    /// How many requests a model serves at a time.
    slots: u32,
    /// The requests that got a slot.
    granted: Vec<(InstanceId, InstanceHead)>,
}

impl Test {
    fn new(swapper: Arc<dyn Swapper>, models: usize) -> Self {
        let settings = SchedulerSettings {
            swap_after: 10 * SECOND,
            min_loaded: 0,
            abandoned_load: AbandonedLoad::Yield,
            default: None,
        };
        let mut process = Process::default();
        process.schedule.settings = Some(InstanceSettings::default());
        let mut world = World {
            models: vec![process; models],
            now: 1_000 * SECOND,
            ..World::default()
        };
        Self {
            scheduler: Scheduler::new(settings, swapper, &mut world),
            world,
            slots: 1,
            granted: Vec::new(),
        }
    }

    /// Returns a test in which each instance takes one unit of memory.
    fn with_memory(memory: u32, models: u32) -> Self {
        Self::new(memory_of(memory, models), models as usize)
    }

    /// Returns the configuration of an instance.
    fn settings(&mut self, InstanceId(model): InstanceId) -> &mut InstanceSettings {
        let schedule = &mut self.world.models[model as usize].schedule;
        schedule.settings.get_or_insert_default()
    }

    fn pass(&mut self, seconds: u64) {
        self.world.now += seconds * SECOND;
        if self
            .scheduler
            .next_tick()
            .is_some_and(|tick| tick <= self.world.now)
        {
            self.scheduler.decide(&mut self.world);
        }
    }

    /// A request arrives.
    fn ask(&mut self, model: InstanceId, level: u8) {
        let arrival = self.world.now;
        let waiting = &mut self.world.of_mut(model).waiting;
        waiting.push_back(InstanceHead { level, arrival });
        waiting.make_contiguous().sort();
        self.tell(model);
        self.grant();
    }

    /// A request is served.
    fn serve(&mut self, model: InstanceId) {
        let now = self.world.now;
        let process = self.world.of_mut(model);
        process.serves -= 1;
        if process.serves == 0 {
            process.idled = Some(now);
            self.scheduler.decide(&mut self.world);
        }
        self.grant();
    }

    /// The first waiter leaves.
    fn leave(&mut self, model: InstanceId) {
        self.world.of_mut(model).waiting.pop_front();
        self.tell(model);
        self.grant();
    }

    fn tell(&mut self, model: InstanceId) {
        let head = self.world.of(model).waiting.front().copied();
        self.scheduler.on_head(model, head, &mut self.world);
    }

    /// Grants free slots to waiters, as the room does.
    fn grant(&mut self) {
        for id in (0..self.world.models.len() as u32).map(InstanceId) {
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

    /// Takes one step in words: `ask a`, `ask a 1` (of that level), `serve a`, `use a` (it serves one unseen), `leave a`,
    /// `overtake a 1` (a request of that level overtakes those that wait), `crash a`, `load a`, `unload a`, `kill a`,
    /// `pass 10`; `stopped a`: a swap has stopped it and goes on; `ok` and `fail` end the first swap or stop in progress.
    /// Returns the effects.
    fn act(&mut self, step: &str) -> String {
        let mut words = step.split(' ');
        let (verb, object) = (words.next().unwrap(), words.next().unwrap_or("a"));
        let model = InstanceId(u32::from(object.as_bytes()[0].wrapping_sub(b'a')));
        match verb {
            "ask" => {
                let level = words.next().map_or(0, |level| level.parse().unwrap());
                self.ask(model, level);
            }
            "serve" => self.serve(model),
            "use" => {
                let now = self.world.now;
                self.world.of_mut(model).idled = Some(now);
            }
            "leave" => self.leave(model),
            "overtake" => {
                let level = words.next().map_or(0, |level| level.parse().unwrap());
                let arrival = self.world.now;
                let overtake = InstanceHead { level, arrival };
                self.scheduler.on_overtake(model, overtake, &mut self.world);
            }
            "crash" => self.crash(model),
            "load" => (self.scheduler).on_load(model, &mut self.world),
            "unload" | "kill" => {
                let is_kill = verb == "kill";
                (self.scheduler).on_unload(model, is_kill, &mut self.world);
            }
            "release" => (self.scheduler).on_release(model, &mut self.world),
            "pass" => self.pass(object.parse().unwrap()),
            "stopped" => self.has_stopped(model),
            "ok" | "fail" => _ = self.end(verb == "ok"),
            _ => panic!("{step}"),
        }
        self.grant();
        self.world.take_log()
    }

    /// Takes steps, and compares the effects of each.
    fn goes(&mut self, steps: &[(&str, &str)]) {
        for (nth, (step, expected)) in steps.iter().enumerate() {
            assert_eq!(
                self.act(step),
                *expected,
                "step {nth}, {step}, of {steps:?}"
            );
        }
    }

    /// Reconfigures the scheduler with the instances for which `is_there` is `true`.
    fn reconfigure(&mut self, is_there: &[bool], changed: &[InstanceId]) -> String {
        self.world.models.resize(is_there.len(), Process::default());
        for (process, &is_there) in self.world.models.iter_mut().zip(is_there) {
            let settings = process.schedule.settings.unwrap_or_default();
            process.schedule.settings = is_there.then_some(settings);
        }
        let settings = self.scheduler.settings.clone();
        let swapper = Arc::clone(&self.scheduler.swapper);
        (self.scheduler).on_reconfigure(settings, swapper, changed, &mut self.world);
        self.grant();
        self.world.take_log()
    }

    /// Reports that an instance which a swap stops has stopped.
    fn has_stopped(&mut self, model: InstanceId) {
        let mut begun = self.world.begun.iter_mut();
        let swap = begun.find(|begun| begun.stops.contains(&model)).unwrap();
        swap.stops.retain(|&other| other != model);
        self.world.of_mut(model).is_up = false;
        (self.scheduler).on_stopped(model, &mut self.world);
    }

    /// Ends a process and its requests, as by a crash.
    fn crash(&mut self, model: InstanceId) {
        let stops = |begun: &Begun| begun.stops.contains(&model);
        let is_stopping = self.world.begun.iter().any(stops);
        let process = self.world.of_mut(model);
        (process.is_up, process.serves) = (is_stopping, 0);
        self.scheduler.on_exit(model, &mut self.world);
    }

    /// Ends the first swap or stop in progress. `is_well`: the target runs.
    fn end(&mut self, is_well: bool) -> bool {
        self.end_nth(0, is_well)
    }

    fn end_nth(&mut self, nth: usize, is_well: bool) -> bool {
        let begun = self.world.begun.remove(nth);
        let has_started = is_well && !begun.is_aborted;
        for &model in &begun.stops {
            self.world.of_mut(model).is_up = false;
            (self.scheduler).on_stopped(model, &mut self.world);
        }
        let is_told = begun.target.is_some_and(|target| {
            self.world.of_mut(target).is_up = has_started;
            (self.scheduler).on_swap_done(target, has_started, &mut self.world)
        });
        self.grant();
        is_told
    }
}

fn memory_of(memory: u32, models: u32) -> Arc<dyn Swapper> {
    budget(memory.into(), &vec![1.0; models as usize])
}

/// Returns a budget of one pool for instances with these needs.
fn budget(memory: f64, needs: &[f64]) -> Arc<dyn Swapper> {
    let needs: Vec<_> = needs
        .iter()
        .map(|&need| MemoryNeed::new("", need))
        .collect();
    let pools = [("all".to_owned(), memory)];
    Arc::new(MemoryBudget::new(&pools, &needs).unwrap())
}

/// Returns groups of which one model of all runs at a time.
fn one_at_a_time(models: u32) -> Arc<dyn Swapper> {
    let names: Vec<_> = (0..models)
        .map(|model| letter(InstanceId(model)).to_string())
        .collect();
    let group = ("all".to_owned(), Group::new(names.clone()));
    Arc::new(Groups::new(&names, [group]).unwrap())
}
