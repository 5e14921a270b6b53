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

    /// Ends the waits that are over, as a timer does: it has nothing more to do until later then.
    fn assert_timer_rests(&mut self) {
        self.room.advance(self.now, &mut self.wakes);
        let next = self.room.next_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "the timer would not rest"
        );
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

#[test]
fn a_requeued_request_waits_behind_the_next_for_twice_the_target() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let mut busy = Busy::new(config(discipline), 1);
        let first = busy.now;
        busy.advance(first + 10 * TARGET);
        let ticket = |arrival| Ticket::new(Priority(1), arrival).requeued();
        let next = Ticket::new(Priority::HIGHEST, busy.now);
        let next = busy.arrive(next).expect("it waits");
        let again = busy.arrive(ticket(first)).expect("it waits");
        busy.assert_timer_rests();
        let end = busy.now + 2 * TARGET;
        busy.advance(end - Duration::from_millis(1));
        assert!(busy.room.take_outcome(again).is_none(), "{discipline:?}");
        busy.advance(end);
        assert!(busy.room.take_outcome(again).is_some(), "{discipline:?}");
        assert!(busy.room.take_outcome(next).is_none(), "{discipline:?}");
    }
}

#[test]
fn a_waiter_that_was_the_next_before_may_not_wait_longer() {
    let mut busy = Busy::new(config(Discipline::Fifo), 1);
    let first = busy.now;
    busy.advance(first + 10 * TARGET);
    // Its arrival is long ago, but it has not waited here.
    let low = Ticket::new(Priority(1), first).requeued();
    let low = busy.arrive(low).expect("it waits");
    busy.assert_timer_rests();
    let high = Ticket::new(Priority::HIGHEST, busy.now);
    busy.arrive(high).expect("it waits");
    busy.advance(busy.now + 2 * TARGET);
    assert!(busy.room.take_outcome(low).is_some());
}

#[test]
fn what_was_the_next_then_waits_on_through_any_change() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let mut busy = Busy::new(config(discipline), 1);
        let begin = busy.now;
        let ticket = |level, busy: &Busy| Ticket::new(Priority(level), busy.now);
        let low = busy.arrive(ticket(1, &busy)).expect("it waits");
        busy.advance(begin + 2 * TARGET);
        busy.arrive(ticket(0, &busy)).expect("it waits");
        busy.room
            .on_capacity_changed(&busy.slots, busy.now, &mut busy.wakes);
        busy.assert_timer_rests();
        assert!(busy.room.take_outcome(low).is_none(), "{discipline:?}");
        let again = config(discipline).target_wait(TARGET / 2);
        busy.room
            .reconfigure(&busy.slots, again, busy.now, &mut busy.wakes);
        busy.advance(begin + Duration::from_secs(30) - Duration::from_millis(1));
        assert!(busy.room.take_outcome(low).is_none(), "{discipline:?}");
    }
}

#[test]
fn a_tenant_s_next_request_may_wait_for_its_own_slots() {
    let config = config(Discipline::Fifo).max_concurrent_per_tenant(1);
    let mut busy = Busy::new(config, 2);
    (0..2).for_each(|_| busy.release());
    let ticket = |busy: &Busy| Ticket::new(Priority::HIGHEST, busy.now).tenant("a".into());
    assert!(busy.arrive(ticket(&busy)).is_none(), "it has a slot");
    // The other slot is free.
    let [next, behind] = [0, 1].map(|_| busy.arrive(ticket(&busy)).expect("it waits"));
    busy.advance(busy.now + 4 * TARGET);
    assert!(busy.room.take_outcome(behind).is_some());
    assert!(busy.room.take_outcome(next).is_none());
}

#[test]
fn the_timer_rests_after_it_has_promoted_a_waiter_that_was_put_off() {
    let config = config(Discipline::Fifo)
        .max_concurrent_per_tenant(1)
        .max_wait(None)
        .displace(false);
    let mut busy = Busy::new(config.clone().target_wait(Duration::ZERO), 1);
    let arrive = |level, busy: &mut Busy| {
        let ticket = Ticket::new(Priority(level), busy.now).tenant("a".into());
        busy.arrive(ticket)
    };
    busy.release();
    assert!(arrive(0, &mut busy).is_none(), "it has the slot");
    arrive(1, &mut busy).expect("it waits");
    let config = config
        .target_wait(Duration::from_millis(692))
        .promote_after(Duration::from_millis(1_392));
    busy.room
        .reconfigure(&busy.slots, config, busy.now, &mut busy.wakes);
    busy.advance(busy.now + Duration::from_millis(8));
    arrive(0, &mut busy).expect("it waits");
    // The first waiter is put off at 1,384 ms, because it is the next. It is promoted at 1,392 ms, behind the other.
    busy.advance(busy.now + Duration::from_millis(1_384));
    busy.assert_timer_rests();
}

