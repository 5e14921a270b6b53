//! `RequestQueue` against channels, which know no priorities, and against a heap behind a lock, which does.
//!
//! The queue is given what the heap is: an item and its priority. Items of the heap carry a number besides, that keeps
//! those of one priority in order. Where tickets say when their requests arrived, or waits are bounded, the queue does
//! what none of the others does, and reading the clock is part of it; what that alone takes is printed, too.

mod support;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::future::Future;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slab::Slab;
use support::{Subject, measure, subject};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};
use tower_triage::batch::{RequestId, RequestQueue};
use tower_triage::{Priority, PriorityLevels, Ticket, WaitingRoomConfig};

const LEVELS: u8 = 3;
/// Operations in a pass. No queue is ever full, so that no producer waits: those on other threads may run ahead of
/// the consumer by as many.
const OPERATIONS: usize = 20_000;
const PASSES: usize = 41;
const BATCH: usize = 64;

trait Producer<T>: Clone + Send + 'static {
    fn put(&self, item: T, level: u8) -> impl Future<Output = ()> + Send;
}

trait Consumer<T>: Send + 'static {
    fn take(&mut self) -> impl Future<Output = T> + Send;

    /// Takes `BATCH` items, which wait.
    fn take_batch(&mut self) -> impl Future<Output = Vec<T>> + Send;
}

impl<T: Send + 'static> Producer<T> for mpsc::Sender<T> {
    async fn put(&self, item: T, _: u8) {
        self.send(item).await.ok().unwrap();
    }
}

impl<T: Send + 'static> Consumer<T> for mpsc::Receiver<T> {
    async fn take(&mut self) -> T {
        self.recv().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<T> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            self.recv_many(&mut batch, BATCH).await;
        }
        batch
    }
}

impl<T: Send + 'static> Producer<T> for mpsc::UnboundedSender<T> {
    async fn put(&self, item: T, _: u8) {
        self.send(item).ok().unwrap();
    }
}

impl<T: Send + 'static> Consumer<T> for mpsc::UnboundedReceiver<T> {
    async fn take(&mut self) -> T {
        self.recv().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<T> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            self.recv_many(&mut batch, BATCH).await;
        }
        batch
    }
}

impl<T: Send + 'static> Producer<T> for async_channel::Sender<T> {
    async fn put(&self, item: T, _: u8) {
        self.send(item).await.unwrap();
    }
}

impl<T: Send + 'static> Consumer<T> for async_channel::Receiver<T> {
    async fn take(&mut self) -> T {
        self.recv().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<T> {
        let mut batch = Vec::with_capacity(BATCH);
        batch.extend((0..BATCH).map_while(|_| self.try_recv().ok()));
        batch
    }
}

/// What many write first: bounded, by priority, and first come first served within one.
struct LockedHeap<T> {
    state: Arc<Mutex<HeapState<T>>>,
    filled: Arc<Notify>,
}

struct HeapState<T> {
    heap: BinaryHeap<Ranked<T>>,
    max_size: usize,
    entered: u64,
}

struct Ranked<T> {
    rank: Reverse<(u8, u64)>,
    item: T,
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> LockedHeap<T> {
    fn new(max_size: usize) -> Self {
        let state = HeapState {
            heap: BinaryHeap::new(),
            max_size,
            entered: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            filled: Arc::default(),
        }
    }
}

impl<T> Clone for LockedHeap<T> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            filled: Arc::clone(&self.filled),
        }
    }
}

impl<T: Send + 'static> Producer<T> for LockedHeap<T> {
    async fn put(&self, item: T, level: u8) {
        let mut state = self.state.lock().unwrap();
        assert!(state.heap.len() < state.max_size);
        state.entered += 1;
        let rank = Reverse((level, state.entered));
        state.heap.push(Ranked { rank, item });
        drop(state);
        self.filled.notify_one();
    }
}

impl<T: Send + 'static> Consumer<T> for LockedHeap<T> {
    async fn take(&mut self) -> T {
        loop {
            let best = self.state.lock().unwrap().heap.pop();
            if let Some(best) = best {
                return best.item;
            }
            self.filled.notified().await;
        }
    }

    async fn take_batch(&mut self) -> Vec<T> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut state = self.state.lock().unwrap();
        batch.extend((0..BATCH).map_while(|_| Some(state.heap.pop()?.item)));
        batch
    }
}

