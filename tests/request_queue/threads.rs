//! Stress tests on threads: with many producers and consumers, each item ends once, in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{DequeueError, OnOversize, RequestQueue};
use tower_triage::{Discipline, RejectReason, WaitingRoomConfig};

use super::support::{block_on, config, queue, ticket};

/// An item that counts itself in `lost` if it is dropped without having been read.
#[derive(Debug)]
struct Item {
    producer: usize,
    level: u8,
    number: usize,
    lost: Option<Arc<AtomicUsize>>,
}

impl Item {
    /// Its producer, level and number.
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

/// Takes items until the queue is closed and empty, each time in a random way.
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
                Err(error) => panic!("{error}"),
            },
            2 => {
                if !block_on(queue.wait_nonempty()) {
                    return taken;
                }
                let batch = queue.take_batch(rng.usize(1..4), rng.u64(1..8));
                taken.extend(batch.into_iter().map(Item::read));
            }
            _ => {
                // Waits and is dropped, perhaps after it was woken.
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
        while let Err(error) = queue.enqueue(item, ticket(level)) {
            assert_eq!(error.reason, RejectReason::Full);
            item = error.item;
            std::thread::yield_now();
        }
    }
}

#[test]
fn each_item_is_taken_once_in_producer_order() {
    let config = config(|config| (config.max_size, config.displace) = (64, false));
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

fn random_config(rng: &mut Rng) -> WaitingRoomConfig {
    config(|config| {
        config.max_size = rng.usize(1..100);
        config.displace = rng.bool();
        config.promote_after = rng.bool().then_some(Duration::from_micros(50));
        config.max_wait = rng.bool().then_some(Duration::from_millis(2));
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        config.discipline = disciplines[rng.usize(0..3)];
    })
}

/// Enqueues items, and removes some of them again. The number of accepted items.
fn enqueue_and_remove(queue: &RequestQueue<Item>, seed: u64, lost: &Arc<AtomicUsize>) -> usize {
    let mut rng = Rng::with_seed(seed);
    let mut accepted = 0;
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
        let error = match rng.u8(0..4) {
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
                Err(error) => Some(error),
            },
            2 => match queue.enqueue(item, ticket) {
                Ok(id) => {
                    drop(queue.remove(id));
                    None
                }
                Err(error) => Some(error),
            },
            _ => queue.enqueue(item, ticket).err(),
        };
        match error {
            Some(error) => drop(error.item.read()),
            None => accepted += 1,
        }
        if tokens.len() > 8 {
            tokens.swap_remove(rng.usize(0..tokens.len())).cancel();
        }
        if guards.len() > 8 {
            drop(guards.swap_remove(rng.usize(0..guards.len())));
        }
    }
    tokens.iter().for_each(CancellationToken::cancel);
    accepted
}

#[test]
fn each_item_is_taken_removed_or_rejected_once() {
    let rejected = Arc::new(AtomicUsize::new(0));
    let lost = Arc::new(AtomicUsize::new(0));
    let queue = RequestQueue::builder(random_config(&mut Rng::with_seed(1)))
        .on_oversize(OnOversize::Backfill { max_overtakes: 3 })
        .cost(8, |item: &Item| 1 + item.number as u64 % 8)
        .on_rejected({
            let rejected = rejected.clone();
            move |item: Item, _| {
                item.read();
                rejected.fetch_add(1, SeqCst);
            }
        })
        .build();
    let (accepted, taken) = std::thread::scope(|threads| {
        let queue = &queue;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|seed| threads.spawn(move || consume(queue, seed)))
            .collect();
        let changer = threads.spawn(move || {
            let mut rng = Rng::with_seed(3);
            while !queue.is_closed() {
                queue.reconfigure(random_config(&mut rng));
                if rng.u8(0..20) == 0 {
                    drop(queue.clear());
                }
                std::thread::yield_now();
            }
        });
        let lost = &lost;
        let producers: Vec<_> = (0..PRODUCERS as u64)
            .map(|seed| threads.spawn(move || enqueue_and_remove(queue, seed, lost)))
            .collect();
        let accepted: usize = producers.into_iter().map(|one| one.join().unwrap()).sum();
        queue.drain();
        changer.join().unwrap();
        let taken = consumers.into_iter().map(|one| one.join().unwrap().len());
        (accepted, taken.sum::<usize>())
    });
    assert!(queue.is_empty());
    let (rejected, lost) = (rejected.load(SeqCst), lost.load(SeqCst));
    assert_eq!(accepted, taken + rejected + lost);
    assert_eq!(queue.stats().cancelled, lost as u64);
    assert!(taken > 0 && lost > 0);
}

#[test]
fn a_thousand_consumers_get_a_thousand_items() {
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
