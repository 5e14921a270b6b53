//! Equivalence of the two orders, also after changes from one to the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::Discipline::{self, Deadline, Fair, Fifo};
use tower_triage::admit::{AdmitOutcome, PoolId, TargetWait, WaiterId, WaitingRoom, WakeList};
use tower_triage::{Priority, Ticket};

use super::driver::{Asked, Event, RoomOptions, TENANTS, one_lane_events, room_options};
use super::pools::{InLanes, TestCapacity, TestPools, TestSlot};

/// A room in front of a capacity.
struct Subject<C: TestCapacity> {
    room: WaitingRoom<C, usize>,
    pools: C,
    ids: BTreeMap<usize, WaiterId>,
    running: Vec<TestSlot>,
    /// The pool of a slot that is free without the room having been told.
    untold: Option<PoolId>,
    reserved: usize,
    arrived: usize,
    now: Instant,
    target: TargetWait,
}

impl<C: TestCapacity> Subject<C> {
    fn new(begin: Instant, options: &RoomOptions, slots: &[usize], target: TargetWait) -> Self {
        Self {
            room: WaitingRoom::new(options.config().target_wait(target), begin),
            target,
            pools: C::from(TestPools::new(slots, &[vec![0, 1]])),
            ids: BTreeMap::new(),
            running: Vec::new(),
            untold: None,
            reserved: 0,
            arrived: 0,
            now: begin + Duration::from_secs(100),
        }
    }

    /// Applies an event, and returns all that can be seen of it.
    fn apply(&mut self, event: Event) -> String {
        let mut wakes = WakeList::new();
        if !matches!(event, Event::Arrive(_) | Event::TakeOutcome(_))
            && let Some(pool) = self.untold.take()
        {
            self.room
                .on_release(&self.pools, pool, self.now, &mut wakes);
        }
        let seen = self.apply_event(event, &mut wakes);
        let wakes: Vec<usize> = wakes.into_iter().collect();
        format!("{seen} {wakes:?}")
    }

    fn apply_event(&mut self, event: Event, wakes: &mut WakeList<usize>) -> String {
        let Self {
            room,
            pools,
            now,
            target,
            ..
        } = self;
        match event {
            Event::Arrive(asked) => return self.arrive(asked, wakes),
            Event::SetTicket(which, asked) => return self.set_ticket(which, asked, wakes),
            Event::Release(which) if !self.running.is_empty() => {
                let slot = self.running.swap_remove(which.index(self.running.len()));
                let pool = pools.release(slot);
                room.on_release(pools, pool, *now, wakes);
            }
            Event::ReleaseUntold(which) if !self.running.is_empty() => {
                let slot = self.running.swap_remove(which.index(self.running.len()));
                self.untold = Some(pools.release(slot));
            }
            Event::Cancel(which) => return self.cancel(which, wakes),
            Event::TakeOutcome(which) => return self.take_outcome(which),
            Event::Advance(seconds) => {
                *now += Duration::from_secs(seconds);
                room.advance(*now, wakes);
            }
            Event::Reconfigure(options) => {
                let config = options.config().target_wait(*target);
                room.reconfigure(pools, config, *now, wakes);
            }
            Event::SetSlots { pool, slots } => {
                pools.as_ref().set_slots(pool, slots);
                room.on_capacity_grown(pools, *now, wakes);
            }
            Event::SetServes { lane, serves } => {
                pools.as_ref().set_serves(lane, serves);
                room.on_capacity_changed(pools, *now, wakes);
            }
            Event::Move { .. } | Event::SetPartition(_) => {}
            Event::Reserve => self.reserved += usize::from(room.reserve()),
            Event::Unreserve if self.reserved > 0 => {
                self.reserved -= 1;
                room.unreserve();
            }
            Event::Close => room.close(wakes),
            Event::Release(_) | Event::ReleaseUntold(_) | Event::Unreserve => {}
        }
        String::new()
    }

    /// A ticket, and the lane that it is for.
    fn ticket(&self, asked: Asked) -> (Ticket, usize) {
        let Asked {
            priority,
            tenant,
            lane,
            ago,
            within,
            requeued,
            patient,
            ..
        } = asked;
        let mut ticket = Ticket::from(Priority(priority))
            .tenant(TENANTS[tenant].into())
            .cost(1);
        ticket.arrival = ago.map(|ago| self.now - Duration::from_secs(ago));
        let arrival = ticket.arrival.unwrap_or(self.now);
        ticket.deadline = within.map(|within| arrival + Duration::from_secs(within));
        (ticket.requeued, ticket.patient) = (requeued, patient);
        if self.target != TargetWait::Off {
            // Its wait is not predicted.
            (ticket.arrival, ticket.requeued) = (Some(arrival), true);
        }
        (ticket, lane)
    }

