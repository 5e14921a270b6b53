//! A waiter whose ticket changes while it waits, and waiters that are patient.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_triage::admit::ReservedSlots;
use tower_triage::gate::{Acquire, Gate, Permit};
use tower_triage::{
    Discipline, Priority, PriorityLevels, RejectReason, SlotPool, Ticket, WaitingRoomConfig,
};

type Answer = Result<Permit<SlotPool>, RejectReason>;

#[tokio::test(start_paused = true)]
async fn a_waiter_moves_to_where_its_new_ticket_says() {
    for discipline in [Discipline::Fifo, Discipline::Deadline, Discipline::Fair] {
        let gate = gate(1, config().discipline(discipline));
        let held = gate.try_acquire(&()).unwrap();
        let mut all = [1, 2, 3].map(|id| gate.acquire(ticket(1).id(id), ()));
        assert!(all.iter_mut().all(|acquire| poll(acquire).is_pending()));
        let [first, second, third] = &mut all;
        assert!(third.set_ticket(ticket(0).id(30), ()));
        assert!(first.set_ticket(ticket(2).id(10), ()));
        let positions = [&*first, &*second, &*third].map(Acquire::position);
        assert_eq!(positions, [Some(3), Some(2), Some(1)], "{discipline:?}");
        drop(held);
        let served = [&mut *third, &mut *second, &mut *first].map(|acquire| {
            let permit = granted(acquire).unwrap();
            permit.request()
        });
        assert_eq!(served, [30, 2, 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_arrival_of_the_new_ticket_decides_among_equals() {
    let gate = gate(1, config());
    let held = gate.try_acquire(&()).unwrap();
    let begin = Instant::now();
    let mut early = gate.acquire(ticket(1), ());
    assert!(poll(&mut early).is_pending());
    sleep(ms(10)).await;
    let mut late = gate.acquire(ticket(1), ());
    assert!(poll(&mut late).is_pending());
    let before = begin - ms(1);
    assert!(late.set_ticket(Ticket::new(Priority(1), before.into_std()), ()));
    assert_eq!((late.position(), early.position()), (Some(1), Some(2)));
    // Without an arrival it goes last.
    assert!(late.set_ticket(Ticket::from(Priority(1)), ()));
    assert_eq!((late.position(), early.position()), (Some(2), Some(1)));
    drop(held);
    assert!(granted(&mut early).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_free_for_the_new_ticket_is_granted_at_once() {
    let gate = gate(2, config().reserve("a", ReservedSlots::Slots(1)));
    let _held = granted(&mut gate.acquire(ticket(1), ())).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut waiting = gate.acquire(ticket(1), ());
    assert!(poll_with(&mut waiting, &waker).is_pending());
    assert!(waiting.set_ticket(ticket(1).cost(2), ()));
    assert_eq!(wakes.0.load(SeqCst), 0, "the slot is kept for others");
    assert!(waiting.set_ticket(ticket(0), ()));
    assert_eq!(wakes.0.load(SeqCst), 1);
    assert!(
        !waiting.set_ticket(ticket(1), ()),
        "it has its outcome by now"
    );
    assert!(granted(&mut waiting).is_some());
    assert!(!waiting.set_ticket(ticket(1), ()));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_below_its_limit_is_served_at_once() {
    let gate = gate(3, config().max_concurrent_per_tenant(1));
    let of = |tenant: &'static str| ticket(1).tenant(tenant.into());
    let held = granted(&mut gate.acquire(of("a"), ())).unwrap();
    let mut waiting = gate.acquire(of("a"), ());
    assert!(poll(&mut waiting).is_pending());
    assert!(waiting.set_ticket(of("b"), ()));
    let own = granted(&mut waiting).unwrap();
    // Its slot counts for the tenant that it has now.
    let mut next = gate.acquire(of("b"), ());
    assert!(poll(&mut next).is_pending());
    drop(held);
    assert!(poll(&mut next).is_pending());
    drop(own);
    assert!(granted(&mut next).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_nearer_deadline_ends_the_wait_and_a_later_one_does_not() {
    let gate = gate(1, config());
    let _held = gate.try_acquire(&()).unwrap();
    let begin = Instant::now();
    let mut waiting = gate.acquire(ticket(1), ());
    assert!(poll(&mut waiting).is_pending());
    sleep(ms(100)).await;
    assert!(waiting.set_ticket(ticket(1).timeout(ms(200)), ()));
    sleep(ms(100)).await;
    assert!(waiting.set_ticket(ticket(1).timeout(ms(300)), ()));
    let why = (&mut waiting).await.unwrap_err();
    assert_eq!(why, RejectReason::DeadlinePassed);
    assert_eq!(begin.elapsed(), ms(500));
    assert!(!waiting.set_ticket(ticket(1), ()));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_already_ends_the_wait_at_once() {
    let gate = gate(1, config());
    let _held = gate.try_acquire(&()).unwrap();
    sleep(ms(100)).await;
    let mut waiting = gate.acquire(ticket(1), ());
    assert!(poll(&mut waiting).is_pending());
    let past = Instant::now() - ms(50);
    let ticket = Ticket::new(Priority(1), past.into_std()).timeout(ms(10));
    assert!(waiting.set_ticket(ticket, ()));
    assert_eq!(
        poll(&mut waiting).map(Result::unwrap_err),
        Poll::Ready(RejectReason::DeadlinePassed)
    );
}

#[tokio::test(start_paused = true)]
async fn a_ticket_set_before_the_arrival_is_that_of_the_arrival() {
    let gate = gate(1, config());
    let held = gate.try_acquire(&()).unwrap();
    let mut waiting = gate.acquire(ticket(2).id(1), ());
    assert!(waiting.set_ticket(ticket(0).id(2), ()));
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(gate.status().levels[0].waiting, 1);
    drop(held);
    assert_eq!(granted(&mut waiting).unwrap().request(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_changes_its_only_ticket_keeps_its_turn() {
    let gate = gate(1, config().discipline(Discipline::Fair));
    let of = |tenant: &'static str| ticket(1).tenant(tenant.into());
    let mut held = gate.try_acquire(&()).unwrap();
    let mut many: Vec<_> = (0..20).map(|_| gate.acquire(of("a"), ())).collect();
    assert!(many.iter_mut().all(|acquire| poll(acquire).is_pending()));
    let mut only = gate.acquire(of("b").cost(5), ());
    assert!(poll(&mut only).is_pending());
    let mut before = 0;
    for waiting in &mut many {
        assert!(only.set_ticket(of("b").cost(5), ()));
        drop(held);
        if let Some(permit) = granted(&mut only) {
            assert!(before <= 5, "no more than its cost");
            return drop(permit);
        }
        held = granted(waiting).unwrap();
        before += 1;
    }
    panic!("it was passed {before} times");
}

#[tokio::test(start_paused = true)]
async fn a_patient_request_waits_where_no_other_may() {
    for discipline in [Discipline::Fifo, Discipline::Deadline] {
        let room = config().max_size(0).max_wait(ms(100)).target_wait(ms(1));
        let gate = gate(1, room.discipline(discipline));
        let held = gate.try_acquire(&()).unwrap();
        let mut waiting = [(); 3].map(|()| gate.acquire(ticket(2).patient(), ()));
        assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
        let why = gate.acquire(ticket(0), ()).await.unwrap_err();
        assert_eq!(why, RejectReason::Disabled);
        sleep(Duration::from_secs(3600)).await;
        assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
        drop(held);
        for mut waiting in waiting {
            assert!(granted(&mut waiting).is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_patient_waiter_takes_no_place_and_loses_none() {
    for discipline in [Discipline::Fifo, Discipline::Fair] {
        let gate = gate(
            1,
            config().max_size(1).displace(true).discipline(discipline),
        );
        let _held = gate.try_acquire(&()).unwrap();
        let mut patient = gate.acquire(ticket(2).patient(), ());
        assert!(poll(&mut patient).is_pending());
        let mut low = gate.acquire(ticket(2), ());
        assert!(poll(&mut low).is_pending(), "there is a place for it");
        let mut high = gate.acquire(ticket(0), ());
        assert!(poll(&mut high).is_pending());
        let displaced = poll(&mut low).map(Result::unwrap_err);
        assert_eq!(displaced, Poll::Ready(RejectReason::Displaced));
        gate.reconfigure(config().max_size(0).discipline(discipline));
        assert!(poll(&mut high).is_ready());
        assert!(poll(&mut patient).is_pending());
        gate.close();
        let closed = poll(&mut patient).map(Result::unwrap_err);
        assert_eq!(closed, Poll::Ready(RejectReason::ShuttingDown));
    }
}

#[tokio::test(start_paused = true)]
async fn a_patient_waiter_has_its_own_deadline() {
    let gate = gate(1, config().max_wait(ms(10)));
    let _held = gate.try_acquire(&()).unwrap();
    let begin = Instant::now();
    let waiting = gate.acquire(ticket(1).patient().timeout(ms(500)), ());
    assert_eq!(waiting.await.unwrap_err(), RejectReason::DeadlinePassed);
    assert_eq!(begin.elapsed(), ms(500));
}

#[tokio::test(start_paused = true)]
async fn hours_of_patient_waiters_change_no_prediction_for_others() {
    let online = |with_batch: bool| async move {
        let gate = gate(1, config());
        let mut held = gate.acquire(ticket(0), ()).await.unwrap();
        let mut batch = gate.acquire(ticket(2).patient(), ());
        if with_batch {
            assert!(poll(&mut batch).is_pending());
        }
        // Ten services of a second each, for which online requests wait.
        for _ in 0..10 {
            let mut next = gate.acquire(ticket(0), ());
            assert!(poll(&mut next).is_pending());
            sleep(ms(1_000)).await;
            drop(held);
            held = granted(&mut next).unwrap();
        }
        // Two hours in which the slot hangs, and only patient work waits.
        sleep(Duration::from_secs(7200)).await;
        let mut next = gate.acquire(ticket(0), ());
        assert!(poll(&mut next).is_pending());
        gate.status().levels[0].estimated_wait
    };
    assert_eq!(online(true).await, online(false).await);
}

fn gate(slots: usize, config: WaitingRoomConfig) -> Gate<SlotPool> {
    Gate::new(SlotPool::new(slots), config)
}

fn config() -> WaitingRoomConfig {
    let levels = PriorityLevels::new(["a", "b", "c"], "b").unwrap();
    WaitingRoomConfig::default().levels(levels)
}

fn ticket(level: u8) -> Ticket {
    Ticket::new(Priority(level), Instant::now().into_std())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn poll(acquire: &mut Acquire<SlotPool>) -> Poll<Answer> {
    poll_with(acquire, Waker::noop())
}

fn poll_with(acquire: &mut Acquire<SlotPool>, waker: &Waker) -> Poll<Answer> {
    Pin::new(acquire).poll(&mut Context::from_waker(waker))
}

fn granted(acquire: &mut Acquire<SlotPool>) -> Option<Permit<SlotPool>> {
    match poll(acquire) {
        Poll::Ready(answer) => Some(answer.unwrap()),
        Poll::Pending => None,
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}