#[derive(Debug, Clone)]
enum Event {
    /// Of this level and tenant, with a timeout perhaps.
    Arrive(u8, u8, Option<u64>),
    /// Of this level and tenant, so many milliseconds after its first arrival.
    Requeue(u8, u8, u64),
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
        3 => (0..LEVELS, 0..3u8, 0..20_000u64)
            .prop_map(|(level, tenant, age)| Event::Requeue(level, tenant, age)),
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

/// A room of any kind, with a target that may change.
fn any_config() -> impl Strategy<Value = WaitingRoomConfig> {
    (
        discipline(),
        0..3_000u64,
        prop::option::weighted(0.8, 1..6_000u64),
        prop::option::weighted(0.3, 1..2_000u64),
        prop::option::weighted(0.3, 1..3usize),
        1..12usize,
        any::<bool>(),
    )
        .prop_map(
            |(discipline, target, max_wait, promote, per_tenant, max_size, displace)| {
                WaitingRoomConfig::default()
                    .discipline(discipline)
                    .target_wait(Duration::from_millis(target))
                    .max_wait(max_wait.map(Duration::from_millis))
                    .promote_after(promote.map(Duration::from_millis))
                    .max_concurrent_per_tenant(per_tenant)
                    .max_size(max_size)
                    .displace(displace)
            },
        )
}

#[derive(Debug, Clone)]
enum Change {
    Event(Event),
    /// A client came back before it was told to.
    Early(u8),
    Config(Box<WaitingRoomConfig>),
    Capacity,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => event().prop_map(Change::Event),
        2 => (0..LEVELS).prop_map(Change::Early),
        1 => any_config().prop_map(|config| Change::Config(config.into())),
        1 => Just(Change::Capacity),
    ]
}

proptest! {
    #[test]
    fn each_wait_ends_and_the_timer_rests_whatever_changes(
        first in any_config(),
        slots in 1..3usize,
        changes in prop::collection::vec(change(), 1..200),
    ) {
        let mut busy = Busy::new(first, slots);
        let mut waiting: Vec<WaiterId> = Vec::new();
        for change in changes {
            let now = busy.now;
            match change {
                Change::Event(Event::Arrive(level, tenant, timeout)) => {
                    let ticket = Ticket::new(Priority(level), now).tenant(format!("{tenant}").into());
                    let ticket = match timeout {
                        Some(timeout) => ticket.timeout(Duration::from_millis(timeout)),
                        None => ticket,
                    };
                    waiting.extend(busy.arrive(ticket));
                }
                Change::Event(Event::Requeue(level, tenant, age)) => {
                    let arrival = now.checked_sub(Duration::from_millis(age)).unwrap_or(now);
                    let ticket = Ticket::new(Priority(level), arrival).requeued();
                    waiting.extend(busy.arrive(ticket.tenant(format!("{tenant}").into())));
                }
                Change::Early(level) => {
                    let ticket = Ticket::new(Priority(level), now).client_retry();
                    waiting.extend(busy.arrive(ticket));
                }
                Change::Event(Event::Release) => busy.release(),
                Change::Event(Event::Cancel(which)) if !waiting.is_empty() => {
                    let id = waiting.swap_remove(which.index(waiting.len()));
                    busy.running.extend(busy.room.cancel(id, now).0);
                }
                Change::Event(Event::Pass(millis)) => busy.advance(now + Duration::from_millis(millis)),
                Change::Event(_) => {}
                Change::Config(config) => {
                    busy.room.reconfigure(&busy.slots, *config, now, &mut busy.wakes);
                }
                Change::Capacity => {
                    busy.room.on_capacity_changed(&busy.slots, now, &mut busy.wakes);
                }
            }
            busy.assert_timer_rests();
            waiting.retain(|&id| match busy.room.take_outcome(id) {
                None => true,
                Some(outcome) => {
                    busy.running.extend(outcome);
                    false
                }
            });
            assert_eq!(busy.room.len(), waiting.len());
        }
        let bounded = WaitingRoomConfig::default().max_wait(TARGET);
        busy.room.reconfigure(&busy.slots, bounded, busy.now, &mut busy.wakes);
        busy.advance(busy.now + 2 * TARGET);
        assert!(busy.room.is_empty());
        assert!(waiting.iter().all(|&id| busy.room.take_outcome(id).is_some()));
    }

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
                Event::Requeue(level, tenant, age) => {
                    let arrival = busy.now.checked_sub(Duration::from_millis(age));
                    let ticket = Ticket::new(Priority(level), arrival.unwrap_or(busy.now)).requeued();
                    let entered = busy.now;
                    let id = busy.arrive(ticket.tenant(format!("{tenant}").into()));
                    waiting.extend(id.map(|id| (id, entered)));
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
                        let due: Vec<_> = waiting.iter().filter(is_due).map(|&(id, _)| id).collect();
                        let head = busy.room.head();
                        busy.advance(next);
                        // The one before it may end at the same instant.
                        let heads = [head, busy.room.head()];
                        excused.extend(due.into_iter().filter(|&id| heads.contains(&Some(id))));
                    }
                    busy.advance(until);
                }
                Event::Reconfigure(discipline) => {
                    let (now, config) = (busy.now, config(discipline));
                    busy.room.reconfigure(&busy.slots, config, now, &mut busy.wakes);
                }
            }
            busy.assert_timer_rests();
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