    fn set_ticket(&mut self, which: Index, asked: Asked, wakes: &mut WakeList<usize>) -> String {
        let Some((_, id)) = self.pick(which) else {
            return String::new();
        };
        let (ticket, mut lane) = self.ticket(asked);
        let now = self.now;
        let is_changed = self
            .room
            .set_ticket(&self.pools, id, ticket, &mut lane, now, wakes);
        format!("{is_changed} {lane}")
    }

    fn arrive(&mut self, asked: Asked, wakes: &mut WakeList<usize>) -> String {
        let (ticket, lane) = self.ticket(asked);
        let number = self.arrived;
        self.arrived += 1;
        match self.room.arrive(&self.pools, ticket, lane, self.now, wakes) {
            AdmitOutcome::Queued(id) => {
                self.ids.insert(number, id);
                format!("queued {:?}", self.room.set_waker(id, number))
            }
            AdmitOutcome::Leased(slot) => {
                self.running.push(slot);
                format!("leased {:?}", self.running.last())
            }
            AdmitOutcome::Rejected(why) => format!("rejected {why:?}"),
        }
    }

    fn pick(&self, which: Index) -> Option<(usize, WaiterId)> {
        let nth = which.index(self.ids.len().max(1));
        self.ids.iter().nth(nth).map(|(&number, &id)| (number, id))
    }

    fn cancel(&mut self, which: Index, wakes: &mut WakeList<usize>) -> String {
        let Some((number, id)) = self.pick(which) else {
            return String::new();
        };
        self.ids.remove(&number);
        let (slot, waker) = self.room.cancel(id, self.now);
        let seen = format!("{slot:?} {waker:?}");
        if let Some(slot) = slot {
            let pool = self.pools.release(slot);
            self.room.on_release(&self.pools, pool, self.now, wakes);
        }
        seen
    }

    fn take_outcome(&mut self, which: Index) -> String {
        let Some((number, id)) = self.pick(which) else {
            return String::new();
        };
        let answer = self.room.take_outcome(id);
        let seen = format!("{answer:?}");
        if answer.is_some() {
            self.ids.remove(&number);
        }
        self.running.extend(answer.and_then(Result::ok));
        seen
    }

    /// The results of all getters.
    fn snapshot(&self) -> String {
        let Self {
            room, ids, pools, ..
        } = self;
        let stands = |(&number, &id): (&usize, &WaiterId)| {
            let (waker, position) = (room.waker(id), room.position(id));
            (number, room.waits(id), waker.copied(), position)
        };
        let stand: Vec<_> = ids.iter().map(stands).collect();
        let head = room.head().map(|head| room.waker(head));
        let (mut counts, len) = (room.stats(), (room.len(), room.has_room()));
        // How many leases a room gives back without use is its own affair; how many are used is not.
        let used = pools.leased() - std::mem::take(&mut counts.unclaimed);
        // What is measured is not compared: two pools are measured one by one.
        let next_timeout = room.next_timeout();
        format!(
            "{used} {counts:?} {len:?} {next_timeout:?} {head:?} {stand:?} {:?}",
            pools.as_ref().taken()
        )
    }
}

const ORDERS: &[Discipline] = &[Fifo, Deadline, Fair];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn levels_and_lanes_cannot_be_told_apart(
        options in room_options(ORDERS),
        slots in prop::array::uniform2(0usize..3),
        events in one_lane_events(ORDERS),
        target in prop::option::of(1u64..10),
    ) {
        let target = target.map_or(TargetWait::Off, |target| Duration::from_secs(target).into());
        let begin = Instant::now();
        let mut one = Subject::<InLanes>::new(begin, &options, &slots, target);
        let mut other = Subject::<TestPools>::new(begin, &options, &slots, target);
        for event in events {
            assert_eq!(one.apply(event.clone()), other.apply(event.clone()), "{event:?}");
            let snapshots = (one.snapshot(), other.snapshot());
            assert_eq!(snapshots.0, snapshots.1, "after {event:?}");
        }
    }
}
