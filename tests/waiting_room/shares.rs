//! Shares of the places in a full room.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use tower_triage::admit::{AdmitOutcome, Capacity, TargetWait, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Discipline, Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

use super::scenarios::{HIGH, LOW, NORMAL, Room, config};

/// Requests of one level and tenant.
struct Sender {
    level: u8,
    tenant: &'static str,
    per_second: f64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The request that has had its slot for longest ends.
    End,
}

const SLOTS: usize = 8;
const SERVICE: Duration = Duration::from_millis(200);
const TIME: Duration = Duration::from_secs(300);

/// Returns each sender's share of the slots. Together they serve 40 requests per second.
fn shares(config: WaitingRoomConfig, senders: &[Sender]) -> Vec<f64> {
    let (begin, slots) = (Instant::now(), SlotPool::new(SLOTS));
    let mut room: WaitingRoom<SlotPool, (WaiterId, usize)> =
        WaitingRoom::new(config.target_wait(TargetWait::Off), begin);
    let mut random = fastrand::Rng::with_seed(7);
    let first = (0..senders.len()).map(|sender| Reverse((Duration::ZERO, Event::Arrival(sender))));
    let mut events: BinaryHeap<_> = first.collect();
    let mut running = VecDeque::new();
    let mut served = vec![0.0; senders.len()];
    while let Some(Reverse((at, event))) = events.pop()
        && at < TIME
    {
        let (now, mut wakes) = (begin + at, WakeList::new());
        let mut started = Vec::new();
        match event {
            Event::Arrival(from) => {
                let sender = &senders[from];
                let gap = -(1.0 - random.f64()).ln() / sender.per_second;
                events.push(Reverse((
                    at + Duration::from_secs_f64(gap),
                    Event::Arrival(from),
                )));
                let ticket = Ticket::new(Priority(sender.level), now).tenant(sender.tenant.into());
                match room.arrive(&slots, ticket, (), now, &mut wakes) {
                    AdmitOutcome::Leased(slot) => started.push((from, slot)),
                    AdmitOutcome::Queued(id) => drop(room.set_waker(id, (id, from))),
                    AdmitOutcome::Rejected(_) => {}
                }
            }
            Event::End => {
                let (from, slot) = running.pop_front().unwrap();
                served[from] += 1.0;
                let pool = slots.release(slot);
                room.on_release(&slots, pool, now, &mut wakes);
            }
        }
        for (id, from) in wakes {
            let slot = room.take_outcome(id).and_then(Result::ok);
            started.extend(slot.map(|slot| (from, slot)));
        }
        let ends = started.iter().map(|_| Reverse((at + SERVICE, Event::End)));
        events.extend(ends);
        running.extend(started);
    }
    let all: f64 = served.iter().sum();
    served.iter().map(|served| served / all).collect()
}

#[test]
fn a_modest_tenant_keeps_its_fifth_beside_a_greedy_one() {
    let send = |tenant, per_second| Sender {
        level: NORMAL,
        tenant,
        per_second,
    };
    let fair = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let shares = shares(fair, &[send("greedy", 120.0), send("modest", 8.0)]);
    assert!((shares[1] / 0.2 - 1.0).abs() < 0.05, "{shares:?}");
}

#[test]
fn levels_keep_the_shares_of_their_weights_in_a_full_room() {
    let send = |level| Sender {
        level,
        tenant: "",
        per_second: 80.0,
    };
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let weighted = WaitingRoomConfig::default()
            .discipline(discipline)
            .level_weight("high", 3);
        let shares = shares(weighted, &[send(HIGH), send(NORMAL)]);
        assert!(
            (shares[1] - 0.25).abs() < 0.01,
            "{discipline:?}: {shares:?}"
        );
    }
}

/// A room of six places, all of which the tenant `a` has.
fn taken(change: impl FnOnce(&mut WaitingRoomConfig)) -> Room {
    let mut room = Room::new(config(|c| {
        (c.discipline, c.max_size) = (Discipline::Fair, 6);
        change(c);
    }));
    room.all_wait(&["a1", "a2", "a3", "a4", "a5", "a6"], "a");
    room
}

fn of(tenant: &'static str) -> impl Fn(Ticket) -> Ticket {
    move |ticket| ticket.tenant(tenant.into())
}

