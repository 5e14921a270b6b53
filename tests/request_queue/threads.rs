//! Many producers and many consumers on real threads: everything ends once, in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{DequeueError, OnOversize, RequestQueue};
use tower_triage::{Discipline, RejectReason, WaitingRoomConfig};

use super::support::{block_on, queue, room, ticket};

/// Who made it, its priority, its number, and how many of its kind were dropped unread.
#[derive(Debug)]
struct Item {
    producer: usize,
    level: u8,
    number: usize,
    lost: Option<Arc<AtomicUsize>>,
}

impl Item {
    /// Taken by a consumer.
    fn read(mut self) -> (usize, u8, usize) {
        self.lost = None;
        (self.producer, self.level, self.number)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if let Some(lost) = &self.lost {
            lost.fetch_add(1, SeqCst);
        }
    }
}

const PRODUCERS: usize = 4;
const CONSUMERS: u64 = 4;
const EACH: usize = 5_000;

/// Takes all there is, in one of the ways that there are.
fn consume(queue: &RequestQueue<Item>, seed: u64) -> Vec<(usize, u8, usize)> {
    let mut rng = Rng::with_seed(seed);
    let mut taken = Vec::new();
    loop {
        match rng.u8(0..4) {
            0 => match block_on(queue.dequeue()) {
                Some(item) => taken.push(item.read()),
                None => return taken,
            },
            1 => match queue.try_dequeue() {
                Ok(item) => taken.push(item.read()),
                Err(DequeueError::Empty) => std::thread::yield_now(),
                Err(DequeueError::Closed) => return taken,
            },
            2 => {
                if !block_on(queue.wait_nonempty()) {
                    return taken;
                }
                let batch = queue.take_batch(rng.usize(1..4), rng.u64(1..8));
                taken.extend(batch.into_iter().map(Item::read));
            }
            _ => {
                // Comes, and goes without having been served; perhaps after it was woken.
                let mut dequeue = queue.dequeue();
                let waker = std::task::Waker::noop();
                match super::support::poll(&mut dequeue, waker) {
                    std::task::Poll::Ready(Some(item)) => taken.push(item.read()),
                    std::task::Poll::Ready(None) => return taken,
                    std::task::Poll::Pending => std::thread::yield_now(),
                }
            }
        }
    }
}

fn produce(queue: &RequestQueue<Item>, producer: usize, lost: &Arc<AtomicUsize>) {
    let mut rng = Rng::with_seed(producer as u64);
    for number in 0..EACH {
        let level = rng.u8(0..2);
        let mut item = Item {
            producer,
            level,
            number,
            lost: Some(lost.clone()),
        };
        while let Err(refused) = queue.enqueue(item, ticket(level)) {
            assert_eq!(refused.why, RejectReason::Full);
            item = refused.item;
            std::thread::yield_now();
        }
    }
}

#[test]
fn everything_is_taken_once_and_in_the_order_of_its_producer() {
    let config = room(|room| room.max_size = 64);
    let queue = RequestQueue::builder(config)
        .cost(8, |item: &Item| 1 + item.number as u64 % 4)
        .on_oversize(OnOversize::Stop)
        .build();
    let lost = Arc::new(AtomicUsize::new(0));
    let taken: Vec<_> = std::thread::scope(|threads| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|seed| {
                let queue = &queue;
                threads.spawn(move || consume(queue, seed))
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (queue, lost) = (&queue, &lost);
                threads.spawn(move || produce(queue, producer, lost))
            })
            .collect();
        producers.into_iter().for_each(|one| one.join().unwrap());
        queue.drain();
        consumers
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect()
    });
    assert_eq!(lost.load(SeqCst), 0);
    for by_one in &taken {
        let mut last = HashMap::new();
        for &(producer, level, number) in by_one {
            let before = last.insert((producer, level), number);
            assert!(before.is_none_or(|before| before < number));
        }
    }
    let mut all: Vec<_> = taken
        .into_iter()
        .flatten()
        .map(|(producer, _, number)| (producer, number))
        .collect();
    all.sort_unstable();
    let each = |producer| (0..EACH).map(move |number| (producer, number));
    assert!(all.into_iter().eq((0..PRODUCERS).flat_map(each)));
}

