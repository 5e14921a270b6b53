//! A tenant's limit of slots.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::admit::{
    AdmitOutcome, Capacity, TargetWait, TenantLimits, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, RejectReason, Ticket, WaitingRoomConfig};

use super::pools::{Serves, TestPools, TestSlot};
use super::scenarios::config;

const TENANTS: [&str; 3] = ["a", "b", "c"];

/// A room in front of several pools. Requests are numbered.
struct LimitRoom {
    room: WaitingRoom<TestPools, usize>,
    pools: TestPools,
    begin: Instant,
    now: Instant,
    requests: Vec<Request>,
    waiting: BTreeMap<usize, WaiterId>,
    running: BTreeMap<usize, TestSlot>,
    /// Whether the next that is granted a slot after a wait is cancelled before it takes it.
    gives_up: bool,
}

#[derive(Debug, Clone)]
struct Request {
    tenant: &'static str,
    lane: usize,
    level: u8,
    /// The arrival of its ticket.
    arrival: Instant,
    /// Whether its slot counts for the limit, if it has one.
    is_counted: bool,
}

fn limited(max: impl Into<Option<usize>>) -> WaitingRoomConfig {
    let unbounded = config(|c| {
        (c.max_size, c.target_wait) = (usize::MAX, TargetWait::Off);
    });
    unbounded.max_concurrent_per_tenant(max)
}

impl LimitRoom {
    fn new(slots: &[usize], lanes: &[Serves], config: WaitingRoomConfig) -> Self {
        let begin = Instant::now();
        Self {
            room: WaitingRoom::new(config, begin),
            pools: TestPools::new(slots, lanes),
            begin,
            now: begin,
            requests: Vec::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            gives_up: false,
        }
    }

    fn max_of(&self, tenant: &str) -> Option<usize> {
        let config = self.room.config();
        let own = config.tenant_limits.get(tenant.as_bytes());
        let own = own.and_then(|own| own.concurrency);
        own.or(config.max_concurrent_per_tenant)
    }

    fn may_have_more(&self, tenant: &str) -> bool {
        let out = self.running.keys().map(|&number| &self.requests[number]);
        let counted = out.filter(|request| request.tenant == tenant && request.is_counted);
        self.max_of(tenant).is_none_or(|max| counted.count() < max)
    }

    /// Returns the number of the request; or why it may not wait.
    fn arrive(
        &mut self,
        (tenant, lane, level): (&'static str, usize, u8),
        change: impl FnOnce(Ticket) -> Ticket,
    ) -> Result<usize, RejectReason<&'static str>> {
        let number = self.requests.len();
        self.requests.push(Request {
            tenant,
            lane,
            level,
            arrival: self.now,
            is_counted: false,
        });
        let ticket = Ticket::new(Priority(level), self.now).tenant(tenant.into());
        let mut wakes = WakeList::new();
        let outcome = self
            .room
            .arrive(&self.pools, change(ticket), lane, self.now, &mut wakes);
        self.woken(wakes);
        match outcome {
            AdmitOutcome::Leased(slot) => {
                self.goes_first(number);
                self.starts(number, slot);
            }
            AdmitOutcome::Queued(id) => {
                self.room.set_waker(id, number).unwrap();
                self.waiting.insert(number, id);
            }
            AdmitOutcome::Rejected(why) => return Err(why),
        }
        self.check();
        Ok(number)
    }

    fn arrives(&mut self, tenant: &'static str) -> usize {
        self.arrive((tenant, 0, 0), |ticket| ticket).unwrap()
    }

    /// A request is given a slot.
    fn starts(&mut self, number: usize, slot: TestSlot) {
        assert!(self.may_have_more(self.requests[number].tenant), "{number}");
        // All slots are counted once any tenant has a limit.
        let mut limits = TENANTS.map(|tenant| self.max_of(tenant)).into_iter();
        self.requests[number].is_counted = limits.any(|max| max.is_some());
        self.running.insert(number, slot);
    }

    /// No other goes before this one that could have had its slot.
    fn goes_first(&self, number: usize) {
        let Request {
            tenant,
            lane,
            level,
            arrival,
            ..
        } = self.requests[number];
        let others = self.waiting.keys().filter(|&&other| {
            let request = &self.requests[other];
            let place = (request.level, request.arrival, other);
            request.lane == lane && place < (level, arrival, number)
        });
        for other in others {
            let other = &self.requests[*other];
            match self.room.config().discipline {
                // Promotions and deadlines are not known here.
                _ if self.room.config().promote_after.is_some() => {}
                Discipline::Fifo => assert!(!self.may_have_more(other.tenant), "{other:?}"),
                Discipline::Fair => assert_ne!(other.tenant, tenant),
                _ => assert!(other.level == level || !self.may_have_more(other.tenant)),
            }
        }
    }

