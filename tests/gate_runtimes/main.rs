//! A gate between several Tokio runtimes, some of which are not driven or keep no time.
#![cfg(not(loom))]

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower::{Service, ServiceExt};
use tower_triage::gate::Gate;
use tower_triage::{
    Priority, QueueConfig, QueueLayer, RejectReason, SlotPool, Ticket, WaitingRoomConfig,
};
use tracing::span;

/// Longer than any wait here, in case one never ends.
const GUARD: Duration = Duration::from_secs(60);

#[test]
fn a_wait_ends_though_the_first_waiter_s_runtime_is_not_driven() {
    let gate = gate(ms(30));
    let _held = gate.try_acquire(&()).unwrap();
    let first = runtime();
    let mut waiting_there = gate.acquire(ticket(), ());
    first.block_on(async {
        assert!(poll_once(&mut waiting_there).is_pending());
        tokio::task::yield_now().await;
    });
    let answer = runtime().block_on(async { timeout(GUARD, gate.acquire(ticket(), ())).await });
    assert_eq!(answer.expect("ends").unwrap_err(), RejectReason::TimedOut);
    assert_eq!(gate.status().depth, 0, "the other wait has ended, too");
}

#[test]
fn a_wait_ends_though_the_first_waiter_s_runtime_computes() {
    let gate = gate(ms(30));
    let _held = gate.try_acquire(&()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (started, has_started) = mpsc::channel();
    let computing = thread::spawn({
        let (gate, done) = (gate.clone(), Arc::clone(&done));
        move || {
            runtime().block_on(async {
                let mut waiting = gate.acquire(ticket(), ());
                assert!(poll_once(&mut waiting).is_pending());
                tokio::task::yield_now().await;
                started.send(()).unwrap();
                while !done.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
    });
    has_started.recv().unwrap();
    let answer = runtime().block_on(async { timeout(GUARD, gate.acquire(ticket(), ())).await });
    done.store(true, SeqCst);
    computing.join().unwrap();
    assert_eq!(answer.expect("ends").unwrap_err(), RejectReason::TimedOut);
}

#[test]
fn a_waiter_that_moved_to_another_runtime_times_out_there() {
    let gate = gate(ms(30));
    let _held = gate.try_acquire(&()).unwrap();
    let first = runtime();
    let mut waiting = gate.acquire(ticket(), ());
    first.block_on(async { assert!(poll_once(&mut waiting).is_pending()) });
    let answer = runtime().block_on(async { timeout(GUARD, waiting).await });
    assert_eq!(answer.expect("ends").unwrap_err(), RejectReason::TimedOut);
}

#[test]
fn a_waiter_of_a_runtime_that_never_ran_times_out_elsewhere() {
    let gate = gate(ms(30));
    let _held = gate.try_acquire(&()).unwrap();
    let first = runtime();
    let mut waiting = Lazy::new(gate.acquire(ticket(), ()));
    {
        let _inside = first.enter();
        assert!(poll_once(&mut waiting).is_pending());
    }
    drop(first);
    let answer = runtime().block_on(async { timeout(GUARD, waiting).await });
    assert_eq!(answer.expect("ends").unwrap_err(), RejectReason::TimedOut);
}

#[test]
fn a_max_wait_that_is_set_later_holds_in_each_runtime() {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = None;
    let gate = Gate::new(SlotPool::new(1), config.clone());
    let _held = gate.try_acquire(&()).unwrap();
    let (waits, is_waiting) = mpsc::channel();
    let waiter = thread::spawn({
        let gate = gate.clone();
        move || {
            runtime().block_on(async {
                let mut waiting = pin!(gate.acquire(ticket(), ()));
                assert!(poll_once(&mut waiting).is_pending());
                waits.send(()).unwrap();
                timeout(GUARD, waiting).await
            })
        }
    });
    is_waiting.recv().unwrap();
    config.max_wait = Some(ms(30));
    gate.reconfigure(config);
    let answer = waiter.join().unwrap().expect("ends");
    assert_eq!(answer.unwrap_err(), RejectReason::TimedOut);
}

#[test]
fn without_a_time_driver_requests_are_served_and_one_warning_is_logged() {
    let warnings = Warnings::default();
    let count = Arc::clone(&warnings.0);
    tracing::subscriber::with_default(warnings, || {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let layer = QueueLayer::plain(QueueConfig::new(1).max_size(20));
            let slow = tower::Layer::layer(&layer, SlowToReady::default());
            let calls = (0..20).map(|_| tokio::spawn(slow.clone().oneshot(())));
            for call in calls.collect::<Vec<_>>() {
                assert!(call.await.expect("no panic").is_ok());
            }
            assert_eq!(
                tokio::runtime::Handle::current()
                    .metrics()
                    .num_alive_tasks(),
                1
            );
        });
    });
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn a_task_that_always_finds_a_slot_lets_others_run() {
    runtime().block_on(async {
        let gate = gate(ms(30));
        let other = tokio::spawn(ready(()));
        for _ in 0..1_000 {
            drop(gate.acquire(ticket(), ()).await.unwrap());
        }
        assert!(other.is_finished());
    });
}

/// Polls what it holds only when that was woken, as `FuturesUnordered` does.
struct Lazy<F> {
    future: F,
    flag: Arc<Flag>,
}
struct Flag {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}
impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
        if let Some(waker) = self.outer.lock().unwrap().take() {
            waker.wake();
        }
    }
}
impl<F> Lazy<F> {
    fn new(future: F) -> Self {
        let flag = Flag {
            woken: AtomicBool::new(true),
            outer: Mutex::new(None),
        };
        Self {
            future,
            flag: Arc::new(flag),
        }
    }
}
impl<F: Future + Unpin> Future for Lazy<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.flag.outer.lock().unwrap() = Some(cx.waker().clone());
        if !self.flag.woken.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&self.flag));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }
}

/// Ready at the tenth poll.
#[derive(Clone, Default)]
struct SlowToReady {
    looks: u8,
}

impl Service<()> for SlowToReady {
    type Response = ();
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<(), Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.looks += 1;
        if self.looks >= 10 {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, (): ()) -> Self::Future {
        self.looks = 0;
        ready(Ok(()))
    }
}

/// Counts the warnings of this crate.
#[derive(Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_triage") && *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn gate(max_wait: Duration) -> Gate<SlotPool> {
    let mut config = WaitingRoomConfig::default();
    config.max_wait = Some(max_wait);
    Gate::new(SlotPool::new(1), config)
}

fn ticket() -> Ticket {
    Ticket::new(Priority::HIGHEST, Instant::now())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
