//! From a slot freed to the waiter running.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tower_triage::gate::Gate;
use tower_triage::{Priority, SlotPool, Ticket, WaitingRoomConfig};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    let mut times: Vec<Duration> = (0..5_000)
        .map(|_| {
            let permit = gate.try_acquire(&()).expect("the slot is free");
            let waiter = gate.clone();
            let (done, ran) = mpsc::channel();
            runtime.spawn(async move {
                let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
                let permit = waiter.acquire(ticket, ()).await;
                let now = Instant::now();
                drop(permit);
                done.send(now).expect("the main thread waits for it");
            });
            while gate.status().depth == 0 {
                std::thread::yield_now();
            }
            // The worker goes to sleep, as on an idle machine.
            std::thread::sleep(Duration::from_micros(200));
            let freed = Instant::now();
            drop(permit);
            let ran = ran.recv().expect("the waiter runs");
            ran.duration_since(freed)
        })
        .collect();
    times.sort();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!(
        "\nFrom a slot freed to the waiter running, worker asleep  (goal: ≤ 50 µs at p99; a drain loop polls every 50 ms)"
    );
    println!(
        "  p50 {:?}   p90 {:?}   p99 {:?}",
        at(0.5),
        at(0.9),
        at(0.99)
    );
    println!(
        "  a 50 ms poll at p50, as a ratio: {:.5}×",
        at(0.5).as_secs_f64() / 0.025
    );
}
