//! Overload: the share of the capacity that serves requests in time, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, ClientRetry, LeaseError, Partition, PoolId, PoolSet, Reserve,
    ServiceSample, Slot, TargetWait, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Discipline, Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

use super::pools::{TestPools, TestSlot};

const SLOTS: usize = 8;
const SERVICE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(1);
const SECONDS: u64 = 120;

/// A service of `SLOTS` slots, and callers that go away after `PATIENCE`.
struct Study {
    config: WaitingRoomConfig,
    /// Arrivals in terms of what the slots can serve.
    load: f64,
    /// The share of arrivals of the higher level.
    high: f64,
    /// Whether callers say how long they wait.
    is_told: bool,
    /// Of how many tenants each sends as much as another; the first sends as much as all others together.
    tenants: usize,
    /// From when to when the service stands still, in seconds.
    pause: (u64, u64),
    /// The share of the first tenant's requests that are given up after 1 ms.
    hasty: f64,
    /// The load of another client in the first half of the time, in terms of what the slots can serve: its requests are
    /// given up after 20 ms. All other callers are patient for 20 s then.
    hang_ups: f64,
}

impl Default for Study {
    fn default() -> Self {
        Self {
            config: WaitingRoomConfig::default(),
            load: 1.5,
            high: 0.0,
            is_told: true,
            tenants: 1,
            pause: (0, 0),
            hasty: 0.0,
            hang_ups: 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// The caller goes away.
    Leaves(usize),
    Ends(usize),
}

#[derive(Debug, Default)]
struct Request {
    level: u8,
    tenant: usize,
    arrived: Duration,
    /// How many waited when it arrived.
    found: usize,
    waiter: Option<WaiterId>,
    slot: Option<Slot>,
    served: Option<ServiceSample>,
    wait: Option<Duration>,
    in_time: bool,
    is_hang_up: bool,
    rejected: Option<RejectReason>,
}

struct Run<C: Capacity> {
    study: Study,
    begin: Instant,
    room: WaitingRoom<C, usize>,
    slots: C,
    requests: Vec<Request>,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    random: fastrand::Rng,
    now: Duration,
}

/// A capacity of plain slots.
trait Slots: Capacity<Demand = (), Lease = Slot, Unservable = Infallible> {}
impl<C: Capacity<Demand = (), Lease = Slot, Unservable = Infallible>> Slots for C {}

/// The slots of a partition with a discipline of its own.
struct Partitioned(SlotPool, Discipline);

impl Capacity for Partitioned {
    type Demand = ();
    type Lease = Slot;
    type Lane = ();
    type Unservable = Infallible;

    fn try_lease(&self, (): &()) -> Result<Slot, LeaseError<Infallible>> {
        self.0.try_lease(&())
    }

    fn release(&self, slot: Slot) -> PoolId {
        self.0.release(slot)
    }

    fn pool(&self, slot: &Slot) -> PoolId {
        self.0.pool(slot)
    }

    fn lane(&self, (): &()) {}

    fn pools(&self, (): &()) -> PoolSet {
        PoolSet::one(PoolId(0))
    }

    fn partition(&self, (): &()) -> Partition {
        Partition {
            id: 1,
            max_size: None,
            discipline: Some(self.1),
        }
    }

    fn slots(&self, pool: PoolId) -> usize {
        self.0.slots(pool)
    }

    fn in_use(&self) -> usize {
        self.0.in_use()
    }

    fn limit(&self) -> usize {
        self.0.limit()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}

impl Study {
    fn run(self) -> Vec<Request> {
        self.run_with(SlotPool::new(SLOTS))
    }

    fn run_with(self, slots: impl Slots) -> Vec<Request> {
        let begin = Instant::now();
        let mut run = Run {
            room: WaitingRoom::new(self.config.clone(), begin),
            study: self,
            begin,
            slots,
            requests: Vec::new(),
            events: BinaryHeap::from([Reverse((Duration::ZERO, Event::Arrival))]),
            random: fastrand::Rng::with_seed(7),
            now: Duration::ZERO,
        };
        while let Some(Reverse((at, event))) = run.events.pop() {
            if at > Duration::from_secs(SECONDS) {
                break;
            }
            run.now = at;
            run.on_event(event);
        }
        run.requests
    }
}

impl<C: Slots> Run<C> {
    fn now(&self) -> Instant {
        self.begin + self.now
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.events.push(Reverse((self.now + delay, event)));
    }

    fn on_event(&mut self, event: Event) {
        let mut wakes = WakeList::new();
        match event {
            Event::Arrival => self.arrive(&mut wakes),
            Event::Leaves(number) => self.leave(number),
            Event::Ends(number) => self.end(number, &mut wakes),
        }
        for number in wakes {
            let Some(waiter) = self.requests[number].waiter.take() else {
                continue;
            };
            match self.room.take_outcome(waiter) {
                Some(Ok(slot)) => self.start(number, slot),
                Some(Err(why)) => self.requests[number].rejected = Some(why),
                None => unreachable!("a waiter is woken when its wait is over"),
            }
        }
    }

    fn arrive(&mut self, wakes: &mut WakeList<usize>) {
        let number = self.requests.len();
        let is_attack = self.now < Duration::from_secs(SECONDS / 2);
        let hang_ups = if is_attack { self.study.hang_ups } else { 0.0 };
        let load = self.study.load + hang_ups;
        let per_second = load * SLOTS as f64 / SERVICE.as_secs_f64();
        let gap = -(1.0 - self.random.f64()).ln() / per_second;
        self.after(Duration::from_secs_f64(gap), Event::Arrival);
        let level = u8::from(self.random.f64() >= self.study.high);
        let tenant = match self.random.bool() {
            true => 0,
            false => self.random.usize(..self.study.tenants),
        };
        let mut ticket = Ticket::new(Priority(level), self.now()).tenant(tenant.to_string().into());
        let mut patience = PATIENCE;
        if tenant == 0 && self.study.hasty > 0.0 && self.random.f64() < self.study.hasty {
            patience = Duration::from_millis(1);
        }
        let is_hang_up = hang_ups > 0.0 && self.random.f64() < hang_ups / load;
        if self.study.hang_ups > 0.0 {
            patience = Duration::from_millis(if is_hang_up { 20 } else { 20_000 });
        }
        if self.study.is_told {
            ticket = ticket.timeout(patience);
        }
        self.requests.push(Request {
            level,
            tenant,
            arrived: self.now,
            found: self.room.len(),
            is_hang_up,
            ..Request::default()
        });
        let now = self.now();
        match self.room.arrive(&self.slots, ticket, (), now, wakes) {
            AdmitOutcome::Leased(slot) => self.start(number, slot),
            AdmitOutcome::Queued(waiter) => {
                self.room.set_waker(waiter, number).unwrap();
                self.requests[number].waiter = Some(waiter);
                self.after(patience, Event::Leaves(number));
            }
            AdmitOutcome::Rejected(why) => self.requests[number].rejected = Some(why),
        }
    }

    fn start(&mut self, number: usize, slot: Slot) {
        let now = self.now();
        let request = &mut self.requests[number];
        request.served = Some(self.room.served(&self.slots, &(), now));
        request.wait = Some(self.now - request.arrived);
        request.slot = Some(slot);
        let (begin, end) = self.study.pause;
        let mut service = SERVICE;
        if self.now.as_secs() < end && self.now + SERVICE >= Duration::from_secs(begin) {
            service += Duration::from_secs(end) - self.now.max(Duration::from_secs(begin));
        }
        self.after(service, Event::Ends(number));
    }

    /// A backend notices that its caller went away when it has finished.
    fn leave(&mut self, number: usize) {
        let now = self.now();
        if let Some(waiter) = self.requests[number].waiter.take() {
            self.room.cancel(waiter, now);
        } else {
            self.requests[number].served = None;
        }
    }

    fn end(&mut self, number: usize, wakes: &mut WakeList<usize>) {
        let now = self.now();
        let request = &mut self.requests[number];
        if let Some(served) = request.served.take() {
            request.in_time = true;
            self.room.on_answered(&served, now);
        }
        let slot = request.slot.take().unwrap();
        let pool = self.slots.release(slot);
        self.room.on_release(&self.slots, pool, now, wakes);
    }
}

/// The share of the slots' time from second `from` on that was spent on requests that were answered in time.
fn useful(requests: &[Request], from: u64) -> f64 {
    let since = Duration::from_secs(from);
    let in_time = requests
        .iter()
        .filter(|request| request.in_time && request.arrived >= since);
    let work = in_time.count() as f64 * SERVICE.as_secs_f64();
    work / (SLOTS as f64 * (SECONDS - from) as f64)
}

fn share(
    requests: &[Request],
    of: impl Fn(&Request) -> bool,
    is: impl Fn(&Request) -> bool,
) -> f64 {
    // The last second is not over.
    let all = requests
        .iter()
        .filter(|request| request.arrived.as_secs() < SECONDS - 1 && of(request));
    let (mut all_of, mut those) = (0.0, 0.0);
    for request in all {
        all_of += 1.0;
        those += f64::from(u8::from(is(request)));
    }
    those / all_of
}

fn quantile(requests: &[Request], of: impl Fn(&Request) -> bool, q: f64) -> Duration {
    let waits = requests.iter().filter(|request| of(request));
    let mut waits: Vec<_> = waits.filter_map(|request| request.wait).collect();
    waits.sort_unstable();
    waits[(waits.len() as f64 * q) as usize]
}

fn p99(requests: &[Request], of: impl Fn(&Request) -> bool) -> Duration {
    quantile(requests, of, 0.99)
}

const DISCIPLINES: [Discipline; 3] = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];

#[test]
fn the_capacity_is_spent_on_requests_that_are_in_time() {
    for discipline in DISCIPLINES {
        for load in [1.2, 1.5, 3.0] {
            let config = WaitingRoomConfig::default().discipline(discipline);
            let all = Study {
                config,
                load,
                ..Study::default()
            };
            let all = all.run();
            let useful = useful(&all, 0);
            assert!(useful >= 0.98, "{discipline:?} at {load}: {useful}");
            // All who are refused are told at once.
            let in_vain = share(&all, |r| !r.in_time, |r| r.rejected.is_none());
            assert!(in_vain <= 0.01, "{discipline:?} at {load}: {in_vain}");
        }
    }
}

#[test]
fn without_a_target_the_capacity_is_wasted() {
    let config = WaitingRoomConfig::default().target_wait(TargetWait::Off);
    let all = Study {
        config,
        is_told: false,
        ..Study::default()
    };
    let useful = useful(&all.run(), 0);
    assert!(useful < 0.5, "{useful}");
}

#[test]
fn silent_callers_are_served_in_time_in_lasting_overload() {
    for load in [1.5, 3.0] {
        let all = Study {
            load,
            is_told: false,
            ..Study::default()
        };
        // A burst is let in for longer than these callers wait, because the room does not know how long that is.
        let useful = useful(&all.run(), 10);
        assert!(useful >= 0.85, "at {load}: {useful}");
    }
}

#[test]
fn a_service_that_stood_still_is_used_again_at_once() {
    for (is_told, pause) in [(true, (20, 50)), (true, (10, 80)), (false, (20, 30))] {
        let all = Study {
            is_told,
            pause,
            ..Study::default()
        };
        let useful = useful(&all.run(), pause.1 + 5);
        let least = if is_told { 0.95 } else { 0.8 };
        assert!(useful >= least, "{is_told} {pause:?}: {useful}");
    }
}

#[test]
fn a_high_level_is_served_as_if_it_were_alone() {
    for load in [1.5, 3.0] {
        let all = Study {
            load,
            high: 0.2,
            ..Study::default()
        };
        let all = all.run();
        let served = share(&all, |r| r.level == 0, |r| r.in_time);
        assert_eq!(served, 1.0, "at {load}");
        let p99 = p99(&all, |r| r.level == 0);
        assert!(p99 <= SERVICE, "at {load}: {p99:?}");
        let useful = useful(&all, 0);
        assert!(useful >= 0.98, "at {load}: {useful}");
    }
}

#[test]
fn tenants_within_their_share_are_not_refused_for_a_greedy_one() {
    let served = |discipline, hasty| {
        let all = Study {
            config: WaitingRoomConfig::default().discipline(discipline),
            tenants: 10,
            hasty,
            ..Study::default()
        };
        share(&all.run(), |r| r.tenant > 0, |r| r.in_time)
    };
    let (fifo, fair) = (served(Discipline::Fifo, 0.0), served(Discipline::Fair, 0.0));
    assert!(fifo < 0.75 && fair >= 0.97, "{fifo} {fair}");
    // Nor does it gain by deadlines that make the room forget.
    let hasty = served(Discipline::Fair, 0.01);
    assert!(hasty >= 0.97, "{hasty}");
}

#[test]
fn levels_with_weights_have_their_shares_in_overload() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        for is_told in [true, false] {
            let run = |load, high| {
                let all = Study {
                    config: WaitingRoomConfig::default()
                        .discipline(discipline)
                        .level_weight("high", 3),
                    load,
                    high,
                    is_told,
                    ..Study::default()
                };
                // Until then, slots were idle of late.
                let all = all.run().into_iter();
                all.filter(|r| r.arrived.as_secs() >= 60)
                    .collect::<Vec<_>>()
            };
            // Each level alone sends twice of what can be served.
            let all = run(4.0, 0.5);
            let high = share(&all, |r| r.in_time, |r| r.level == 0);
            assert!((high / 0.75 - 1.0).abs() <= 0.1, "{discipline:?}: {high}");
            for level in [0, 1] {
                let p99 = p99(&all, |r| r.level == level);
                assert!(p99 <= PATIENCE / 2, "{discipline:?}, {level}: {p99:?}");
            }
            for all in [all, run(2.0, 0.0), run(2.0, 1.0)] {
                let useful = useful(&all, 60);
                assert!(useful >= 0.98, "{discipline:?}: {useful}");
            }
        }
    }
}