impl<T: Send + 'static> Producer<T> for RequestQueue<T> {
    async fn put(&self, item: T, level: u8) {
        enqueue(self, item, level);
    }
}

/// A queue whose tickets say when their requests arrived.
struct Dated<T>(RequestQueue<T>);

impl<T> Clone for Dated<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + 'static> Producer<T> for Dated<T> {
    async fn put(&self, item: T, level: u8) {
        let ticket = Ticket::new(Priority(level), Instant::now());
        self.0.enqueue(item, ticket).ok().unwrap();
    }
}

impl<T: Send + 'static> Consumer<T> for RequestQueue<T> {
    async fn take(&mut self) -> T {
        self.dequeue().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<T> {
        RequestQueue::take_batch(self, BATCH, u64::MAX)
    }
}

fn queue<T: Send + 'static>(max_size: usize, max_wait: Option<Duration>) -> RequestQueue<T> {
    let mut room = WaitingRoomConfig::default();
    room.max_size = max_size;
    room.max_wait = max_wait;
    room.levels = PriorityLevels::new(["high", "normal", "low"], "normal").unwrap();
    RequestQueue::new(room)
}

fn enqueue<T: Send + 'static>(queue: &RequestQueue<T>, item: T, level: u8) -> RequestId {
    queue.enqueue(item, Priority(level)).ok().unwrap()
}

/// What is sent.
trait Item: Send + 'static {
    const NAME: &'static str;
    fn make(n: u64) -> Self;
}

impl Item for u64 {
    const NAME: &'static str = "8 bytes";
    fn make(n: u64) -> Self {
        n
    }
}

/// As large as a request's head, channel for the answer and handle of the body.
struct Request(#[expect(dead_code, reason = "only its size matters")] [u64; 32]);

impl Item for Request {
    const NAME: &'static str = "256 bytes";
    fn make(n: u64) -> Self {
        Self([n; 32])
    }
}

/// Who sends to whom in a pass.
#[derive(Clone, Copy)]
enum Traffic {
    /// One task puts an item in and takes one out.
    Turns,
    /// One task puts items in, on the thread of another that waits for each.
    Handoff,
    /// So many tasks put items in while another takes them out, on two threads.
    Producers(usize),
    /// All are put in, and then all are taken out.
    FillAndDrain,
    /// A batch is put in one by one, and taken out at once.
    Batches,
}

async fn put_many<T: Item>(producer: impl Producer<T>, from: usize, to: usize) {
    let mut random = fastrand::Rng::with_seed(from as u64);
    for n in from..to {
        producer.put(T::make(n as u64), random.u8(..LEVELS)).await;
    }
}

/// One pass of `n` operations. The consumer comes back.
async fn pass<T: Item, C: Consumer<T>>(
    traffic: Traffic,
    producer: impl Producer<T>,
    mut consumer: C,
    n: usize,
) -> C {
    match traffic {
        Traffic::Turns => {
            let mut random = fastrand::Rng::with_seed(7);
            for i in 0..n {
                producer.put(T::make(i as u64), random.u8(..LEVELS)).await;
                black_box(consumer.take().await);
            }
        }
        Traffic::Handoff => {
            let takes = tokio::spawn(async move {
                for _ in 0..n {
                    black_box(consumer.take().await);
                }
                consumer
            });
            for i in 0..n {
                tokio::task::yield_now().await;
                producer.put(T::make(i as u64), (i % 3) as u8).await;
            }
            consumer = takes.await.unwrap();
        }
        Traffic::Producers(producers) => {
            let share = n / producers;
            for i in 0..producers {
                let puts = put_many(producer.clone(), i * share, (i + 1) * share);
                tokio::spawn(puts);
            }
            let takes = tokio::spawn(async move {
                for _ in 0..share * producers {
                    black_box(consumer.take().await);
                }
                consumer
            });
            consumer = takes.await.unwrap();
        }
        Traffic::FillAndDrain => {
            put_many(producer, 0, n).await;
            for _ in 0..n {
                black_box(consumer.take().await);
            }
        }
        Traffic::Batches => {
            for i in 0..n / BATCH {
                put_many(producer.clone(), i * BATCH, (i + 1) * BATCH).await;
                black_box(consumer.take_batch().await);
            }
        }
    }
    consumer
}

/// A queue in which so many wait, before every pass and after it.
fn rival<'a, T: Item, P: Producer<T>, C: Consumer<T>>(
    name: &'a str,
    runtime: &'a Runtime,
    traffic: Traffic,
    waiting: usize,
    (producer, consumer): (P, C),
) -> Subject<'a> {
    runtime.block_on(put_many(producer.clone(), 0, waiting));
    let mut idle = Some(consumer);
    subject(name, move |n| {
        let consumer = idle.take().unwrap();
        let pass = pass(traffic, producer.clone(), consumer, n as usize);
        idle = Some(runtime.block_on(pass));
    })
}