    /// Waiters that were granted a slot, or rejected. Returns those that were granted one.
    fn woken(&mut self, wakes: WakeList<usize>) -> Vec<usize> {
        let mut granted = Vec::new();
        let mut given_up = Vec::new();
        for number in wakes {
            let id = self.waiting.remove(&number).unwrap();
            if std::mem::take(&mut self.gives_up) {
                let (slot, _) = self.room.cancel(id, self.now);
                given_up.extend(slot);
            } else if let Ok(slot) = self.room.take_outcome(id).expect("woken for its outcome") {
                // While one is yet to be cancelled, it counts in the room and not here.
                if given_up.is_empty() {
                    self.goes_first(number);
                }
                self.starts(number, slot);
                granted.push(number);
            }
        }
        for slot in given_up {
            let pool = self.pools.release(slot);
            granted.extend(self.on_release(pool));
        }
        granted
    }

    fn on_release(&mut self, pool: tower_triage::admit::PoolId) -> Vec<usize> {
        let mut wakes = WakeList::new();
        self.room
            .on_release(&self.pools, pool, self.now, &mut wakes);
        self.woken(wakes)
    }

    /// A waiter gets another ticket.
    fn changes(&mut self, number: usize, tenant: &'static str, mut lane: usize, level: u8) {
        let id = self.waiting[&number];
        let ticket = Ticket::new(Priority(level), self.now).tenant(tenant.into());
        let request = &mut self.requests[number];
        (request.tenant, request.lane) = (tenant, lane);
        (request.level, request.arrival) = (level, self.now);
        let mut wakes = WakeList::new();
        let (pools, now) = (&self.pools, self.now);
        assert!(
            self.room
                .set_ticket(pools, id, ticket, &mut lane, now, &mut wakes)
        );
        self.woken(wakes);
        self.check();
    }

    /// A running request ends. Returns those that have a slot now.
    fn ends(&mut self, number: usize) -> Vec<usize> {
        let slot = self.running.remove(&number).unwrap();
        let pool = self.pools.release(slot);
        let Request {
            tenant, is_counted, ..
        } = self.requests[number];
        if is_counted {
            self.room.on_tenant_released(&tenant.into());
        }
        let granted = self.on_release(pool);
        self.check();
        granted
    }

    fn cancels(&mut self, number: usize) {
        let id = self.waiting.remove(&number).unwrap();
        let (slot, waker) = self.room.cancel(id, self.now);
        assert_eq!((slot, waker), (None, Some(number)));
        self.check();
    }

    fn reconfigures(&mut self, config: WaitingRoomConfig) -> Vec<usize> {
        let mut wakes = WakeList::new();
        self.room
            .reconfigure(&self.pools, config, self.now, &mut wakes);
        let granted = self.woken(wakes);
        self.check();
        granted
    }

    fn advances(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        let mut wakes = WakeList::new();
        self.room.advance(self.now, &mut wakes);
        self.woken(wakes);
        self.check();
    }

    fn changes_slots(&mut self, pool: usize, slots: usize) {
        self.pools.set_slots(pool, slots);
        let mut wakes = WakeList::new();
        self.room
            .on_capacity_changed(&self.pools, self.now, &mut wakes);
        self.woken(wakes);
        self.check();
    }

    /// No slot is free that a waiter could use, if its tenant may have one more.
    fn check(&self) {
        assert_eq!(self.room.len(), self.waiting.len());
        for (&number, &id) in &self.waiting {
            let Request { tenant, lane, .. } = self.requests[number];
            let is_free = self.pools.fits(lane) && self.may_have_more(tenant);
            assert!(!is_free, "{number} of {tenant} waits beside a free slot");
            assert!(self.room.position(id).is_some());
        }
    }
}

#[test]
fn a_tenant_at_its_limit_waits_beside_free_slots_that_others_take() {
    let mut room = LimitRoom::new(&[4], &[vec![0]], limited(2));
    let [first, second, third, fourth] = ["a"; 4].map(|tenant| room.arrives(tenant));
    let b = room.arrives("b");
    assert_eq!(Vec::from_iter(room.running.keys()), [&first, &second, &b]);
    assert!(room.ends(b).is_empty());
    assert_eq!(room.ends(first), [third]);
    assert_eq!(room.ends(second), [fourth]);
}

#[test]
fn the_most_urgent_of_a_tenant_goes_first() {
    let mut room = LimitRoom::new(&[4], &[vec![0]], limited(1));
    let of = |level| ("a", 0, level);
    let running = room.arrives("a");
    let [low, high, normal] = [2, 0, 1].map(|level| room.arrive(of(level), |t| t).unwrap());
    assert_eq!(room.ends(running), [high]);
    assert_eq!(room.ends(high), [normal]);
    assert_eq!(room.ends(normal), [low]);
}

