//! Three models under a budget for one, and requests for them in turn: how often they swap, and how long requests wait.
//!
//! `cargo test --all-features --lib swap::scheduler::tests::simulation -- --nocapture` prints a table. Beside it, strictly
//! first come, first served: whenever the request that is next needs another model, models swap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const MODELS: u32 = 3;
const REQUESTS: u64 = 300;
const LOAD: Nanos = 10 * SECOND;
const ANSWER: Nanos = SECOND;
const MIN_LOADED: Nanos = 5 * SECOND;

/// The requests: which model, and when. In the order of time.
fn requests(mean_gap: Nanos) -> Vec<(InstanceId, Nanos)> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut now = 1_000 * SECOND;
    let requests = (0..REQUESTS as u32).map(|nth| {
        let gap = -(1.0 - random.f64()).ln() * mean_gap as f64;
        now += gap as Nanos;
        (InstanceId(nth % MODELS), now)
    });
    requests.collect()
}

/// What came of it.
#[derive(Debug, Default)]
struct Outcome {
    swaps: usize,
    waits: Vec<Nanos>,
    /// The longest time for which a request was the first of those for its model.
    longest_first: Nanos,
    /// Swaps for which a model stopped that requests waited for, though none had waited for `swap_after`.
    unforced: usize,
    ends: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    SwapEnds,
    Answered(InstanceId),
    Arrives(InstanceId),
    Tick,
}

struct Simulation {
    test: Test,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    /// How many swaps were seen.
    begun: usize,
    /// By model: since when its first waiter is that.
    first_since: [Nanos; MODELS as usize],
    outcome: Outcome,
}

impl Simulation {
    fn new(slots: u32, swap_after: Nanos) -> Self {
        let mut test = Test::with_memory(1, MODELS);
        test.slots = slots;
        test.scheduler.settings.swap_after = swap_after;
        test.scheduler.settings.min_loaded = MIN_LOADED;
        Self {
            test,
            events: BinaryHeap::new(),
            begun: 0,
            first_since: [0; MODELS as usize],
            outcome: Outcome::default(),
        }
    }

    /// Ends because each request arrives, and is answered, once; each swap serves at least one; and a tick that was asked
    /// for is later than the one before.
    fn run(mut self, requests: &[(InstanceId, Nanos)]) -> Outcome {
        let arrivals = requests.iter();
        self.events
            .extend(arrivals.map(|&(model, at)| Reverse((at, Event::Arrives(model)))));
        while let Some(Reverse((now, event))) = self.events.pop() {
            self.test.world.now = now;
            match event {
                Event::SwapEnds => _ = self.test.end(true),
                Event::Answered(model) => self.test.serve(model),
                Event::Arrives(model) => {
                    if self.test.world.of(model).waiting.is_empty() {
                        self.first_since[model.0 as usize] = now;
                    }
                    self.test.ask(model, 0);
                }
                Event::Tick => self.test.pass(0),
            }
            self.look(now);
        }
        assert_eq!(self.outcome.waits.len(), requests.len(), "all are served");
        self.outcome.waits.sort_unstable();
        self.outcome
    }

    /// Notes what the event has led to.
    fn look(&mut self, now: Nanos) {
        for (model, head) in std::mem::take(&mut self.test.granted) {
            self.outcome.waits.push(now - head.arrival);
            self.outcome.ends = now + ANSWER;
            let since = &mut self.first_since[model.0 as usize];
            let was_first = now - (*since).max(head.arrival);
            self.outcome.longest_first = self.outcome.longest_first.max(was_first);
            *since = now;
            self.events
                .push(Reverse((now + ANSWER, Event::Answered(model))));
        }
        if let Some(swap) = self.test.world.begun.first().filter(|_| self.begun == 0) {
            self.outcome.swaps += 1;
            let world = &self.test.world;
            let waits = |&model: &InstanceId| !world.of(model).waiting.is_empty();
            let target = swap.target.expect("no model is unloaded");
            let since = world.of(target).waiting[0].arrival;
            let is_forced = now - since >= self.test.scheduler.settings.swap_after;
            self.outcome.unforced += usize::from(!is_forced && swap.stops.iter().any(waits));
            self.events.push(Reverse((now + LOAD, Event::SwapEnds)));
        }
        self.begun = self.test.world.begun.len();
        if let Some(tick) = self.test.scheduler.next_tick() {
            self.events.push(Reverse((tick.max(now), Event::Tick)));
        }
    }
}

