//! Many callers of one gate, driven by hand through random schedules, each of which a seed repeats.
//!
//! `SEEDS=5000..5100 cargo test --test gate_seeded` runs those; without it, the first two thousand.
#![cfg(not(loom))]

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tower_triage::admit::Tenant;
use tower_triage::gate::{Acquire, DetachedPermit, Gate, Permit, Reservation, Reserve};
use tower_triage::{Discipline, Priority, PriorityLevels, SlotPool, Ticket, WaitingRoomConfig};

#[test]
fn no_schedule_loses_a_wake_up_a_slot_or_a_place() {
    for seed in seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        println!("seed {seed}");
        runtime.block_on(async {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step().await;
                world.check();
            }
            world.end().await;
        });
    }
}

const STEPS: usize = 200;

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("SEEDS") else {
        return 0..2000;
    };
    let (from, to) = range.split_once("..").expect("SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

struct World {
    rng: Rng,
    gate: Gate<SlotPool>,
    config: WaitingRoomConfig,
    limit: usize,
    callers: Vec<Caller>,
    permits: Vec<Permit<SlotPool>>,
    detached: Vec<DetachedPermit>,
    reserving: Vec<(Reserve<SlotPool>, Arc<Flag>)>,
    reservations: Vec<Reservation<SlotPool>>,
    /// The number of requests that may wait above the bound, because they came with a reservation and the room has become
    /// smaller meanwhile.
    above: usize,
    /// How many were running after the step before.
    running: usize,
    arrived: u64,
    served: u64,
}

struct Caller {
    acquire: Acquire<SlotPool>,
    arrival: Instant,
    deadline: Option<Instant>,
    woken: Arc<Flag>,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (limit, config) = (rng.usize(0..5), random_config(&mut rng));
        Self {
            gate: Gate::new(SlotPool::new(limit), config.clone()),
            rng,
            config,
            limit,
            callers: Vec::new(),
            permits: Vec::new(),
            detached: Vec::new(),
            reserving: Vec::new(),
            reservations: Vec::new(),
            above: 0,
            running: 0,
            arrived: 0,
            served: 0,
        }
    }

    async fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..35 => self.arrive(),
            35..45 => self.poll_one(),
            45..53 => drop(pick(&mut self.rng, &mut self.callers)),
            53..70 => drop(pick(&mut self.rng, &mut self.permits)),
            70..75 => {
                self.limit = self.rng.usize(0..6);
                self.gate.set_limit(self.limit);
            }
            75..80 => self.detach_or_release(),
            80..86 => self.reserve(),
            86..88 => drop(pick(&mut self.rng, &mut self.reservations)),
            88..90 => drop(pick(&mut self.rng, &mut self.reserving)),
            90..93 => {
                (self.config, self.above) = (random_config(&mut self.rng), 0);
                self.gate.reconfigure(self.config.clone());
            }
            93..99 => self.pass_time().await,
            _ if self.rng.u8(..) < 30 => self.gate.close(),
            _ => self.try_acquire(),
        }
        if self.rng.u8(..) < 100 {
            self.poll_all();
        }
    }

    fn arrive(&mut self) {
        let arrival = now();
        let names = ["a", "b", "c"];
        let tenant = Tenant::from(names[self.rng.usize(0..3)]);
        let levels = [
            Priority::HIGHEST,
            PriorityLevels::default().default_priority(),
        ];
        let level = levels[self.rng.usize(0..2)];
        let mut ticket = Ticket::new(level, arrival).tenant(tenant);
        if self.rng.bool() {
            ticket = ticket.timeout(Duration::from_millis(self.rng.u64(0..60)));
        }
        let deadline = ticket.deadline;
        let mut acquire = self.gate.acquire(ticket, ());
        if self.rng.bool()
            && let Some(reservation) = pick(&mut self.rng, &mut self.reservations)
        {
            acquire = acquire.with_reservation(reservation);
            self.above += 1;
        }
        self.arrived += 1;
        self.callers.push(Caller {
            acquire,
            arrival,
            deadline,
            woken: Arc::default(),
        });
        self.poll(self.callers.len() - 1);
    }

    fn try_acquire(&mut self) {
        if let Some(permit) = self.gate.try_acquire(&()) {
            self.arrived += 1;
            self.served += 1;
            self.permits.push(permit);
        }
    }

    /// Polls whether woken or not, with another waker.
    fn poll_one(&mut self) {
        if !self.callers.is_empty() {
            let at = self.rng.usize(0..self.callers.len());
            self.callers[at].woken = Arc::default();
            self.poll(at);
        }
    }

    /// Polls all, and so finds those that had an answer but were not woken.
    fn poll_all(&mut self) {
        for at in (0..self.callers.len()).rev() {
            let woken = self.callers[at].woken.0.swap(false, Ordering::Relaxed);
            let answered = self.poll(at);
            assert!(woken || !answered, "an answer without a wake-up");
        }
        let free = self.gate.status();
        for at in (0..self.reserving.len()).rev() {
            let (reserving, flag) = &mut self.reserving[at];
            let woken = flag.0.swap(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(flag));
            if let Poll::Ready(reservation) =
                Pin::new(reserving).poll(&mut Context::from_waker(&waker))
            {
                assert!(woken || free.max_size == 0, "a place without a wake-up");
                self.reservations.extend(reservation);
                drop(self.reserving.swap_remove(at));
            }
        }
        let status = self.gate.status();
        assert_eq!(status.depth, self.callers.len());
        assert_eq!(status.running, self.permits.len() + self.detached.len());
    }

    /// Says whether there was an answer.
    fn poll(&mut self, at: usize) -> bool {
        let caller = &mut self.callers[at];
        let waker = Waker::from(Arc::clone(&caller.woken));
        match Pin::new(&mut caller.acquire).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => return false,
            Poll::Ready(Ok(permit)) => {
                self.served += 1;
                self.permits.push(permit);
            }
            Poll::Ready(Err(_)) => {}
        }
        self.callers.swap_remove(at);
        true
    }

    fn reserve(&mut self) {
        let flag = Arc::<Flag>::default();
        let mut reserving = self.gate.reserve();
        let waker = Waker::from(Arc::clone(&flag));
        match Pin::new(&mut reserving).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(reservation) => self.reservations.extend(reservation),
            Poll::Pending => self.reserving.push((reserving, flag)),
        }
    }

    fn detach_or_release(&mut self) {
        if self.rng.bool() {
            let permit = pick(&mut self.rng, &mut self.permits);
            self.detached.extend(permit.map(Permit::detach));
        } else if let Some(name) = pick(&mut self.rng, &mut self.detached) {
            assert!(self.gate.release(&name));
            assert!(!self.gate.release(&name));
        }
    }

    async fn pass_time(&mut self) {
        tokio::time::advance(Duration::from_millis(self.rng.u64(1..30))).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.poll_all();
        for caller in &self.callers {
            let longest = self.config.max_wait.map(|most| caller.arrival + most);
            let end = longest.into_iter().chain(caller.deadline).min();
            assert!(end.is_none_or(|end| end > now()), "it waits beyond its end");
        }
    }

    fn check(&mut self) {
        let status = self.gate.status();
        let most = self.limit.max(self.running);
        assert!(status.running <= most, "more leases than slots");
        let above = status.depth.saturating_sub(self.config.max_size);
        assert!(above <= self.above, "more waiters than places");
        self.above = above;
        let idle = status.running < self.limit && status.depth > 0;
        assert!(!idle, "a free slot beside a waiter");
        assert!(!status.closed || status.depth == 0);
        self.running = status.running;
    }

    async fn end(mut self) {
        if self.rng.bool() {
            self.gate.close();
            self.poll_all();
            assert!(self.callers.is_empty(), "a closed gate left one waiting");
            self.permits.clear();
            for name in self.detached.drain(..) {
                assert!(self.gate.release(&name));
            }
            self.gate.closed().await;
        }
        self.callers.clear();
        self.permits.clear();
        for name in self.detached.drain(..) {
            assert!(self.gate.release(&name));
        }
        let status = self.gate.status();
        let counts = status.stats;
        assert_eq!((status.depth, status.running), (0, 0));
        assert_eq!(status.served, self.served);
        let accounted = status.served + counts.rejected() + counts.cancelled;
        assert_eq!(accounted, self.arrived);
    }
}

fn random_config(rng: &mut Rng) -> WaitingRoomConfig {
    let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
    let mut config = WaitingRoomConfig::default();
    config.max_size = [0, 1, 4, 20, 60][rng.usize(0..5)];
    config.max_size_per_tenant = rng.bool().then(|| rng.usize(1..6));
    config.max_wait = rng.bool().then(|| Duration::from_millis(rng.u64(1..80)));
    config.discipline = disciplines[rng.usize(0..3)];
    config.promote_after = rng.bool().then(|| Duration::from_millis(20));
    config.displace = rng.bool();
    config
}

fn pick<T>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(rng.usize(0..from.len())))
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
