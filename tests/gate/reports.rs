//! Reports about the requests that wait at a gate.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::advance;
use tower_triage::gate::Gate;
use tower_triage::{Discipline, Priority, SlotPool, Ticket, WaitingRoomConfig};

const SECOND: Duration = Duration::from_secs(1);

/// A gate without slots, at which these levels and tenants arrive a second apart.
async fn waiting(discipline: Discipline, arrivals: &[(u8, &str)]) -> (Gate<SlotPool>, impl Sized) {
    let config = WaitingRoomConfig::default().discipline(discipline);
    let gate = Gate::new(SlotPool::new(0), config);
    let mut waiters = tokio::task::JoinSet::new();
    for &(level, tenant) in arrivals {
        let now = tokio::time::Instant::now().into_std();
        let ticket = Ticket::new(Priority(level), now).tenant(tenant.into());
        waiters.spawn(gate.acquire(ticket, ()));
        tokio::task::yield_now().await;
        advance(SECOND).await;
    }
    (gate, waiters)
}

#[tokio::test(start_paused = true)]
async fn a_status_has_the_age_of_the_oldest_waiter_of_each_level() {
    for discipline in [Discipline::Fifo, Discipline::Fair, Discipline::Deadline] {
        let arrivals = [(1, "a"), (1, "b"), (1, "a")];
        let (gate, _waiters) = waiting(discipline, &arrivals).await;
        let oldest: Vec<_> = gate.status().levels.iter().map(|it| it.oldest).collect();
        assert_eq!(oldest, [None, Some(3 * SECOND)], "{discipline:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_waiter_is_visited_once_with_its_ticket() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let arrivals = [(1, "a"), (0, "b"), (1, "a")];
        let (gate, waiters) = waiting(discipline, &arrivals).await;
        let mut seen = BTreeMap::new();
        gate.for_each_waiter(|waiter| {
            let key = (waiter.level.0, waiter.tenant.to_string());
            seen.entry(key).or_insert_with(Vec::new).push(waiter.age);
        });
        seen.values_mut().for_each(|ages| ages.sort());
        let expected = [
            ((0, "b".to_owned()), vec![2 * SECOND]),
            ((1, "a".to_owned()), vec![SECOND, 3 * SECOND]),
        ];
        assert_eq!(seen, BTreeMap::from(expected));
        drop(waiters);
        tokio::task::yield_now().await;
        gate.for_each_waiter(|waiter| panic!("{waiter:?} waits no longer"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_arrival_after_now_has_waited_for_no_time() {
    let gate = Gate::new(SlotPool::new(0), WaitingRoomConfig::default());
    let later = tokio::time::Instant::now().into_std() + SECOND;
    let ticket = Ticket::new(Priority(1), later);
    let waiter = tokio::spawn(gate.acquire(ticket, ()));
    tokio::task::yield_now().await;
    gate.for_each_waiter(|waiter| assert_eq!(waiter.age, Duration::ZERO));
    assert_eq!(gate.status().levels[1].oldest, Some(Duration::ZERO));
    waiter.abort();
}