fn compare<T: Item>(runtime: &Runtime, title: &str, traffic: Traffic, waiting: usize) {
    let operations = match traffic {
        Traffic::FillAndDrain => 100_000,
        _ => OPERATIONS,
    };
    let max_size = waiting + operations;
    let heap = LockedHeap::<T>::new(max_size);
    let ours = queue::<T>(max_size, None);
    let dated = queue::<T>(max_size, None);
    let timed = queue::<T>(max_size, Some(Duration::from_secs(3_600)));
    let mut subjects = [
        rival(
            "tokio::sync::mpsc, bounded",
            runtime,
            traffic,
            waiting,
            mpsc::channel::<T>(max_size),
        ),
        rival(
            "tokio::sync::mpsc, unbounded",
            runtime,
            traffic,
            waiting,
            mpsc::unbounded_channel::<T>(),
        ),
        rival(
            "async_channel, bounded",
            runtime,
            traffic,
            waiting,
            async_channel::bounded::<T>(max_size),
        ),
        rival(HEAP, runtime, traffic, waiting, (heap.clone(), heap)),
        rival(
            "RequestQueue",
            runtime,
            traffic,
            waiting,
            (ours.clone(), ours),
        ),
        rival(
            "RequestQueue, with arrivals",
            runtime,
            traffic,
            waiting,
            (Dated(dated.clone()), dated),
        ),
        rival(
            "RequestQueue, with max_wait",
            runtime,
            traffic,
            waiting,
            (timed.clone(), timed),
        ),
        subject("  the clock alone", |n| {
            for _ in 0..n {
                black_box(Instant::now());
            }
        }),
    ];
    let times = measure(&mut subjects, PASSES, operations as u64);
    println!(
        "\n{title}, {waiting} waiting, items of {}  (goal: ≤ 2× mpsc, ahead of the heap)",
        T::NAME
    );
    let heap = subjects.iter().position(|subject| subject.name == HEAP);
    for (subject, time) in subjects.iter().zip(&times) {
        let channel = time / times[0];
        print!("  {:<34} {time:>8.1} ns   {channel:.2}×", subject.name);
        match heap {
            Some(heap) => println!("   {:.2}× the heap", time / times[heap]),
            None => println!(),
        }
    }
}

const HEAP: &str = "Mutex<BinaryHeap> + Notify";

/// One comes, and one of those in the middle is removed.
///
/// Whoever is anywhere in a long line is anywhere in memory. How much longer that takes is seen of a bare slab, from
/// which lines of memory are taken at random, as many as there are waiters.
fn removals() {
    let sizes = [100, 100_000];
    let queues = sizes.map(|waiting| {
        let (queue, mut random) = (queue::<u64>(waiting + 1, None), fastrand::Rng::with_seed(7));
        let come = move |queue: &mut RequestQueue<u64>| enqueue(queue, 0, random.u8(..LEVELS));
        let leave = |queue: &mut RequestQueue<u64>, id| assert!(queue.remove(id).is_some());
        replacing("RequestQueue", queue, waiting, come, leave)
    });
    let slabs = sizes.map(|waiting| {
        let come = |slab: &mut Slab<[u64; 8]>| slab.insert([7; 8]);
        let leave = |slab: &mut Slab<[u64; 8]>, key| _ = black_box(slab.remove(key));
        replacing("Slab<[u64; 8]>", Slab::new(), waiting, come, leave)
    });
    let mut subjects: Vec<Subject<'_>> = queues.into_iter().chain(slabs).flatten().collect();
    let times = measure(&mut subjects, PASSES, 100_000);
    println!("\nEnqueue + remove from the middle, 100 → 100,000 waiting  (goal: flat)");
    let mut growth = Vec::new();
    for (subjects, times) in subjects.chunks(4).zip(times.chunks(4)) {
        let (few, many) = (times[0] - times[1], times[2] - times[3]);
        growth.push(many - few);
        let name = subjects[0].name;
        println!(
            "  {name:<34} {few:>6.0} ns → {many:>6.0} ns   +{:.0} ns",
            many - few
        );
    }
    println!(
        "  grows by {:.2}× what the slab does",
        growth[0] / growth[1]
    );
}