#[test]
fn shares_are_those_of_the_partition_s_discipline() {
    let served = |room, partition| {
        let all = Study {
            config: WaitingRoomConfig::default().discipline(room),
            tenants: 10,
            ..Study::default()
        };
        let all = all.run_with(Partitioned(SlotPool::new(SLOTS), partition));
        share(&all, |r| r.tenant > 0, |r| r.in_time)
    };
    let fair = served(Discipline::Fifo, Discipline::Fair);
    let fifo = served(Discipline::Fair, Discipline::Fifo);
    assert!(fifo < 0.75 && fair >= 0.97, "{fifo} {fair}");
}

#[test]
fn only_a_request_that_finds_waiters_before_it_is_refused_as_overloaded() {
    let all = Study {
        config: WaitingRoomConfig::default().target_wait(Duration::ZERO),
        load: 1.5,
        ..Study::default()
    };
    let all = all.run();
    let mut refused = all.iter().filter(|r| r.rejected.is_some()).peekable();
    assert!(refused.peek().is_some());
    assert!(refused.all(|r| r.found > 0));
    // One always waits, so the slots are rarely idle.
    let useful = useful(&all, 0);
    assert!(useful > 0.9, "{useful}");
}

#[test]
fn both_rooms_predict_the_same() {
    let outcomes = |config: WaitingRoomConfig| {
        let all = Study {
            config,
            high: 0.2,
            ..Study::default()
        };
        let all = all.run().into_iter();
        all.map(|r| (r.wait, r.rejected)).collect::<Vec<_>>()
    };
    let config = WaitingRoomConfig::default;
    let reserve = Reserve::Slots(2);
    for config in [
        config(),
        config().reserve("high", reserve).lend(true),
        config().lifo_when_standing(true),
    ] {
        let plain = outcomes(config.clone());
        // Only the full room promotes.
        let full = outcomes(config.promote_after(Duration::from_secs(86_400)));
        assert!(plain == full);
    }
}

