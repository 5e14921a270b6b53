//! Random test of wake-ups: for each waiting item a consumer was woken, as far as consumers wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use proptest::prelude::*;
use proptest::sample::Index;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{RequestId, RequestQueue};
use tower_triage::{Discipline, Priority};

use super::support::{WakeCounter, config, queue, ticket};

#[derive(Debug, Clone)]
enum Event {
    Enqueue {
        level: u8,
        is_dated: bool,
    },
    WithToken,
    Cancel(Index),
    Remove(Index),
    TryDequeue,
    Batch(usize),
    Dequeue,
    WaitNonEmpty,
    /// A consumer is polled, whether or not it was woken.
    Poll(Index),
    Drop(Index),
    Reconfigure(bool),
    Drain,
    Close,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (0u8..3, any::<bool>()).prop_map(|(level, is_dated)| Event::Enqueue { level, is_dated }),
        3 => Just(Event::WithToken),
        3 => any::<Index>().prop_map(Event::Cancel),
        3 => any::<Index>().prop_map(Event::Remove),
        8 => Just(Event::TryDequeue),
        4 => (0usize..4).prop_map(Event::Batch),
        14 => Just(Event::Dequeue),
        4 => Just(Event::WaitNonEmpty),
        20 => any::<Index>().prop_map(Event::Poll),
        8 => any::<Index>().prop_map(Event::Drop),
        2 => any::<bool>().prop_map(Event::Reconfigure),
        1 => Just(Event::Drain),
        1 => Just(Event::Close),
    ]
}

/// A consumer that waits.
struct Consumer<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    counter: Arc<WakeCounter>,
    waker: Waker,
    /// How often it had been woken when it was last polled.
    seen: usize,
}

impl<'a> Consumer<'a> {
    fn new(future: impl Future<Output = ()> + 'a) -> Self {
        let (counter, waker) = WakeCounter::new();
        Self {
            future: Box::pin(future),
            counter,
            waker,
            seen: 0,
        }
    }

    /// Polls it. Whether it still waits.
    fn waits_on(&mut self) -> bool {
        self.seen = self.counter.wakes();
        let mut cx = Context::from_waker(&self.waker);
        self.future.as_mut().poll(&mut cx).is_pending()
    }

    fn is_woken(&self) -> bool {
        self.counter.wakes() > self.seen
    }
}

fn run(events: Vec<Event>) {
    let queue: RequestQueue<u8> = queue();
    let mut consumers: Vec<Consumer> = Vec::new();
    let mut enqueued: Vec<(RequestId, CancellationToken)> = Vec::new();
    for event in events {
        let total = |consumers: &[Consumer]| -> usize {
            consumers.iter().map(|one| one.counter.wakes()).sum()
        };
        let before = total(&consumers);
        let mut record = |id: Option<RequestId>, token| {
            enqueued.extend(id.map(|id| (id, token)));
        };
        let mut max_wakes = usize::MAX;
        match &event {
            Event::Enqueue { level, is_dated } => {
                let token = CancellationToken::new();
                let id = match is_dated {
                    true => queue.enqueue(0, ticket(*level)),
                    false => queue.enqueue(0, Priority(*level)),
                };
                record(id.ok(), token);
                max_wakes = 1;
            }
            Event::WithToken => {
                let token = CancellationToken::new();
                let id = queue.enqueue_with_token(0, Priority(1), token.clone());
                record(id.ok(), token);
                max_wakes = 1;
            }
            Event::Cancel(which) if !enqueued.is_empty() => which.get(&enqueued).1.cancel(),
            Event::Remove(which) if !enqueued.is_empty() => {
                _ = queue.remove(which.get(&enqueued).0)
            }
            Event::Cancel(_) | Event::Remove(_) => {}
            Event::TryDequeue => _ = queue.try_dequeue(),
            Event::Batch(count) => _ = queue.take_batch(*count, 9),
            Event::Dequeue => {
                let future = queue.dequeue();
                let mut consumer = Consumer::new(async { _ = future.await });
                if consumer.waits_on() {
                    consumers.push(consumer);
                }
            }
            Event::WaitNonEmpty => {
                let future = queue.wait_nonempty();
                let mut consumer = Consumer::new(async { _ = future.await });
                if consumer.waits_on() {
                    consumers.push(consumer);
                }
            }
            Event::Poll(which) if !consumers.is_empty() => {
                let which = which.index(consumers.len());
                if !consumers[which].waits_on() {
                    consumers.remove(which);
                }
            }
            Event::Drop(which) if !consumers.is_empty() => {
                consumers.remove(which.index(consumers.len()));
            }
            Event::Poll(_) | Event::Drop(_) => {}
            Event::Reconfigure(is_fair) => queue.reconfigure(config(|config| {
                if *is_fair {
                    config.discipline = Discipline::Fair;
                }
            })),
            Event::Drain => queue.drain(),
            Event::Close => queue.close(),
        }
        let has_ended = queue.is_closed() && queue.is_empty();
        let needed = match has_ended {
            true => consumers.len(),
            false => queue.len().min(consumers.len()),
        };
        let woken = consumers.iter().filter(|one| one.is_woken()).count();
        assert!(woken >= needed, "{woken} of {needed} after {event:?}");
        assert!(
            max_wakes == usize::MAX || total(&consumers) - before <= max_wakes,
            "after {event:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_item_has_a_woken_consumer(events in prop::collection::vec(event(), 1..150)) {
        run(events);
    }
}
