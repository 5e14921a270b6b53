//! `RequestQueue` against a channel, which has no priorities, and a heap behind a lock, which has.
//!
//! The queue has its default configuration, except that it is large enough: two priorities, and waits that time out. So
//! it reads the clock for each item, and neither of the others does.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use support::Bench;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};
use tower_triage::batch::RequestQueue;
use tower_triage::{Priority, WaitingRoomConfig};

const PASSES: usize = 301;
const PRODUCERS: usize = 4;
const BATCH: usize = 64;

/// As large as a request's head, the channel of its answer and the handle of its body.
struct Item(#[expect(dead_code, reason = "only its size matters")] [u64; 32]);

impl Item {
    fn new(n: usize) -> Self {
        Self([n as u64; 32])
    }
}

trait Producer: Clone + Send + 'static {
    fn put(&self, item: Item, priority: u8) -> impl Future<Output = ()> + Send;
}

trait Consumer: Send + 'static {
    fn take(&mut self) -> impl Future<Output = Item> + Send;

    /// Takes `BATCH` items, which wait.
    fn take_batch(&mut self) -> impl Future<Output = Vec<Item>> + Send;
}

impl Producer for mpsc::Sender<Item> {
    async fn put(&self, item: Item, _: u8) {
        self.send(item).await.ok().unwrap();
    }
}

impl Consumer for mpsc::Receiver<Item> {
    async fn take(&mut self) -> Item {
        self.recv().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<Item> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            self.recv_many(&mut batch, BATCH).await;
        }
        batch
    }
}

/// The usual first version: a heap behind a lock, ordered by priority, then by arrival.
#[derive(Clone, Default)]
struct LockedHeap {
    state: Arc<Mutex<HeapState>>,
    filled: Arc<Notify>,
}

#[derive(Default)]
struct HeapState {
    heap: BinaryHeap<Ranked>,
    arrivals: u64,
}

struct Ranked {
    rank: Reverse<(u8, u64)>,
    item: Item,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl Producer for LockedHeap {
    async fn put(&self, item: Item, priority: u8) {
        let mut state = self.state.lock().unwrap();
        state.arrivals += 1;
        let rank = Reverse((priority, state.arrivals));
        state.heap.push(Ranked { rank, item });
        drop(state);
        self.filled.notify_one();
    }
}

impl Consumer for LockedHeap {
    async fn take(&mut self) -> Item {
        loop {
            let best = self.state.lock().unwrap().heap.pop();
            if let Some(best) = best {
                return best.item;
            }
            self.filled.notified().await;
        }
    }

    async fn take_batch(&mut self) -> Vec<Item> {
        let heap = &mut self.state.lock().unwrap().heap;
        let items = std::iter::from_fn(|| Some(heap.pop()?.item));
        items.take(BATCH).collect()
    }
}

impl Producer for RequestQueue<Item> {
    async fn put(&self, item: Item, priority: u8) {
        self.enqueue(item, Priority(priority)).ok().unwrap();
    }
}

impl Consumer for RequestQueue<Item> {
    async fn take(&mut self) -> Item {
        self.dequeue().await.unwrap()
    }

    async fn take_batch(&mut self) -> Vec<Item> {
        RequestQueue::take_batch(self, BATCH, u64::MAX)
    }
}

/// What a pass does.
#[derive(Clone, Copy)]
enum Traffic {
    /// One task puts an item in and takes one out.
    InAndOut,
    /// A task puts items in, another on the same thread waits for each.
    Handoff,
    /// Four tasks on another thread put items in while this one takes them out.
    Producers,
    /// 64 items are put in one by one and taken out together.
    Batches,
}

async fn put_many(producer: impl Producer, from: usize, to: usize) {
    let mut random = fastrand::Rng::with_seed(from as u64);
    for n in from..to {
        producer.put(Item::new(n), random.u8(..2)).await;
    }
}

async fn take_many<C: Consumer>(mut consumer: C, n: usize) -> C {
    for _ in 0..n {
        black_box(consumer.take().await);
    }
    consumer
}

/// One pass of `n` operations. Returns the consumer.
async fn pass<C: Consumer>(
    traffic: Traffic,
    producer: impl Producer,
    mut consumer: C,
    n: usize,
) -> C {
    match traffic {
        Traffic::InAndOut => {
            let mut random = fastrand::Rng::with_seed(7);
            for i in 0..n {
                producer.put(Item::new(i), random.u8(..2)).await;
                black_box(consumer.take().await);
            }
            consumer
        }
        Traffic::Handoff => {
            let takes = tokio::spawn(take_many(consumer, n));
            for i in 0..n {
                tokio::task::yield_now().await;
                producer.put(Item::new(i), (i % 2) as u8).await;
            }
            takes.await.unwrap()
        }
        Traffic::Producers => {
            let share = n / PRODUCERS;
            let puts = std::thread::spawn(move || {
                runtime().block_on(async {
                    let range = |nth: usize| (nth * share, (nth + 1) * share);
                    let put = |(from, to)| tokio::spawn(put_many(producer.clone(), from, to));
                    let tasks: Vec<_> = (0..PRODUCERS).map(range).map(put).collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            });
            let consumer = take_many(consumer, share * PRODUCERS).await;
            puts.join().unwrap();
            consumer
        }
        Traffic::Batches => {
            for i in 0..n / BATCH {
                put_many(producer.clone(), i * BATCH, (i + 1) * BATCH).await;
                black_box(consumer.take_batch().await);
            }
            consumer
        }
    }
}

/// A queue in which `waiting` items wait before and after every pass.
fn passes<P: Producer, C: Consumer>(
    runtime: &Runtime,
    traffic: Traffic,
    waiting: usize,
    (producer, consumer): (P, C),
) -> impl FnMut(u64) {
    runtime.block_on(put_many(producer.clone(), 0, waiting));
    let mut idle = Some(consumer);
    move |n| {
        let consumer = idle.take().unwrap();
        let pass = pass(traffic, producer.clone(), consumer, n as usize);
        idle = Some(runtime.block_on(pass));
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

const CHANNEL: &str = "tokio::sync::mpsc, bounded";
const HEAP: &str = "Mutex<BinaryHeap> + Notify";

fn compare(title: &str, traffic: Traffic, waiting: usize) {
    let runtime = runtime();
    let operations = match traffic {
        // Enough to outweigh the start of a thread.
        Traffic::Producers => 10_000,
        _ => 2_000,
    };
    // Nothing is ever full, so that no producer waits.
    let max_size = waiting + operations;
    let channel = mpsc::channel(max_size);
    let heap = LockedHeap::default();
    let mut config = WaitingRoomConfig::default();
    config.max_size = max_size;
    let queue = RequestQueue::new(config);
    let title = format!("{title}, {waiting} waiting, items of 256 bytes");
    Bench::new(title, PASSES, operations as u64)
        .subject(CHANNEL, passes(&runtime, traffic, waiting, channel))
        .subject(
            HEAP,
            passes(&runtime, traffic, waiting, (heap.clone(), heap)),
        )
        .subject(
            "RequestQueue",
            passes(&runtime, traffic, waiting, (queue.clone(), queue)),
        )
        .against(CHANNEL, "≤ 1.5×")
        .against(HEAP, "≤ 0.8×")
        .run();
}

fn main() {
    for waiting in [100, 100_000] {
        compare("Put one in, take one out", Traffic::InAndOut, waiting);
        compare("4 producers on another thread", Traffic::Producers, waiting);
        compare(
            "Put in one by one, take batches of 64",
            Traffic::Batches,
            waiting,
        );
    }
    compare("To a consumer that waits", Traffic::Handoff, 0);
}