#[test]
fn silent_callers_are_served_sooner_newest_first() {
    for load in [1.5, 3.0] {
        let [oldest_first, newest_first] = [false, true].map(|lifo| {
            let all = Study {
                config: WaitingRoomConfig::default().lifo_when_standing(lifo),
                load,
                is_told: false,
                ..Study::default()
            };
            let all = all.run();
            let useful = useful(&all, 10);
            let least = if lifo { 0.95 } else { 0.85 };
            assert!(useful >= least, "{lifo} at {load}: {useful}");
            quantile(&all, |_| true, 0.5)
        });
        assert!(
            newest_first < oldest_first,
            "at {load}: {newest_first:?} {oldest_first:?}"
        );
    }
}

#[test]
fn a_request_that_can_not_be_answered_in_time_is_not_started() {
    for discipline in DISCIPLINES {
        let config = WaitingRoomConfig::default().discipline(discipline);
        let (begin, slots) = (Instant::now(), SlotPool::new(1));
        let mut room: WaitingRoom<SlotPool, &str> = WaitingRoom::new(config, begin);
        let at = |ms| begin + Duration::from_millis(ms);
        let ticket = |timeout| Ticket::new(Priority::HIGHEST, begin).timeout(timeout);
        let mut wakes = WakeList::new();
        let outcome = room.arrive(&slots, ticket(PATIENCE), (), begin, &mut wakes);
        let AdmitOutcome::Leased(slot) = outcome else {
            panic!("{outcome:?}");
        };
        for _ in 0..20 {
            let served = room.served(&slots, &(), begin);
            room.on_answered(&served, at(200));
        }
        let mut wait = |name, ms| {
            let ticket = ticket(Duration::from_millis(ms));
            let outcome = room.arrive(&slots, ticket, (), begin, &mut wakes);
            let AdmitOutcome::Queued(id) = outcome else {
                panic!("{outcome:?}");
            };
            room.set_waker(id, name).unwrap();
            id
        };
        let (late, in_time) = (wait("late", 299), wait("in time", 300));
        let pool = slots.release(slot);
        room.on_release(&slots, pool, at(100), &mut wakes);
        assert_eq!(wakes.into_iter().collect::<Vec<_>>(), ["late", "in time"]);
        let rejected = room.take_outcome(late).unwrap().err();
        assert_eq!(rejected, Some(RejectReason::DeadlinePassed));
        assert!(room.take_outcome(in_time).unwrap().is_ok());
    }
}