#[test]
fn a_tenant_below_its_share_takes_the_latest_place_of_the_greediest() {
    let mut room = taken(|_| ());
    for (name, evicted) in [("b1", "a6"), ("b2", "a5"), ("b3", "a4")] {
        assert_eq!(room.arrive(name, 0, of("b")), Ok(vec![evicted]));
    }
    // Three each: neither has more than its share.
    for tenant in ["a", "b"] {
        let full = Err(RejectReason::Full);
        assert_eq!(room.arrive("late", 0, of(tenant)), full);
    }
    // Of equal claims, that of the latest waiter is the larger.
    assert_eq!(room.arrive("c1", 0, of("c")), Ok(vec!["b3"]));
    assert_eq!(room.served(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
}

#[test]
fn a_tenant_s_weight_counts_for_its_places() {
    let mut room = taken(|c| c.weights = [("a".into(), 2)].into());
    for (name, evicted) in [("b1", "a6"), ("b2", "a5")] {
        assert_eq!(room.arrive(name, 0, of("b")), Ok(vec![evicted]));
    }
    let full = Err(RejectReason::Full);
    assert_eq!(room.arrive("b3", 0, of("b")), full);
}

#[test]
fn shares_of_places_are_those_of_the_lowest_level() {
    let mut room = taken(|_| ());
    let at = |level: u8, tenant: &'static str| {
        move |mut ticket: Ticket| {
            ticket.priority = Priority(level);
            ticket.tenant(tenant.into())
        }
    };
    assert_eq!(room.arrive("low", 0, at(LOW, "b")), Err(RejectReason::Full));
    // A more urgent level goes before all shares, its own tenant's included.
    assert_eq!(room.arrive("h1", 0, at(HIGH, "a")), Ok(vec!["a6"]));
    assert_eq!(room.arrive("b1", 0, at(NORMAL, "b")), Ok(vec!["a5"]));
    assert_eq!(room.arrive("h2", 0, at(HIGH, "b")), Ok(vec!["a4"]));
}

#[test]
fn an_evicted_waiter_is_told_that_it_was_displaced() {
    let mut room = taken(|_| ());
    assert_eq!(room.arrive("b1", 0, of("b")), Ok(vec!["a6"]));
    let outcome = room.outcome("a6").and_then(Result::err);
    assert_eq!(outcome, Some(RejectReason::Displaced));
    assert_eq!(room.room.stats().displaced, 1);
}

#[test]
fn a_parked_waiter_loses_its_place_like_any_other() {
    let mut room = taken(|c| c.max_concurrent_per_tenant = Some(1));
    for (name, evicted) in [("b1", "a6"), ("b2", "a5"), ("b3", "a4")] {
        assert_eq!(room.arrive(name, 0, of("b")), Ok(vec![evicted]));
    }
    room.cancel("a3");
    assert_eq!(room.arrive("a7", 0, of("a")), Ok(vec![]));
    let full = Err(RejectReason::Full);
    assert_eq!(room.arrive("b4", 0, of("b")), full);
    assert_eq!(room.next(0), Some("a1"));
}

#[test]
fn without_displacement_no_waiter_loses_its_place_to_a_share() {
    let mut room = taken(|c| c.displace = false);
    let full = Err(RejectReason::Full);
    assert_eq!(room.arrive("b1", 0, of("b")), full);
}

#[test]
fn a_smaller_room_evicts_from_the_flow_farthest_above_its_share() {
    let mut room = taken(|c| c.max_size = 8);
    room.all_wait(&["b1", "b2"], "b");
    let smaller = config(|c| (c.discipline, c.max_size) = (Discipline::Fair, 3));
    let evicted = room.reconfigure(smaller);
    let evicted: Vec<_> = evicted.into_iter().map(|(name, _)| name).collect();
    assert_eq!(evicted, ["a6", "a5", "a4", "a3", "b2"]);
}

#[test]
fn invented_tenants_displace_no_waiter_from_a_share_of_one_place() {
    let mut room = taken(|c| c.weights = [("known".into(), 3)].into());
    for (name, tenant) in [
        ("i1", "1"),
        ("i2", "2"),
        ("i3", "3"),
        ("i4", "4"),
        ("i5", "5"),
    ] {
        assert!(room.arrive(name, 0, of(tenant)).is_ok());
    }
    let full = Err(RejectReason::Full);
    assert_eq!(room.arrive("i6", 0, of("6")), full);
    // A tenant that has a weight finds places all the same.
    for name in ["k1", "k2"] {
        assert!(room.arrive(name, 0, of("known")).is_ok());
    }
}
