//! The time from a freed slot to its waiter running, on a thread that sleeps: `Gate` against Tokio's semaphore.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use support::{is_measuring, quartiles};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower_triage::gate::Gate;
use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};

/// Waits for a slot on a thread of its own. Says when it has it.
struct Waiter {
    start: UnboundedSender<()>,
    got: mpsc::Receiver<Instant>,
}

impl Waiter {
    fn new<F, P>(acquire: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = P>,
    {
        let (start, mut starts) = unbounded_channel();
        let (say, got) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                while starts.recv().await.is_some() {
                    let permit = acquire().await;
                    let now = Instant::now();
                    drop(permit);
                    say.send(now).unwrap();
                }
            });
        });
        Self { start, got }
    }

    /// The time from a slot freed to the waiter running, in microseconds.
    fn handoff<P>(&self, permit: P) -> f64 {
        self.start.send(()).unwrap();
        // Long enough to begin to wait, and to go to sleep.
        std::thread::sleep(Duration::from_micros(300));
        let freed = Instant::now();
        drop(permit);
        let got = self.got.recv().unwrap();
        got.duration_since(freed).as_secs_f64() * 1e6
    }
}

fn main() {
    let semaphore = Arc::new(Semaphore::new(1));
    let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    let theirs = Waiter::new({
        let semaphore = Arc::clone(&semaphore);
        move || Arc::clone(&semaphore).acquire_owned()
    });
    let ours = Waiter::new({
        let gate = gate.clone();
        move || gate.acquire(Ticket::new(Priority::HIGHEST, Instant::now()), ())
    });
    let passes = if is_measuring() { 5_000 } else { 10 };
    let mut times = [Vec::new(), Vec::new()];
    for pass in 0..passes {
        // Each goes first in half of the passes.
        for side in [pass % 2, 1 - pass % 2] {
            times[side].push(match side {
                0 => theirs.handoff(Arc::clone(&semaphore).try_acquire_owned().unwrap()),
                _ => ours.handoff(gate.try_acquire(&()).unwrap()),
            });
        }
    }
    let [theirs, ours] = times;
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
    let [low, ratio, high] = quartiles(ratios.collect());
    if is_measuring() {
        println!("\nFrom a slot freed to the waiter running, its thread asleep");
        print("tokio::sync::Semaphore", theirs);
        print("Gate", ours);
        println!("      {ratio:.2}× tokio::sync::Semaphore  ({low:.2} to {high:.2})  goal ≤ 1.2×");
    }
}

fn print(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let [half, most, nearly_all] = [50, 90, 99].map(|percent| times[times.len() * percent / 100]);
    println!("  {name:<44} p50 {half:.1} µs   p90 {most:.1} µs   p99 {nearly_all:.1} µs");
}
