//! A gate's estimate of the next arrival's wait.

use std::time::Duration;

use tokio::time::advance;
use tower_triage::gate::{Gate, Permit};
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

const SECOND: Duration = Duration::from_secs(1);

/// The estimate, in tenths of a second. The status has the same.
fn estimate(gate: &Gate<SlotPool>) -> Option<u128> {
    let estimate = gate.estimated_wait();
    assert_eq!(gate.status().estimated_wait, estimate);
    estimate.map(|wait| (wait.as_millis() + 50) / 100)
}

fn fill(gate: &Gate<SlotPool>, slots: usize) -> Vec<Permit<SlotPool>> {
    (0..slots).map(|_| gate.try_acquire(&()).unwrap()).collect()
}

/// Lets requests hold each of `slots` for a while, as one other waits at any time.
async fn measure(gate: &Gate<SlotPool>, slots: usize, each: Duration) {
    let mut held = fill(gate, slots);
    for nth in 0..40 {
        let gate = gate.clone();
        let ticket: Ticket = Priority::HIGHEST.into();
        let waiting = tokio::spawn(async move { gate.acquire(ticket, ()).await.unwrap() });
        tokio::task::yield_now().await;
        advance(each / slots as u32).await;
        drop(held.swap_remove(nth % slots));
        held.push(waiting.await.unwrap());
    }
}

/// A plain room, and full ones.
fn rooms() -> impl Iterator<Item = Gate<SlotPool>> {
    let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
    disciplines.into_iter().map(|discipline| {
        let config = WaitingRoomConfig::default().discipline(discipline);
        Gate::new(SlotPool::new(2), config)
    })
}

#[tokio::test(start_paused = true)]
async fn an_idle_gate_lets_no_arrival_wait() {
    for gate in rooms() {
        assert_eq!(estimate(&gate), Some(0), "before any measurement");
        let held = fill(&gate, 2);
        assert_eq!(estimate(&gate), None, "busy and not measured");
        drop(held);
        measure(&gate, 2, 2 * SECOND).await;
        assert_eq!(estimate(&gate), Some(0));
        let held = fill(&gate, 2);
        assert_eq!(estimate(&gate), Some(10));
        drop(held);
        assert_eq!(estimate(&gate), Some(0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_follows_a_limit_that_changes_after_measurements() {
    for gate in rooms() {
        measure(&gate, 2, 2 * SECOND).await;
        let held = fill(&gate, 2);
        gate.set_limit(1);
        assert_eq!(estimate(&gate), Some(20));
        gate.set_limit(4);
        assert_eq!(estimate(&gate), Some(0), "two slots are free");
        let more = fill(&gate, 2);
        assert_eq!(estimate(&gate), Some(5));
        for level in gate.status().levels {
            assert_eq!(level.estimated_wait, Some(SECOND / 2));
        }
        drop((held, more));
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_follows_a_limit_that_changed_before_measurements() {
    for gate in rooms() {
        gate.set_limit(4);
        measure(&gate, 4, 2 * SECOND).await;
        let held = fill(&gate, 4);
        assert_eq!(estimate(&gate), Some(5));
        gate.set_limit(2);
        assert_eq!(estimate(&gate), Some(10));
        drop(held);
    }
}