/// Strictly first come, first served.
fn in_order(requests: &[(InstanceId, Nanos)], slots: u32) -> Outcome {
    let mut outcome = Outcome::default();
    let mut loaded = None;
    // When each slot is free.
    let mut free = vec![0; slots as usize];
    let mut started = 0;
    for &(model, arrival) in requests {
        if loaded != Some(model) {
            let idle = free.iter().copied().max().unwrap_or(0);
            free.fill(idle.max(arrival).max(started) + LOAD);
            loaded = Some(model);
            outcome.swaps += 1;
        }
        let slot = free.iter_mut().min().expect("there are slots");
        // None is served before one that came before.
        started = arrival.max(*slot).max(started);
        *slot = started + ANSWER;
        outcome.waits.push(started - arrival);
        outcome.ends = started + ANSWER;
    }
    outcome.waits.sort_unstable();
    outcome
}

/// What a first waiter waits for at most, while all models are asked for: until its time has come; then until what is being
/// loaded is, and has served; the same for each of the models that wait longer; and its own load.
fn bound(swap_after: Nanos) -> Nanos {
    let ahead = Nanos::from(MODELS - 1);
    swap_after + ahead * (LOAD + MIN_LOADED + ANSWER) + LOAD
}

fn print(arrivals: &str, slots: u32, policy: &str, outcome: &Outcome) {
    let seconds = |nanos: Nanos| nanos as f64 / SECOND as f64;
    let share = |percent: usize| seconds(outcome.waits[(outcome.waits.len() - 1) * percent / 100]);
    println!(
        "{arrivals:<12} {slots:>5}  {policy:<22} {:>5} {:>9.1} {:>9.1} {:>9.1} {:>9.0}",
        outcome.swaps,
        share(50),
        share(99),
        share(100),
        seconds(outcome.ends - 1_000 * SECOND),
    );
}

#[test]
fn models_swap_no_more_than_has_to_be_and_none_waits_for_long() {
    println!(
        "{:<12} {:>5}  {:<22} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "arrivals", "slots", "policy", "swaps", "p50 s", "p99 s", "longest s", "all done"
    );
    let patterns = [("at once", 0), ("one in 4 s", 4 * SECOND)];
    for ((arrivals, gap), slots) in patterns.into_iter().flat_map(|one| [(one, 1), (one, 4)]) {
        let requests = requests(gap);
        let fifo = in_order(&requests, slots);
        print(arrivals, slots, "first come", &fifo);
        for after in [10, 60, 100_000] {
            let swap_after = after * SECOND;
            let ours = Simulation::new(slots, swap_after).run(&requests);
            print(arrivals, slots, &format!("swap_after {after} s"), &ours);
            assert_eq!(ours.unforced, 0, "{ours:?}");
            assert!(ours.longest_first <= bound(swap_after), "{ours:?}");
            assert!(ours.swaps < fifo.swaps, "{ours:?}");
            let is_patient = swap_after > ours.ends;
            if gap == 0 && is_patient {
                assert_eq!(
                    ours.swaps, MODELS as usize,
                    "all of one, then all of another"
                );
            }
            if gap > 0 && slots > 1 && !is_patient {
                // There is time to serve all that wait, so each waits as its model's first one does.
                assert!(ours.waits.last() <= Some(&bound(swap_after)), "{ours:?}");
            }
        }
    }
}