fn furniture(rng: &mut Rng) -> WaitingRoomConfig {
    room(|room| {
        room.max_size = rng.usize(1..100);
        room.displace = rng.bool();
        room.promote_after = rng.bool().then_some(Duration::from_micros(50));
        room.max_wait = rng.bool().then_some(Duration::from_millis(2));
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        room.discipline = disciplines[rng.usize(0..3)];
    })
}

/// Brings items, some of which leave again. How many came in.
fn come_and_go(queue: &RequestQueue<Item>, seed: u64, lost: &Arc<AtomicUsize>) -> usize {
    let mut rng = Rng::with_seed(seed);
    let mut came = 0;
    let mut tokens = Vec::new();
    let mut guards = Vec::new();
    for number in 0..EACH {
        let item = Item {
            producer: seed as usize,
            level: rng.u8(0..2),
            number,
            lost: Some(lost.clone()),
        };
        let tenant = ["a", "b", "c"][rng.usize(0..3)];
        let ticket = ticket(item.level).tenant(tenant.into());
        let refused = match rng.u8(0..4) {
            0 => {
                let token = CancellationToken::new();
                tokens.push(token.clone());
                queue.enqueue_with_token(item, ticket, token).err()
            }
            1 => match queue.enqueue(item, ticket) {
                Ok(id) => {
                    guards.push(queue.guard(id));
                    None
                }
                Err(refused) => Some(refused),
            },
            2 => match queue.enqueue(item, ticket) {
                Ok(id) => {
                    drop(queue.remove(id));
                    None
                }
                Err(refused) => Some(refused),
            },
            _ => queue.enqueue(item, ticket).err(),
        };
        match refused {
            Some(refused) => drop(refused.item.read()),
            None => came += 1,
        }
        if tokens.len() > 8 {
            tokens.swap_remove(rng.usize(0..tokens.len())).cancel();
        }
        if guards.len() > 8 {
            drop(guards.swap_remove(rng.usize(0..guards.len())));
        }
    }
    tokens.iter().for_each(CancellationToken::cancel);
    came
}

#[test]
fn whoever_comes_is_taken_or_leaves_or_is_told_and_only_one_of_these() {
    let told = Arc::new(AtomicUsize::new(0));
    let lost = Arc::new(AtomicUsize::new(0));
    let queue = RequestQueue::builder(furniture(&mut Rng::with_seed(1)))
        .on_oversize(OnOversize::Backfill { max_overtakes: 3 })
        .cost(8, |item: &Item| 1 + item.number as u64 % 8)
        .on_rejected({
            let told = told.clone();
            move |item: Item, _| {
                item.read();
                told.fetch_add(1, SeqCst);
            }
        })
        .build();
    let (came, taken) = std::thread::scope(|threads| {
        let queue = &queue;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|seed| threads.spawn(move || consume(queue, seed)))
            .collect();
        let changer = threads.spawn(move || {
            let mut rng = Rng::with_seed(3);
            while !queue.is_closed() {
                queue.reconfigure(furniture(&mut rng));
                if rng.u8(0..20) == 0 {
                    drop(queue.clear());
                }
                std::thread::yield_now();
            }
        });
        let lost = &lost;
        let producers: Vec<_> = (0..PRODUCERS as u64)
            .map(|seed| threads.spawn(move || come_and_go(queue, seed, lost)))
            .collect();
        let came: usize = producers.into_iter().map(|one| one.join().unwrap()).sum();
        queue.drain();
        changer.join().unwrap();
        let taken = consumers.into_iter().map(|one| one.join().unwrap().len());
        (came, taken.sum::<usize>())
    });
    assert!(queue.is_empty());
    let (told, lost) = (told.load(SeqCst), lost.load(SeqCst));
    assert_eq!(came, taken + told + lost);
    assert_eq!(queue.stats().cancelled, lost as u64);
    assert!(taken > 0 && lost > 0);
}

#[test]
fn a_thousand_consumers_wait_for_a_thousand_items() {
    let queue = queue();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    runtime.block_on(async {
        let consumers: Vec<_> = (0..1_000)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.dequeue().await.unwrap() })
            })
            .collect();
        for item in 0..1_000 {
            queue.enqueue(item, ticket(1)).unwrap();
        }
        let mut all = Vec::new();
        for consumer in consumers {
            all.push(consumer.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>());
    });
}
