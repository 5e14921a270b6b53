//! What a waiting room in front of endpoints predicts and reports.

use std::time::{Duration, Instant};

use super::*;
use crate::admit::{
    AdmitOutcome, KeptSlots, Priority, RejectReason, ReservedSlots, TargetWait, Ticket, WaiterId,
    WaitingRoom, WaitingRoomConfig, WakeList,
};

struct TestRoom {
    room: WaitingRoom<Endpoints, WaiterId>,
    endpoints: Endpoints,
    now: Instant,
    running: Vec<EndpointLease>,
}

impl TestRoom {
    fn new(endpoints: Endpoints, config: WaitingRoomConfig) -> Self {
        let now = Instant::now();
        Self {
            room: WaitingRoom::new(config, now),
            endpoints,
            now,
            running: Vec::new(),
        }
    }

    fn arrives(&mut self, model: &str, level: u8) -> Result<(), RejectReason<RouteError>> {
        let demand = self.endpoints.demand(&Requirements::new(model));
        let ticket = Ticket::new(Priority(level), self.now);
        let mut wakes = WakeList::new();
        let outcome = self
            .room
            .arrive(&self.endpoints, ticket, demand, self.now, &mut wakes);
        match outcome {
            AdmitOutcome::Leased(lease) => self.running.push(lease),
            AdmitOutcome::Queued(id) => _ = self.room.set_waker(id, id).unwrap(),
            AdmitOutcome::Rejected(why) => return Err(why),
        }
        Ok(())
    }

    /// The first of the running requests ends after so many seconds.
    fn ends_after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        let pool = self.endpoints.release(self.running.remove(0));
        let mut wakes = WakeList::new();
        self.room
            .on_release(&self.endpoints, pool, self.now, &mut wakes);
        self.start(wakes);
    }

    fn set_limit(&mut self, endpoint: usize, slots: u32) {
        self.endpoints.endpoints()[endpoint].set_limit(slots);
        let mut wakes = WakeList::new();
        self.room
            .on_capacity_changed(&self.endpoints, self.now, &mut wakes);
        self.start(wakes);
    }

    fn start(&mut self, granted: WakeList<WaiterId>) {
        for id in granted {
            self.running
                .push(self.room.take_outcome(id).unwrap().unwrap());
        }
    }

    /// The estimates of the levels, in tenths of a second.
    fn estimates(&mut self) -> Vec<Option<u64>> {
        let levels = self.room.levels(&self.endpoints, self.now).into_iter();
        let estimates = levels.map(|level| level.estimated_wait);
        estimates
            .map(|wait| wait.map(|wait| (wait.as_secs_f64() * 10.0).round() as u64))
            .collect()
    }

    fn reserved(&mut self) -> usize {
        self.room.levels(&self.endpoints, self.now)[0].reserved
    }
}

fn config() -> WaitingRoomConfig {
    WaitingRoomConfig::default()
        .max_wait(None)
        .target_wait(TargetWait::After(Duration::from_secs(1_000)))
}

/// An endpoint of two slots, which hands over one per second, for which 10 requests wait.
fn measured(others: &[Endpoint]) -> TestRoom {
    let endpoints = [&[endpoint("a", 2, &["m"])], others].concat();
    let mut room = TestRoom::new(capacity(endpoints), config());
    for _ in 0..22 {
        room.arrives("m", 1).unwrap();
    }
    for _ in 0..10 {
        room.ends_after(1);
    }
    assert_eq!(room.estimates(), [Some(10), Some(110)]);
    room
}

fn assert_near(estimates: &[Option<u64>], expected: [u64; 2]) {
    for (estimate, expected) in estimates.iter().zip(expected) {
        let near = expected * 8 / 10..=expected;
        assert!(near.contains(&estimate.unwrap()), "{estimates:?}");
    }
}

#[test]
fn an_estimate_follows_a_limit_at_once() {
    let mut room = measured(&[]);
    // Two of the waiters have the two new slots, and the others wait for half as long; or a little less, as it looks as if
    // two slots had come back.
    room.set_limit(0, 4);
    assert_near(&room.estimates(), [5, 45]);
    room.set_limit(0, 1);
    assert_near(&room.estimates(), [20, 180]);
}

#[test]
fn an_arrival_is_refused_by_the_limit_of_the_moment() {
    let mut room = measured(&[]);
    let arrives_with_patience = |room: &mut TestRoom, seconds| {
        let demand = room.endpoints.demand(&Requirements::new("m"));
        let mut ticket = Ticket::new(Priority(1), room.now);
        ticket.deadline = Some(room.now + Duration::from_secs(seconds));
        let mut wakes = WakeList::new();
        room.room
            .arrive(&room.endpoints, ticket, demand, room.now, &mut wakes)
    };
    // 11 seconds at 1 per second, 44 at a quarter of that.
    room.endpoints.endpoints()[0].set_limit(1);
    assert!(matches!(
        arrives_with_patience(&mut room, 15),
        AdmitOutcome::Rejected(RejectReason::Overloaded { .. })
    ));
    room.endpoints.endpoints()[0].set_limit(2);
    assert!(matches!(
        arrives_with_patience(&mut room, 15),
        AdmitOutcome::Queued(_)
    ));
}

#[test]
fn an_estimate_is_that_of_the_slowest_endpoint_for_which_requests_wait() {
    let mut room = measured(&[endpoint("b", 1, &["n"])]);
    // Its slot is free: no other waits for it.
    room.arrives("n", 1).unwrap();
    room.arrives("n", 1).unwrap();
    assert_eq!(room.estimates(), [Some(10), Some(110)]);
}

#[test]
fn slots_are_kept_by_each_endpoint_in_service() {
    let config = config().reserve("high", ReservedSlots::Slots(1));
    let endpoints = capacity([endpoint("a", 2, &["m"]), endpoint("b", 3, &["n"])]);
    let mut room = TestRoom::new(endpoints, config);
    assert_eq!(room.reserved(), 2);
    room.endpoints.endpoints()[1].set_healthy(false);
    assert_eq!(room.reserved(), 1);
}

#[test]
fn a_pool_s_slots_are_those_of_its_endpoint() {
    let endpoints = capacity([endpoint("a", 2, &["m"]), endpoint("b", 3, &["m"])]);
    let demand = endpoints.demand(&Requirements::new("m"));
    let _leases: Vec<_> = (0..5)
        .map(|_| {
            endpoints
                .try_lease_keeping(&demand, KeptSlots::NONE)
                .unwrap()
        })
        .collect();
    let of = |pool| {
        let usage = endpoints.pool_usage(PoolId(pool));
        (usage.slots, usage.in_use)
    };
    assert_eq!([of(0), of(1), of(2)], [(2, 2), (3, 3), (0, 0)]);
    let changed = endpoints.change(|_| {
        let registry = Registry::new(vec![endpoint("b", 3, &["m"])])?;
        Ok::<_, InvalidRegistry>((registry, None))
    });
    assert_eq!(changed.unwrap().removed, ["a"]);
    let of = |pool| {
        let usage = endpoints.pool_usage(PoolId(pool));
        (usage.slots, usage.in_use)
    };
    assert_eq!([of(0), of(1)], [(0, 0), (3, 3)]);
}
