//! How long requests wait behind others where the target of a wait is configured.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tower_triage::admit::{AdmitOutcome, Capacity, Slot, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

const TARGET: Duration = Duration::from_secs(1);
const LEVELS: u8 = 2;

fn config(discipline: Discipline) -> WaitingRoomConfig {
    WaitingRoomConfig::default()
        .discipline(discipline)
        .target_wait(TARGET)
}

/// A room in front of slots that are all taken.
struct Busy {
    room: WaitingRoom<SlotPool, ()>,
    slots: SlotPool,
    running: Vec<Slot>,
    wakes: WakeList<()>,
    now: Instant,
}

impl Busy {
    fn new(config: WaitingRoomConfig, slots: usize) -> Self {
        let (now, slots) = (Instant::now(), SlotPool::new(slots));
        Self {
            room: WaitingRoom::new(config, now),
            running: std::iter::from_fn(|| slots.try_lease(&()).ok()).collect(),
            slots,
            wakes: WakeList::new(),
            now,
        }
    }

    /// A request arrives. `None` if it does not wait.
    fn arrive(&mut self, ticket: Ticket) -> Option<WaiterId> {
        let arrived = self
            .room
            .arrive(&self.slots, ticket, (), self.now, &mut self.wakes);
        match arrived {
            AdmitOutcome::Leased(slot) => self.running.push(slot),
            AdmitOutcome::Queued(id) => return Some(id),
            AdmitOutcome::Rejected(_) => {}
        }
        None
    }

    /// Ends all waits that are due until then.
    fn advance(&mut self, until: Instant) {
        while let Some(next) = self.room.next_timeout().filter(|&next| next <= until) {
            assert!(next >= self.now, "the timer would not rest");
            self.now = next;
            self.room.advance(next, &mut self.wakes);
        }
        self.now = until;
        self.room.advance(until, &mut self.wakes);
    }

    fn release(&mut self) {
        if let Some(slot) = self.running.pop() {
            let pool = self.slots.release(slot);
            self.room
                .on_release(&self.slots, pool, self.now, &mut self.wakes);
        }
    }
}

#[test]
fn only_the_next_waits_longer_than_twice_the_target() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let mut busy = Busy::new(config(discipline), 1);
        let begin = busy.now;
        let ids = [0, 500, 1_000].map(|after| {
            busy.advance(begin + Duration::from_millis(after));
            let ticket = Ticket::new(Priority::HIGHEST, busy.now);
            busy.arrive(ticket).expect("it waits")
        });
        for (id, millis) in [(ids[1], 2_500), (ids[2], 3_000)] {
            let end = begin + Duration::from_millis(millis);
            busy.advance(end - Duration::from_millis(1));
            assert!(busy.room.take_outcome(id).is_none(), "{discipline:?}");
            busy.advance(end);
            let over = RejectReason::Overloaded {
                retry_after: TARGET,
            };
            let outcome = busy.room.take_outcome(id);
            assert!(
                matches!(&outcome, Some(Err(why)) if *why == over),
                "{discipline:?}: {outcome:?}"
            );
        }
        assert_eq!(
            busy.room.next_timeout(),
            Some(begin + Duration::from_secs(30)),
            "{discipline:?}"
        );
        busy.release();
        assert!(busy.room.take_outcome(ids[0]).unwrap().is_ok());
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Of this level and tenant, with a timeout perhaps.
    Arrive(u8, u8, Option<u64>),
    Release,
    Cancel(prop::sample::Index),
    /// So many milliseconds pass.
    Pass(u64),
    Reconfigure(Discipline),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => (0..LEVELS, 0..3u8, prop::option::weighted(0.2, 100..4_000u64))
            .prop_map(|(level, tenant, timeout)| Event::Arrive(level, tenant, timeout)),
        4 => Just(Event::Release),
        1 => any::<prop::sample::Index>().prop_map(Event::Cancel),
        8 => (0..700u64).prop_map(Event::Pass),
        1 => discipline().prop_map(Event::Reconfigure),
    ]
}

fn discipline() -> impl Strategy<Value = Discipline> {
    use Discipline::{Deadline, Fair, Fifo};
    prop_oneof![Just(Fifo), Just(Fair), Just(Deadline)]
}

proptest! {
    /// A service may stand still, or become slow in the middle. One waiter of each lane may be its next at a time.
    #[test]
    fn no_wait_behind_the_next_is_longer_than_twice_the_target(
        slots in 1..4usize,
        first in discipline(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut busy = Busy::new(config(first), slots);
        let mut waiting: Vec<(WaiterId, Instant)> = Vec::new();
        // Those that were the next when they had waited for twice the target.
        let mut excused: Vec<WaiterId> = Vec::new();
        for event in events {
            match event {
                Event::Arrive(level, tenant, timeout) => {
                    let mut ticket = Ticket::new(Priority(level), busy.now);
                    ticket = ticket.tenant(format!("{tenant}").into());
                    if let Some(timeout) = timeout {
                        ticket = ticket.timeout(Duration::from_millis(timeout));
                    }
                    let entered = busy.now;
                    waiting.extend(busy.arrive(ticket).map(|id| (id, entered)));
                }
                Event::Release => busy.release(),
                Event::Cancel(which) if !waiting.is_empty() => {
                    let (id, _) = waiting.swap_remove(which.index(waiting.len()));
                    if let Some(slot) = busy.room.cancel(id, busy.now).0 {
                        busy.running.push(slot);
                    }
                }
                Event::Cancel(_) => {}
                Event::Pass(millis) => {
                    let until = busy.now + Duration::from_millis(millis);
                    // Step by step, to see which is the next at the end of each wait.
                    while let Some(next) = busy.room.next_timeout().filter(|&next| next <= until) {
                        let is_due = |&&(_, entered): &&(_, Instant)| entered + 2 * TARGET == next;
                        let head = busy.room.head();
                        excused.extend(
                            waiting.iter().filter(is_due).map(|&(id, _)| id).filter(|&id| head == Some(id)),
                        );
                        busy.advance(next);
                    }
                    busy.advance(until);
                }
                Event::Reconfigure(discipline) => {
                    let (now, config) = (busy.now, config(discipline));
                    busy.room.reconfigure(&busy.slots, config, now, &mut busy.wakes);
                }
            }
            waiting.retain(|&(id, entered)| match busy.room.take_outcome(id) {
                None => {
                    let waited = busy.now - entered;
                    assert!(waited < 2 * TARGET || excused.contains(&id), "it has waited for {waited:?}");
                    true
                }
                Some(Ok(slot)) => {
                    busy.running.push(slot);
                    false
                }
                Some(Err(RejectReason::Overloaded { .. })) => {
                    assert!(busy.now - entered >= 2 * TARGET);
                    false
                }
                Some(Err(_)) => false,
            });
        }
    }
}