#[test]
fn a_place_in_the_order_is_kept_meanwhile() {
    // One slot for all, and one for `a` alone.
    let mut room = LimitRoom::new(&[1, 1], &[vec![0], vec![1]], limited(1));
    let other = room.arrive(("a", 1, 0), |t| t).unwrap();
    let b = room.arrives("b");
    // Of `a`, which is at its limit; then others.
    let [a, c, d] = ["a", "c", "d"].map(|tenant| room.arrives(tenant));
    assert!(room.ends(other).is_empty());
    assert_eq!(room.ends(b), [a]);
    assert_eq!(room.ends(a), [c]);
    assert_eq!(room.ends(c), [d]);
}

#[test]
fn a_tenant_s_busy_lane_keeps_its_others_from_nothing() {
    let mut room = LimitRoom::new(&[1, 1], &[vec![0], vec![1]], limited(1));
    let b = room.arrives("b");
    let busy = room.arrives("a");
    // It would be at its limit with either.
    let free = room.arrive(("a", 1, 0), |t| t).unwrap();
    assert!(room.running.contains_key(&free));
    assert!(room.ends(b).is_empty());
    assert_eq!(room.ends(free), [busy]);
}

#[test]
fn one_that_may_not_wait_is_rejected_at_its_tenant_s_limit() {
    let mut room = LimitRoom::new(&[4], &[vec![0]], limited(1));
    room.arrives("a");
    let rejected = room.arrive(("a", 0, 0), Ticket::no_wait);
    assert_eq!(rejected, Err(RejectReason::NotQueued));
}

#[test]
fn parked_waiters_have_bounds_as_all_others() {
    let config = limited(1).max_size(2).max_size_per_tenant(1);
    let mut room = LimitRoom::new(&[4], &[vec![0]], config);
    room.arrives("a");
    let waits = room.arrive(("a", 0, 2), |t| t.timeout(Duration::from_secs(5)));
    let refused = room.arrive(("a", 0, 0), |t| t);
    assert_eq!(refused, Err(RejectReason::TenantFull));
    assert_eq!(
        room.room.next_timeout(),
        Some(room.begin + Duration::from_secs(5))
    );
    room.advances(5);
    assert!(!room.waiting.contains_key(&waits.unwrap()));
}

#[test]
fn a_changed_limit_holds_for_waiters_at_once() {
    let mut room = LimitRoom::new(&[8], &[vec![0]], limited(1));
    let all: Vec<_> = (0..6).map(|_| room.arrives("a")).collect();
    assert_eq!(room.reconfigures(limited(3)), all[1..3]);
    assert!(room.reconfigures(limited(2)).is_empty());
    assert!(room.ends(all[0]).is_empty());
    assert_eq!(room.ends(all[1]), [all[3]]);
    assert_eq!(room.reconfigures(limited(None)), all[4..]);
    // What was counted is counted back, whatever the room is now.
    assert!(room.ends(all[2]).is_empty());
    room.reconfigures(limited(1));
    let next = room.arrives("a");
    assert_eq!(room.ends(all[3]), [next]);
}

#[test]
fn named_tenants_have_limits_of_their_own() {
    let own = |max| TenantLimits::default().concurrency(max);
    let config = limited(2).tenant_limits("a", own(1));
    let config = config.tenant_limits("b", own(3)).tenant_limits("c", own(0));
    let mut room = LimitRoom::new(&[16], &[vec![0]], config.clone());
    let all = ["a", "b", "c", "d"].map(|tenant| [(); 4].map(|()| room.arrives(tenant)));
    let running = |room: &LimitRoom| all.map(|of| of.map(|n| room.running.contains_key(&n)));
    let counts = |room: &LimitRoom| running(room).map(|of| of.iter().filter(|r| **r).count());
    assert_eq!(counts(&room), [1, 3, 0, 2]);
    // Waiters of `c` leave the slots to others.
    assert_eq!(room.ends(all[0][0]), [all[0][1]]);
    assert_eq!(
        room.reconfigures(config.tenant_limits("c", own(2))),
        all[2][..2]
    );
}

#[test]
fn named_tenants_have_room_of_their_own() {
    let most = |max| TenantLimits::default().max_size(max);
    let config = limited(1).max_size_per_tenant(2);
    let config = config
        .tenant_limits("a", most(1))
        .tenant_limits("b", most(0));
    let mut room = LimitRoom::new(&[8], &[vec![0]], config);
    let mut waiting = |tenant| {
        let arrive = |_| room.arrive((tenant, 0, 0), |ticket| ticket);
        let answers: Vec<_> = (0..5).map(arrive).collect();
        let refused = answers
            .iter()
            .filter(|a| **a == Err(RejectReason::TenantFull));
        5 - refused.count() - 1
    };
    assert_eq!(["a", "b", "c"].map(&mut waiting), [1, 0, 2]);
}