/// One comes to those who wait and one of them leaves; and the same without either, for finding whom is not the
/// queue's work.
fn replacing<'a, Q: 'a, I: Copy + 'a>(
    name: &'a str,
    mut queue: Q,
    waiting: usize,
    mut come: impl FnMut(&mut Q) -> I + 'a,
    leave: impl Fn(&mut Q, I) + 'a,
) -> [Subject<'a>; 2] {
    let ids: Vec<I> = (0..waiting).map(|_| come(&mut queue)).collect();
    let (mut leaving, mut idle, new) =
        (Leaving::new(ids.clone()), Leaving::new(ids.clone()), ids[0]);
    let replace = move |n| {
        for _ in 0..n {
            let id = leaving.replace_next(come(&mut queue));
            leave(&mut queue, id);
        }
    };
    let find = move |n| (0..n).for_each(|_| _ = black_box(idle.replace_next(new)));
    [subject(name, replace), subject("finding whom", find)]
}

/// Who leaves next: all of them in random order, again and again.
///
/// Ids that are read here and there have to be waited for, and that would be counted as the queue's time.
struct Leaving<I> {
    ids: Vec<I>,
    next: usize,
    random: fastrand::Rng,
}

impl<I: Copy> Leaving<I> {
    fn new(ids: Vec<I>) -> Self {
        Self {
            next: ids.len(),
            ids,
            random: fastrand::Rng::with_seed(8),
        }
    }

    fn replace_next(&mut self, new: I) -> I {
        if self.next == self.ids.len() {
            self.random.shuffle(&mut self.ids);
            self.next = 0;
        }
        self.next += 1;
        std::mem::replace(&mut self.ids[self.next - 1], new)
    }
}

/// What one who finds nothing to take pays.
fn empty_handed() {
    let ours = queue::<u64>(100, None);
    let (_producer, mut channel) = mpsc::channel::<u64>(100);
    let mut subjects = [
        subject("tokio::sync::mpsc, try_recv", |n| {
            (0..n).for_each(|_| assert!(channel.try_recv().is_err()));
        }),
        subject("RequestQueue, try_dequeue", |n| {
            (0..n).for_each(|_| assert!(ours.try_dequeue().is_err()));
        }),
    ];
    let times = measure(&mut subjects, PASSES, OPERATIONS as u64);
    println!("\nLooking in vain");
    for (subject, time) in subjects.iter().zip(&times) {
        let ratio = time / times[0];
        println!("  {:<34} {time:>8.1} ns   {ratio:.2}×", subject.name);
    }
}

fn main() {
    let one = Builder::new_current_thread().enable_time().build().unwrap();
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let turns = "Enqueue + dequeue, one task";
    let producers = "Enqueue + dequeue, 4 producers, 2 threads";
    for waiting in [100, 100_000] {
        compare::<u64>(&one, turns, Traffic::Turns, waiting);
        compare::<Request>(&one, turns, Traffic::Turns, waiting);
        compare::<u64>(&two, producers, Traffic::Producers(4), waiting);
        compare::<Request>(&two, producers, Traffic::Producers(4), waiting);
    }
    let handoff = "To a consumer that waits, one thread";
    compare::<u64>(&one, handoff, Traffic::Handoff, 0);
    let drain = "Enqueue all of 100,000, then dequeue them";
    compare::<u64>(&one, drain, Traffic::FillAndDrain, 0);
    let batches = "Enqueue one by one, take batches of 64";
    compare::<u64>(&one, batches, Traffic::Batches, 100);
    compare::<u64>(&one, batches, Traffic::Batches, 100_000);
    removals();
    empty_handed();
}
