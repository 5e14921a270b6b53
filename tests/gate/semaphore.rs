//! A gate on Tokio: time, closing, names of permits, and what goes wrong around it.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, advance, sleep, timeout};
use tower_triage::admit::{Capacity, LeaseError, PoolId, PoolSet, ReservedSlots, SlotUsage};
use tower_triage::gate::{Acquire, DetachedPermit, Gate, Permit};
use tower_triage::{Priority, RejectReason, SlotPool, Ticket, WaitingRoomConfig};

type Answer = Result<Permit<SlotPool>, RejectReason>;

#[tokio::test(start_paused = true)]
async fn a_wait_ends_after_max_wait_and_no_sooner() {
    let gate = gate(1, 1, Some(ms(300)));
    let _held = gate.try_acquire(&()).unwrap();
    let start = Instant::now();
    let why = gate.acquire(ticket(), ()).await.unwrap_err();
    assert_eq!(why, RejectReason::TimedOut);
    assert_eq!(start.elapsed(), ms(300));
    assert_eq!(gate.status().depth, 0);
    assert!(poll(&mut gate.acquire(ticket(), ())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_request_s_own_deadline() {
    let gate = gate(1, 1, Some(ms(300)));
    let _held = gate.try_acquire(&()).unwrap();
    let start = Instant::now();
    let hasty = ticket().timeout(ms(200));
    let why = gate.acquire(hasty, ()).await.unwrap_err();
    assert_eq!(why, RejectReason::DeadlinePassed);
    assert_eq!(start.elapsed(), ms(200));
    assert_eq!(gate.status().stats.deadline_passed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_target_ends_waits_that_began_before() {
    for (max_wait, target, ends) in [(None, 10, 20), (None, 1, 5), (Some(ms(25_000)), 12, 24)] {
        let gate = gate(1, 3, max_wait);
        let _held = gate.try_acquire(&()).unwrap();
        let start = Instant::now();
        let mut first = gate.acquire(ticket(), ());
        assert!(poll(&mut first).is_pending());
        let behind = spawn_acquire(&gate, ticket());
        sleep(ms(5_000)).await;
        gate.reconfigure(config(3, max_wait).target_wait(ms(1_000 * target)));
        let why = behind.await.unwrap().unwrap_err();
        let retry_after = ms(1_000 * target);
        assert_eq!(why, RejectReason::Overloaded { retry_after });
        assert_eq!(start.elapsed(), ms(1_000 * ends), "{target}");
        sleep(ms(100)).await;
        assert!(poll(&mut first).is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeued_request_lets_the_timer_sleep() {
    let target = ms(1_000);
    let gate = Gate::new(SlotPool::new(1), config(3, None).target_wait(target));
    let (_held, first) = (gate.try_acquire(&()).unwrap(), ticket());
    sleep(ms(10_000)).await;
    let start = Instant::now();
    let _next = spawn_acquire(&gate, first.clone().requeued());
    let behind = spawn_acquire(&gate, first.requeued());
    let why = behind.await.unwrap().unwrap_err();
    let retry_after = target;
    assert_eq!(why, RejectReason::Overloaded { retry_after });
    assert_eq!(start.elapsed(), 2 * target);
}

#[test]
fn seeded_random_numbers_give_no_two_gates_the_same_names() {
    let [one, other] = [(), ()].map(|()| {
        fastrand::seed(7);
        gate(1, 1, None)
    });
    let [held, of_other] = [&one, &other].map(|gate| gate.try_acquire(&()).unwrap().detach());
    assert_ne!(held.to_string(), of_other.to_string());
    assert!(!other.release(&held));
    assert!(one.release(&held) && other.release(&of_other));
}

#[test]
fn a_waker_that_panics_costs_no_other_task_its_wake_up() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    #[derive(Default)]
    struct WakeList(AtomicI64);
    impl Wake for WakeList {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let gate = gate(1, 9, None);
    let _held = gate.try_acquire(&()).unwrap();
    let woken = Arc::new(WakeList::default());
    let panics = Waker::from(Arc::new(Panics));
    let wakers = [woken.clone().into(), panics, woken.clone().into()];
    let mut waiting = [(); 3].map(|()| gate.acquire(ticket(), ()));
    for (waiting, waker) in waiting.iter_mut().zip(&wakers) {
        let polled = std::pin::Pin::new(waiting).poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
    }
    let closed = catch_unwind(AssertUnwindSafe(|| gate.close()));
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    assert!(closed.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_position_counts_promotions_that_are_due() {
    let mut config = config(9, None);
    config.promote_after = Some(ms(100));
    let gate = Gate::new(SlotPool::new(1), config);
    let held = gate.try_acquire(&()).unwrap();
    let now = || Instant::now().into_std();
    let mut low = gate.acquire(Ticket::new(Priority(1), now()), ());
    assert!(poll(&mut low).is_pending());
    advance(ms(90)).await;
    let mut high = gate.acquire(Ticket::new(Priority::HIGHEST, now()), ());
    assert!(poll(&mut high).is_pending());
    assert_eq!((high.position(), low.position()), (Some(1), Some(2)));
    advance(ms(10)).await;
    assert_eq!((high.position(), low.position()), (Some(2), Some(1)));
    drop(held);
    assert!(poll(&mut low).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_kept_slot_goes_to_a_waiter_that_is_promoted_without_any_event() {
    let config = config(9, None)
        .reserve("high", ReservedSlots::Slots(1))
        .promote_after(ms(2_000));
    let gate = Gate::new(SlotPool::new(2), config);
    let normal = || {
        let now = Instant::now().into_std();
        gate.acquire(Ticket::new(Priority(1), now), ())
    };
    let _first = normal().await.unwrap();
    let start = Instant::now();
    let second = timeout(ms(3_000), normal()).await;
    assert!(second.is_ok_and(|answer| answer.is_ok()));
    assert!(start.elapsed() >= ms(2_000));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_is_answered_at_once() {
    let gate = gate(1, 1, None);
    let late = ticket().timeout(Duration::ZERO);
    let held = gate.acquire(late.clone(), ()).await.unwrap();
    let why = gate.acquire(late, ()).await.unwrap_err();
    assert_eq!(why, RejectReason::DeadlinePassed);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_raced_the_deadline_wins() {
    let gate = gate(1, 1, Some(ms(300)));
    let held = gate.try_acquire(&()).unwrap();
    let mut waiter = gate.acquire(ticket(), ());
    assert!(poll(&mut waiter).is_pending());
    yield_now().await;
    drop(held);
    advance(ms(1000)).await;
    yield_now().await;
    assert!(waiter.await.is_ok());
    assert_eq!(gate.status().stats.timed_out, 0);
}

#[tokio::test(start_paused = true)]
async fn one_timer_serves_many_waiters() {
    let gate = gate(1, 100, Some(ms(300)));
    let _held = gate.try_acquire(&()).unwrap();
    let mut waiters: Vec<_> = (0..100).map(|_| gate.acquire(ticket(), ())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    yield_now().await;
    assert_eq!(tasks(), 1);
    advance(ms(300)).await;
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap_err(), RejectReason::TimedOut);
    }
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_later_arrival_with_an_earlier_deadline_times_out_first() {
    let gate = gate(1, 2, Some(ms(300)));
    let _held = gate.try_acquire(&()).unwrap();
    let start = Instant::now();
    let waiter = spawn_acquire(&gate, ticket());
    advance(ms(50)).await;
    let hasty = spawn_acquire(&gate, ticket().timeout(ms(100)));
    assert_eq!(
        hasty.await.unwrap().unwrap_err(),
        RejectReason::DeadlinePassed
    );
    assert_eq!(start.elapsed(), ms(150));
    assert_eq!(waiter.await.unwrap().unwrap_err(), RejectReason::TimedOut);
    assert_eq!(start.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_max_wait_holds_for_waiters() {
    let gate = gate(1, 2, None);
    let _held = gate.try_acquire(&()).unwrap();
    let start = Instant::now();
    let waiter = spawn_acquire(&gate, ticket());
    yield_now().await;
    gate.reconfigure(config(2, Some(ms(40))));
    assert_eq!(waiter.await.unwrap().unwrap_err(), RejectReason::TimedOut);
    assert_eq!(start.elapsed(), ms(40));
}

#[tokio::test(start_paused = true)]
async fn the_timer_s_task_ends_when_no_request_waits() {
    let gate = gate(1, 2, Some(ms(300)));
    let held = gate.try_acquire(&()).unwrap();
    let waiter = spawn_acquire(&gate, ticket());
    yield_now().await;
    drop(held);
    drop(waiter.await.unwrap().unwrap());
    sleep(ms(301)).await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_timer_s_task_ends_with_the_gate() {
    let gate = gate(1, 2, Some(ms(300)));
    let held = gate.try_acquire(&()).unwrap();
    let mut waiter = gate.acquire(ticket(), ());
    assert!(poll(&mut waiter).is_pending());
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop((waiter, held, gate));
    yield_now().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test]
async fn a_waiter_that_leaves_frees_its_place_at_once() {
    let gate = gate(1, 1, None);
    let _held = gate.try_acquire(&()).unwrap();
    for _ in 0..3 {
        let mut waiter = gate.acquire(ticket(), ());
        assert!(poll(&mut waiter).is_pending());
        assert_eq!(
            gate.acquire(ticket(), ()).await.unwrap_err(),
            RejectReason::Full
        );
        drop(waiter);
        assert_eq!(gate.status().depth, 0);
    }
    assert_eq!(gate.status().stats.cancelled, 3);
}

#[tokio::test]
async fn a_reservation_is_kept_for_its_request() {
    let gate = gate(1, 1, None);
    let _held = gate.try_acquire(&()).unwrap();
    let reservation = gate.reserve().await.unwrap();
    let noop = &mut Context::from_waker(Waker::noop());
    assert!(pin!(gate.reserve()).poll(noop).is_pending());
    let walk_in = gate.acquire(ticket(), ());
    assert_eq!(walk_in.await.unwrap_err(), RejectReason::Full);
    assert!(poll(&mut gate.acquire(ticket(), ()).with_reservation(reservation)).is_pending());
}

#[tokio::test]
async fn requests_that_come_back_find_a_place_and_are_bounded_by_the_slots() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (slots, places) = (rng.usize(1..4), rng.usize(1..4));
        let gate = gate(slots, places, None);
        let (mut waiting, mut running) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            match rng.u8(..5) {
                0..2 => waiting.push((gate.acquire(ticket(), ()), false)),
                2 if !running.is_empty() => drop(running.swap_remove(rng.usize(..running.len()))),
                3 if !running.is_empty() => {
                    drop(running.swap_remove(rng.usize(..running.len())));
                    waiting.push((gate.acquire(ticket().requeued(), ()), true));
                }
                _ if !waiting.is_empty() => drop(waiting.swap_remove(rng.usize(..waiting.len()))),
                _ => {}
            }
            waiting.retain_mut(|(acquire, came_back)| match poll(acquire) {
                Poll::Ready(Ok(permit)) => {
                    running.push(permit);
                    false
                }
                Poll::Ready(Err(why)) => {
                    assert_eq!((why, *came_back), (RejectReason::Full, false));
                    false
                }
                Poll::Pending => true,
            });
            let status = gate.status();
            assert!(
                status.depth + status.running <= slots + places,
                "{status:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_reservation_is_kept_from_requests_that_come_back() {
    let gate = gate(1, 1, None);
    let _held = gate.try_acquire(&()).unwrap();
    let reservation = gate.reserve().await.unwrap();
    let mut again = gate.acquire(ticket().requeued(), ());
    assert!(poll(&mut again).is_pending());
    assert!(poll(&mut gate.acquire(ticket(), ()).with_reservation(reservation)).is_pending());
}

#[tokio::test]
async fn a_reservation_of_another_gate_is_given_back_there() {
    let [mine, other] = [gate(1, 1, None), gate(1, 1, None)];
    let _held = [&mine, &other].map(|gate| gate.try_acquire(&()).unwrap());
    let reservation = other.reserve().await.unwrap();
    let mut waiter = mine.acquire(ticket(), ()).with_reservation(reservation);
    assert!(poll(&mut waiter).is_pending());
    let mut second = mine.acquire(ticket(), ());
    assert!(matches!(
        poll(&mut second),
        Poll::Ready(Err(RejectReason::Full))
    ));
    assert!(poll(&mut other.acquire(ticket(), ())).is_pending());
}

#[tokio::test]
async fn close_rejects_waiters_and_later_arrivals() {
    let gate = gate(1, 50, None);
    let held = gate.try_acquire(&()).unwrap();
    let mut waiters: Vec<_> = (0..50).map(|_| gate.acquire(ticket(), ())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    gate.close();
    for mut waiter in waiters {
        let answer = poll(&mut waiter);
        assert!(matches!(
            answer,
            Poll::Ready(Err(RejectReason::ShuttingDown))
        ));
    }
    drop(held);
    assert!(gate.try_acquire(&()).is_none());
    let late = gate.acquire(ticket(), ());
    assert_eq!(late.await.unwrap_err(), RejectReason::ShuttingDown);
    assert!(gate.reserve().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn closed_resolves_when_the_last_permit_is_back_detached_ones_included() {
    let gate = gate(2, 1, None);
    let held = gate.try_acquire(&()).unwrap();
    let detached = gate.try_acquire(&()).unwrap().detach();
    let closed = tokio::spawn({
        let gate = gate.clone();
        async move { gate.closed().await }
    });
    gate.close();
    sleep(ms(1)).await;
    assert!(!closed.is_finished());
    drop(held);
    sleep(ms(1)).await;
    assert!(!closed.is_finished());
    assert!(gate.release(&detached));
    closed.await.unwrap();
    gate.closed().await;
}

#[tokio::test]
async fn a_lowered_limit_holds_once_enough_permits_are_back() {
    let gate = gate(20, 64, None);
    let mut running: Vec<_> = (0..20).map(|_| gate.try_acquire(&()).unwrap()).collect();
    let mut waiters: Vec<_> = (0..44).map(|_| gate.acquire(ticket(), ())).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    gate.set_limit(5);
    for back in 1..=15 {
        running.pop();
        assert_eq!(gate.status().running, 20 - back);
    }
    for mut waiter in waiters {
        assert!(poll(&mut waiter).is_pending());
        running.pop();
        let answer = poll(&mut waiter);
        assert!(matches!(&answer, Poll::Ready(Ok(_))));
        assert_eq!(gate.status().running, 5);
        running.extend(ready(answer));
    }
}

#[tokio::test]
async fn the_next_waiter_is_served_whatever_task_released() {
    let gate = gate(1, 64, None);
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let gate = gate.clone();
        tasks.spawn(async move {
            let permit = gate.acquire(ticket(), ()).await.unwrap();
            yield_now().await;
            drop(permit);
        });
    }
    tasks.join_all().await;
    assert_eq!((gate.status().running, gate.status().served), (0, 64));
}

#[test]
fn a_gate_outlives_its_timer_s_runtime() {
    let gate = gate(1, 2, Some(ms(20)));
    let _held = gate.try_acquire(&()).unwrap();
    for _ in 0..2 {
        let answer = runtime().block_on(gate.acquire(ticket(), ()));
        assert_eq!(answer.unwrap_err(), RejectReason::TimedOut);
        let abandoned = runtime();
        let mut waiter = gate.acquire(ticket(), ());
        abandoned.block_on(async {
            assert!(poll(&mut waiter).is_pending());
            yield_now().await;
        });
        drop(abandoned);
    }
}

#[test]
fn a_waiter_times_out_though_the_timer_s_runtime_is_gone() {
    let gate = gate(1, 2, Some(ms(50)));
    let _held = gate.try_acquire(&()).unwrap();
    let keeper = runtime();
    let mut abandoned = gate.acquire(ticket(), ());
    keeper.block_on(async {
        assert!(poll(&mut abandoned).is_pending());
        yield_now().await;
    });
    let answer = runtime().block_on(async {
        let waiter = spawn_acquire(&gate, ticket());
        yield_now().await;
        assert_eq!(gate.status().depth, 2);
        keeper.shutdown_background();
        timeout(Duration::from_secs(10), waiter).await
    });
    let answer = answer.expect("no timer runs").unwrap();
    assert_eq!(answer.unwrap_err(), RejectReason::TimedOut);
}

#[test]
fn a_runtime_without_a_time_driver_is_asked_once() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let gate = gate(1, 1, Some(ms(300)));
    let held = gate.try_acquire(&()).unwrap();
    runtime.block_on(async {
        let mut polls = 0;
        let mut waiting = gate.acquire(ticket(), ());
        let waiting = tokio::spawn(std::future::poll_fn(move |cx| {
            polls += 1;
            let answer = std::pin::Pin::new(&mut waiting).poll(cx);
            answer.map(|answer| (answer.is_ok(), polls))
        }));
        for _ in 0..100 {
            yield_now().await;
        }
        drop(held);
        assert_eq!(waiting.await.unwrap(), (true, 2));
    });
}

#[test]
fn a_gate_serves_outside_a_runtime() {
    let gate = gate(1, 2, Some(ms(1)));
    let held = gate.try_acquire(&()).unwrap();
    let mut waiter = gate.acquire(ticket(), ());
    assert!(poll(&mut waiter).is_pending());
    drop(held);
    assert!(matches!(poll(&mut waiter), Poll::Ready(Ok(_))));
    gate.close();
    assert_eq!(gate.status().running, 0);
}

#[tokio::test]
async fn an_unassigned_permit_holds_a_slot() {
    let gate = gate(1, 1, None);
    let reserved = gate.try_reserve(&()).unwrap();
    assert!(gate.try_acquire(&()).is_none());
    let permit = reserved.assign(7);
    assert_eq!((permit.request(), gate.status().running), (7, 1));
    drop(permit);
    drop(gate.try_reserve(&()).unwrap());
    assert_eq!(gate.status().running, 0);
}

#[tokio::test]
async fn a_detached_permit_is_released_by_name_once_and_only_by_its_gate() {
    let (gate, other) = (gate(1, 1, None), gate(1, 1, None));
    let permit = gate.acquire(ticket().id(42), ()).await.unwrap();
    let name = permit.detach();
    assert_eq!((name.request(), gate.status().running), (42, 1));
    assert_eq!(gate.find_detached(42), Some(name));
    assert_eq!(gate.find_detached(41), None);
    let written = name.to_string();
    let read: DetachedPermit = written.parse().unwrap();
    assert_eq!(read, name);
    assert!(!other.release(&read));
    let mut waiter = gate.acquire(ticket(), ());
    assert!(poll(&mut waiter).is_pending());
    assert!(gate.release(&read));
    assert!(!gate.release(&read));
    assert!(waiter.await.is_ok());
    assert!(gate.detached().is_empty());
}

#[tokio::test]
async fn a_detached_permit_can_be_a_permit_again() {
    let gate = gate(2, 1, None);
    let names = [1, 2].map(|id| gate.try_reserve(&()).unwrap().assign(id).detach());
    let listed: Vec<_> = gate.detached().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, names);
    let permit = gate.reattach(&names[0]).unwrap();
    assert_eq!((permit.request(), gate.status().running), (1, 2));
    assert!(gate.reattach(&names[0]).is_none());
    drop(permit);
    assert_eq!(gate.status().running, 1);
}

#[test]
fn what_is_not_the_name_of_a_detached_permit_is_refused() {
    for name in [
        "",
        "1",
        "1-2",
        "1-2-3-4",
        "1-2-x",
        "1--3",
        "1-2-10000000000000000",
    ] {
        assert!(name.parse::<DetachedPermit>().is_err(), "{name:?}");
    }
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_detached_permit_is_a_string_to_serde() {
    let gate = gate(1, 1, None);
    let name = gate.try_acquire(&()).unwrap().detach();
    let json = serde_json::to_string(&name).unwrap();
    assert_eq!(json, format!("\"{name}\""));
    assert_eq!(serde_json::from_str::<DetachedPermit>(&json).unwrap(), name);
    let value = serde_json::to_value(name).unwrap();
    assert_eq!(
        serde_json::from_value::<DetachedPermit>(value).unwrap(),
        name
    );
    assert!(serde_json::from_str::<DetachedPermit>("\"nonsense\"").is_err());
}

#[tokio::test]
async fn a_capacity_that_panics_does_not_wedge_the_gate() {
    let gate = Gate::new(Flaky::default(), config(4, None));
    let held = gate.try_acquire(&()).unwrap();
    let fails = |act: &mut dyn FnMut()| gate.capacity().fails(act);
    let mut newcomer = gate.acquire(ticket(), ());
    fails(&mut || assert!(poll(&mut newcomer).is_pending()));
    drop(newcomer);
    let mut waiter = gate.acquire(ticket(), ());
    assert!(poll(&mut waiter).is_pending());
    assert_eq!(gate.status().depth, 1);
    let mut held = Some(held);
    fails(&mut || drop(held.take()));
    assert!(poll(&mut waiter).is_pending());
    let mut next = gate.acquire(ticket(), ());
    assert!(poll(&mut next).is_pending());
    let Poll::Ready(Ok(permit)) = poll(&mut waiter) else {
        panic!("the slot was lost");
    };
    drop(permit);
    assert!(next.await.is_ok());
    assert_eq!((gate.status().depth, gate.status().running), (0, 0));
}

#[tokio::test]
async fn a_capacity_s_panic_in_release_harms_no_request() {
    let gate = Gate::new(Flaky::default(), config(4, None));
    let held = gate.try_acquire(&()).unwrap();
    let waiter = tokio::spawn(gate.acquire(ticket(), ()));
    yield_now().await;
    gate.capacity().forgets.store(true, Ordering::SeqCst);
    drop(held);
    assert!(waiter.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_capacity_s_panic_over_one_lane_keeps_no_slot_from_another() {
    let gate = Gate::new(Forgetful(SlotPool::new(1)), config(4, None));
    let held = gate.try_acquire(&KNOWN).unwrap();
    let mut waiter = gate.acquire(ticket(), KNOWN);
    assert!(poll(&mut waiter).is_pending());
    drop(held);
    let held = waiter.await.unwrap();
    let mut newcomer = gate.acquire(ticket(), FORGOTTEN);
    assert!(matches!(
        poll(&mut newcomer),
        Poll::Ready(Err(RejectReason::NotQueued))
    ));
    let mut waiter = gate.acquire(ticket(), KNOWN);
    assert!(poll(&mut waiter).is_pending());
    drop(held);
    assert!(matches!(poll(&mut waiter), Poll::Ready(Ok(_))));
}

const KNOWN: &str = "known";
const FORGOTTEN: &str = "forgotten";

/// Slots for all lanes, with a bug in one of them.
struct Forgetful(SlotPool);

impl Capacity for Forgetful {
    type Demand = &'static str;
    type Lease = <SlotPool as Capacity>::Lease;
    type Lane = &'static str;
    type Unservable = Infallible;

    fn try_lease(&self, _: &&str) -> Result<Self::Lease, LeaseError<Infallible>> {
        self.0.try_lease(&())
    }

    fn release(&self, lease: Self::Lease) -> PoolId {
        self.0.release(lease)
    }

    fn pool(&self, lease: &Self::Lease) -> PoolId {
        self.0.pool(lease)
    }

    fn lane(&self, lane: &&'static str) -> &'static str {
        lane
    }

    fn pools(&self, &lane: &&'static str) -> PoolSet {
        assert_eq!(lane, KNOWN, "a bug");
        self.0.pools(&())
    }

    fn usage(&self) -> SlotUsage {
        self.0.usage()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}

/// One slot of a capacity with a bug.
struct Flaky {
    slots: SlotPool,
    /// `true` while it panics when it is asked for a slot.
    fails: AtomicBool,
    /// Whether it panics once it has taken a slot back.
    forgets: AtomicBool,
}

impl Flaky {
    /// Does `act` while the capacity panics.
    fn fails(&self, act: &mut dyn FnMut()) {
        self.fails.store(true, Ordering::SeqCst);
        act();
        self.fails.store(false, Ordering::SeqCst);
    }
}

impl Default for Flaky {
    fn default() -> Self {
        Self {
            slots: SlotPool::new(1),
            fails: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
        }
    }
}

impl Capacity for Flaky {
    type Demand = ();
    type Lease = <SlotPool as Capacity>::Lease;
    type Lane = ();
    type Unservable = Infallible;

    fn try_lease(&self, demand: &()) -> Result<Self::Lease, LeaseError<Infallible>> {
        assert!(!self.fails.load(Ordering::SeqCst), "a bug");
        self.slots.try_lease(demand)
    }

    fn release(&self, lease: Self::Lease) -> PoolId {
        let pool = self.slots.release(lease);
        assert!(!self.forgets.load(Ordering::SeqCst), "a bug");
        pool
    }

    fn pool(&self, lease: &Self::Lease) -> PoolId {
        self.slots.pool(lease)
    }

    fn lane(&self, (): &()) {}

    fn pools(&self, lane: &()) -> PoolSet {
        self.slots.pools(lane)
    }

    fn usage(&self) -> SlotUsage {
        self.slots.usage()
    }

    fn leased(&self) -> u64 {
        self.slots.leased()
    }
}

fn gate(slots: usize, max_size: usize, max_wait: Option<Duration>) -> Gate<SlotPool> {
    Gate::new(SlotPool::new(slots), config(max_size, max_wait))
}

fn config(max_size: usize, max_wait: Option<Duration>) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.max_size = max_size;
    config.max_wait = max_wait;
    config
}

fn ticket() -> Ticket {
    Ticket::new(Priority::HIGHEST, Instant::now().into_std())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn poll<C: Capacity>(acquire: &mut Acquire<C>) -> Poll<<Acquire<C> as Future>::Output> {
    std::pin::Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready(answer: Poll<Answer>) -> Option<Permit<SlotPool>> {
    match answer {
        Poll::Ready(answer) => answer.ok(),
        Poll::Pending => None,
    }
}

fn spawn_acquire(gate: &Gate<SlotPool>, ticket: Ticket) -> JoinHandle<Answer> {
    tokio::spawn(gate.acquire(ticket, ()))
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}