#[derive(Debug, Clone)]
enum Event {
    Arrive {
        tenant: usize,
        lane: Index,
        level: u8,
        timeout: Option<u64>,
    },
    End(Index),
    Cancel(Index),
    SetTicket(Index, usize, Index, u8),
    GiveUp,
    Advance(u64),
    /// The limit of each tenant, and that of the first one.
    Reconfigure([Option<usize>; 2], Discipline),
    ChangeSlots(Index, usize),
}

fn discipline() -> impl Strategy<Value = Discipline> {
    prop::sample::select(vec![
        Discipline::Fifo,
        Discipline::Fair,
        Discipline::Deadline,
    ])
}

/// The limit of each tenant, and that of the first one.
fn limits() -> impl Strategy<Value = [Option<usize>; 2]> {
    let each = prop::option::of(1..4_usize);
    let first = prop::option::of(0..5_usize);
    (each, first).prop_map(<[_; 2]>::from)
}

fn event() -> impl Strategy<Value = Event> {
    let arrive = (
        0..3_usize,
        any::<Index>(),
        0..3_u8,
        prop::option::of(1..20_u64),
    );
    prop_oneof![
        8 => arrive.prop_map(|(tenant, lane, level, timeout)| {
            Event::Arrive { tenant, lane, level, timeout }
        }),
        6 => any::<Index>().prop_map(Event::End),
        2 => any::<Index>().prop_map(Event::Cancel),
        2 => (any::<Index>(), 0..3_usize, any::<Index>(), 0..3_u8)
            .prop_map(|(which, tenant, lane, level)| Event::SetTicket(which, tenant, lane, level)),
        1 => Just(Event::GiveUp),
        1 => (0..5_u64).prop_map(Event::Advance),
        1 => (limits(), discipline())
            .prop_map(|(max, discipline)| Event::Reconfigure(max, discipline)),
        1 => (any::<Index>(), 0..4_usize)
            .prop_map(|(pool, slots)| Event::ChangeSlots(pool, slots)),
    ]
}

proptest! {
    #[test]
    fn no_tenant_has_more_than_its_limit_and_no_slot_is_idle_for_it(
        lanes in prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2], 1..=3), 1..4),
        slots in prop::collection::vec(0..4_usize, 3),
        max in limits(),
        first in discipline(),
        ages in any::<bool>(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let aging = ages.then_some(Duration::from_secs(3));
        let of = |[max, own]: [Option<usize>; 2], discipline| {
            let config = limited(max).discipline(discipline).promote_after(aging);
            match own {
                Some(own) => config.tenant_limits("a", TenantLimits::default().concurrency(own)),
                None => config,
            }
        };
        let mut room = LimitRoom::new(&slots, &lanes, of(max, first));
        for event in events {
            match event {
                Event::Arrive { tenant, lane, level, timeout } => {
                    let request = (TENANTS[tenant], lane.index(lanes.len()), level);
                    let timeout = timeout.map(Duration::from_secs);
                    room.arrive(request, |ticket| match timeout {
                        Some(timeout) => ticket.timeout(timeout),
                        None => ticket,
                    }).unwrap();
                }
                Event::End(which) if !room.running.is_empty() => {
                    let nth = which.index(room.running.len());
                    let number = *room.running.keys().nth(nth).unwrap();
                    room.ends(number);
                }
                Event::Cancel(which) if !room.waiting.is_empty() => {
                    let nth = which.index(room.waiting.len());
                    let number = *room.waiting.keys().nth(nth).unwrap();
                    room.cancels(number);
                }
                Event::SetTicket(which, tenant, lane, level) if !room.waiting.is_empty() => {
                    let nth = which.index(room.waiting.len());
                    let number = *room.waiting.keys().nth(nth).unwrap();
                    let (tenant, lane) = (TENANTS[tenant], lane.index(lanes.len()));
                    room.changes(number, tenant, lane, level);
                }
                Event::End(_) | Event::Cancel(_) | Event::SetTicket(..) => {}
                Event::GiveUp => room.gives_up = true,
                Event::Advance(seconds) => room.advances(seconds),
                Event::Reconfigure(max, discipline) => {
                    room.reconfigures(of(max, discipline));
                }
                Event::ChangeSlots(pool, slots) => room.changes_slots(pool.index(3), slots),
            }
        }
        // With slots for all, the rest is served as the running ones end.
        room.reconfigures(of([Some(1), None], first));
        for pool in 0..3 {
            room.changes_slots(pool, 1);
        }
        while let Some(&number) = room.running.keys().next() {
            room.ends(number);
        }
        prop_assert!(room.waiting.is_empty());
        prop_assert_eq!(room.pools.usage().in_use, 0);
        let mut wakes = WakeList::new();
        room.room.close(&mut wakes);
        prop_assert!(wakes.is_empty());
    }
}