/// A room in front of one slot, of which it is known that it serves a request in 200 ms. The slot is taken, and none waits.
fn known() -> (WaitingRoom<SlotPool, ()>, SlotPool, Instant) {
    let (mut now, slots) = (Instant::now(), SlotPool::new(1));
    let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
    let mut wakes = WakeList::new();
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slot = slots.try_lease(&()).unwrap();
    for _ in 0..30 {
        let id = queued(room.arrive(&slots, ticket(now), (), now, &mut wakes));
        let served = room.served(&slots, &(), now);
        now += SERVICE;
        room.on_answered(&served, now);
        let pool = slots.release(slot);
        room.on_release(&slots, pool, now, &mut wakes);
        slot = room.take_outcome(id).unwrap().unwrap();
    }
    (room, slots, now)
}

fn queued(outcome: AdmitOutcome<SlotPool>) -> WaiterId {
    match outcome {
        AdmitOutcome::Queued(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_expected_of_a_pool_that_is_out_of_service() {
    // Two pools of one slot each, of which each serves five requests per second.
    let pools = TestPools::new(&[1, 1], &[vec![0, 1]]);
    let (mut now, mut wakes) = (Instant::now(), WakeList::<()>::new());
    let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slots = [pools.try_lease(&0).unwrap(), pools.try_lease(&0).unwrap()];
    for nth in 0..60 {
        let id = match room.arrive(&pools, ticket(now), 0, now, &mut wakes) {
            AdmitOutcome::Queued(id) => id,
            other => panic!("{other:?}"),
        };
        now += SERVICE / 2;
        let slot = std::mem::replace(&mut slots[nth % 2], TestSlot(0));
        let pool = pools.release(slot);
        room.on_release(&pools, pool, now, &mut wakes);
        slots[nth % 2] = room.take_outcome(id).unwrap().unwrap();
    }
    let both = room.estimated_wait(10).unwrap();
    pools.set_slots(1, 0);
    pools.set_serves(0, vec![0]);
    room.on_capacity_changed(&pools, now, &mut wakes);
    let one = room.estimated_wait(10).unwrap();
    assert_eq!(one.as_millis(), 2 * both.as_millis());
    // It is as fast as before when it is back.
    pools.set_slots(1, 1);
    pools.set_serves(0, vec![0, 1]);
    room.on_capacity_changed(&pools, now, &mut wakes);
    assert_eq!(room.estimated_wait(10), Some(both));
}

#[test]
fn a_place_that_was_kept_is_let_in_by_the_wait_that_it_leads_to() {
    let (mut room, slots, now) = known();
    let ago = |seconds| now - Duration::from_secs(seconds);
    // Requests that come back to the room by themselves are let in always: one for each of the last 20 s.
    for seconds in 1..=20 {
        let ticket = Ticket::new(Priority::HIGHEST, ago(seconds)).requeued();
        queued(room.arrive(&slots, ticket, (), now, &mut WakeList::new()));
    }
    let mut arrives = |seconds: u64| {
        // Two seconds are left: ten requests are served in them.
        let ticket = Ticket::new(Priority::HIGHEST, ago(seconds))
            .timeout(Duration::from_secs(seconds + 2))
            .requeued()
            .client_retry(ClientRetry::Kept);
        let outcome = room.arrive(&slots, ticket, (), now, &mut WakeList::new());
        if let AdmitOutcome::Queued(id) = outcome {
            room.cancel(id, now);
        }
        matches!(outcome, AdmitOutcome::Queued(_))
    };
    // Before all, and with few before it; and behind most.
    assert!(arrives(25) && arrives(15) && !arrives(1));
}

#[test]
fn the_time_of_service_counts_against_the_patience() {
    let (mut room, slots, now) = known();
    let mut arrive = |millis| {
        let ticket = Ticket::new(Priority::HIGHEST, now).timeout(Duration::from_millis(millis));
        let outcome = room.arrive(&slots, ticket, (), now, &mut WakeList::new());
        if let AdmitOutcome::Queued(id) = outcome {
            room.cancel(id, now);
        }
        matches!(outcome, AdmitOutcome::Queued(_))
    };
    // The first of those that would be late finds out whether that is still so.
    assert!(arrive(300));
    assert!(!arrive(300) && arrive(500));
}

#[test]
fn callers_that_name_a_deadline_teach_nothing_about_others() {
    let (mut room, slots, now) = known();
    let mut wakes = WakeList::new();
    for _ in 0..60 {
        let told = Ticket::new(Priority::HIGHEST, now).timeout(PATIENCE);
        let id = queued(room.arrive(&slots, told, (), now, &mut wakes));
        room.cancel(id, now + Duration::from_millis(1));
    }
    let silent = || Ticket::new(Priority::HIGHEST, now);
    queued(room.arrive(&slots, silent(), (), now, &mut wakes));
    queued(room.arrive(&slots, silent(), (), now, &mut wakes));
}

#[test]
fn a_requeued_request_was_let_in_before() {
    let (mut room, slots, now) = known();
    let mut arrive = |ticket: Ticket| {
        let ticket = ticket.timeout(Duration::from_millis(500));
        room.arrive(&slots, ticket, (), now, &mut WakeList::new())
    };
    let ticket = || Ticket::new(Priority::HIGHEST, now);
    queued(arrive(ticket()));
    let refused = arrive(ticket());
    assert!(matches!(refused, AdmitOutcome::Rejected(_)), "{refused:?}");
    queued(arrive(ticket().requeued()));
}

#[test]
fn the_waiters_of_other_lanes_count_where_they_compete_for_slots() {
    // One pool serves the first lane, and both serve the second.
    let (mut now, pools) = (
        Instant::now(),
        TestPools::new(&[1, 1], &[vec![0], vec![0, 1]]),
    );
    let mut room: WaitingRoom<TestPools, ()> = WaitingRoom::new(WaitingRoomConfig::default(), now);
    let mut wakes = WakeList::new();
    let _held = (pools.try_lease(&1).unwrap(), pools.try_lease(&1).unwrap());
    let mut arrive = |room: &mut WaitingRoom<TestPools, ()>, lane, now, timeout| {
        let ticket = Ticket::new(Priority::HIGHEST, now).timeout(timeout);
        match room.arrive(&pools, ticket, lane, now, &mut wakes) {
            AdmitOutcome::Queued(id) => Some(id),
            AdmitOutcome::Rejected(RejectReason::Overloaded { .. }) => None,
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..30 {
        let id = arrive(&mut room, 0, now, 10 * PATIENCE).unwrap();
        now += SERVICE;
        let pool = pools.release(TestSlot(0));
        room.on_release(&pools, pool, now, &mut WakeList::new());
        assert!(room.take_outcome(id).unwrap().is_ok());
    }
    for _ in 0..12 {
        assert!(arrive(&mut room, 1, now, 60 * PATIENCE).is_some());
    }
    // Six are before it, at five per second. The first that would be late finds out whether that is still so.
    let probe = arrive(&mut room, 0, now, PATIENCE).unwrap();
    room.cancel(probe, now);
    assert!(arrive(&mut room, 0, now, PATIENCE).is_none());
}

#[test]
fn no_wait_is_longer_than_twice_a_configured_target_from_the_first_request_on() {
    let target = Duration::from_millis(200);
    for load in [1.2, 2.0, 3.0] {
        let all = Study {
            config: WaitingRoomConfig::default().target_wait(target),
            load,
            is_told: false,
            ..Study::default()
        };
        let all = all.run();
        let waited = |r: &Request| r.found > 0;
        let longest = all
            .iter()
            .filter(|r| waited(r))
            .filter_map(|r| r.wait)
            .max();
        assert!(longest <= Some(2 * target), "at {load}: {longest:?}");
    }
}

#[test]
fn a_short_request_among_long_ones_is_served_though_it_names_a_deadline() {
    let (begin, slots) = (Instant::now(), SlotPool::new(1));
    let mut room: WaitingRoom<SlotPool, ()> = WaitingRoom::new(WaitingRoomConfig::default(), begin);
    let (mut now, mut wakes) = (begin, WakeList::new());
    let ticket = |now| Ticket::new(Priority::HIGHEST, now);
    let mut slot = slots.try_lease(&()).unwrap();
    for nth in 0..30 {
        let id = queued(room.arrive(&slots, ticket(now), (), now, &mut wakes));
        let sample = room.served(&slots, &(), now);
        // One in ten is short.
        now += Duration::from_millis(if nth % 10 == 0 { 100 } else { 2_000 });
        room.on_answered(&sample, now);
        let pool = slots.release(slot);
        room.on_release(&slots, pool, now, &mut wakes);
        slot = room.take_outcome(id).unwrap().unwrap();
    }
    let urgent = ticket(now).timeout(Duration::from_millis(1_500));
    let id = queued(room.arrive(&slots, urgent, (), now, &mut wakes));
    let pool = slots.release(slot);
    room.on_release(&slots, pool, now + Duration::from_millis(1_300), &mut wakes);
    assert!(room.take_outcome(id).unwrap().is_ok());
}

/// The share of patient requests that are served from a second on, until another.
fn patient_served(all: &[Request], from: u64, to: u64) -> f64 {
    let is_counted = |r: &Request| !r.is_hang_up && (from..to).contains(&r.arrived.as_secs());
    share(all, is_counted, |r| r.wait.is_some())
}

#[test]
fn hang_ups_of_others_do_not_lock_out_patient_callers() {
    for (hang_ups, least) in [(0.1, 0.97), (0.25, 0.9), (0.5, 0.85)] {
        for discipline in DISCIPLINES {
            let all = Study {
                config: WaitingRoomConfig::default().discipline(discipline),
                load: 0.75,
                is_told: false,
                hang_ups,
                ..Study::default()
            };
            let all = all.run();
            let half = SECONDS / 2;
            let during = patient_served(&all, 0, half);
            assert!(during >= least, "{discipline:?}, {hang_ups}: {during}");
            let after = patient_served(&all, half + 10, SECONDS);
            assert!(after >= 0.999, "{discipline:?}, {hang_ups}: {after}");
        }
    }
}
