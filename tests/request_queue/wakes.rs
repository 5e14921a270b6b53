//! For each request a consumer has been woken, as far as consumers wait, whatever else happens.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use proptest::prelude::*;
use proptest::sample::Index;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{RequestId, RequestQueue};
use tower_triage::{Discipline, Priority};

use super::support::{Bell, queue, room, ticket};

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
    /// It is polled, whether or not it was woken.
    Poll(Index),
    GiveUp(Index),
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
        8 => any::<Index>().prop_map(Event::GiveUp),
        2 => any::<bool>().prop_map(Event::Reconfigure),
        1 => Just(Event::Drain),
        1 => Just(Event::Close),
    ]
}

/// One who waits.
struct Consumer<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    bell: Arc<Bell>,
    waker: Waker,
    /// How often it had been rung when it last looked.
    heard: usize,
}

impl<'a> Consumer<'a> {
    fn new(future: impl Future<Output = ()> + 'a) -> Self {
        let (bell, waker) = Bell::new();
        Self {
            future: Box::pin(future),
            bell,
            waker,
            heard: 0,
        }
    }

    /// Whether it waits on.
    fn waits_on(&mut self) -> bool {
        self.heard = self.bell.rung();
        let mut cx = Context::from_waker(&self.waker);
        self.future.as_mut().poll(&mut cx).is_pending()
    }

    fn is_woken(&self) -> bool {
        self.bell.rung() > self.heard
    }
}

fn run(events: Vec<Event>) {
    let queue: RequestQueue<u8> = queue();
    let mut consumers: Vec<Consumer> = Vec::new();
    let mut came: Vec<(RequestId, CancellationToken)> = Vec::new();
    for event in events {
        let rung =
            |consumers: &[Consumer]| -> usize { consumers.iter().map(|one| one.bell.rung()).sum() };
        let before = rung(&consumers);
        let mut comes = |name: Option<RequestId>, token| {
            came.extend(name.map(|name| (name, token)));
        };
        let mut most = usize::MAX;
        match &event {
            Event::Enqueue { level, is_dated } => {
                let token = CancellationToken::new();
                let name = match is_dated {
                    true => queue.enqueue(0, ticket(*level)),
                    false => queue.enqueue(0, Priority(*level)),
                };
                comes(name.ok(), token);
                most = 1;
            }
            Event::WithToken => {
                let token = CancellationToken::new();
                let name = queue.enqueue_with_token(0, Priority(1), token.clone());
                comes(name.ok(), token);
                most = 1;
            }
            Event::Cancel(which) if !came.is_empty() => which.get(&came).1.cancel(),
            Event::Remove(which) if !came.is_empty() => _ = queue.remove(which.get(&came).0),
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
            Event::GiveUp(which) if !consumers.is_empty() => {
                consumers.remove(which.index(consumers.len()));
            }
            Event::Poll(_) | Event::GiveUp(_) => {}
            Event::Reconfigure(is_fair) => queue.reconfigure(room(|room| {
                if *is_fair {
                    room.discipline = Discipline::Fair;
                }
            })),
            Event::Drain => queue.drain(),
            Event::Close => queue.close(),
        }
        let nothing_will_come = queue.is_closed() && queue.is_empty();
        let needed = match nothing_will_come {
            true => consumers.len(),
            false => queue.len().min(consumers.len()),
        };
        let woken = consumers.iter().filter(|one| one.is_woken()).count();
        assert!(woken >= needed, "{woken} of {needed} after {event:?}");
        assert!(
            most == usize::MAX || rung(&consumers) - before <= most,
            "after {event:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn for_each_request_a_consumer_is_woken(events in prop::collection::vec(event(), 1..150)) {
        run(events);
    }
}
