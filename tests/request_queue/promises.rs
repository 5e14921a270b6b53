//! Random test of the queue: each step is compared with the model.

use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{DequeueError, OnOversize, RequestGuard, RequestId, RequestQueue};
use tower_triage::{Discipline, Priority, PriorityLevels, Ticket, WaitingRoomConfig};

use super::model::{Arrival, Id, Model};
use super::support::{Rejections, config, now};

const TENANTS: [&str; 4] = ["", "a", "b", "c"];
const BUDGET: u64 = 12;

#[derive(Debug, Clone)]
enum Event {
    Enqueue(NewItem),
    Dequeue,
    TryDequeue,
    Batch(usize, u64),
    /// An item is removed in the way of its `CancelBy`.
    Remove(Index),
    Clear,
    /// Seconds pass, and the timer runs.
    Pass(u64),
    /// Seconds pass, and the next event comes before the timer runs.
    PassWithoutTimer(u64),
    Reconfigure(Config),
    Drain,
    Close,
}

#[derive(Debug, Clone)]
struct NewItem {
    priority: u8,
    tenant: usize,
    /// How many seconds ago it arrived, if its ticket says so.
    age: Option<u64>,
    timeout: Option<u64>,
    share: u32,
    cost: u64,
    cancel_by: CancelBy,
}

#[derive(Debug, Clone, Copy)]
enum CancelBy {
    Id,
    Token,
    Guard,
}

#[derive(Debug, Clone)]
struct Config {
    discipline: Discipline,
    max_size: usize,
    max_size_per_tenant: Option<usize>,
    max_wait: Option<u64>,
    promote_after: Option<u64>,
    displace: bool,
    weight: u32,
}

impl Config {
    fn room(&self) -> WaitingRoomConfig {
        config(|config| {
            config.discipline = self.discipline;
            (config.max_size, config.max_size_per_tenant) =
                (self.max_size, self.max_size_per_tenant);
            config.max_wait = self.max_wait.map(Duration::from_secs);
            config.promote_after = self.promote_after.map(Duration::from_secs);
            config.displace = self.displace;
            config.levels = PriorityLevels::new(["high", "normal", "low"], "low").unwrap();
            config.weights.insert("a".into(), self.weight);
        })
    }
}

fn config_strategy(disciplines: &'static [Discipline]) -> impl Strategy<Value = Config> + Clone {
    let max_size = prop_oneof![1 => 0usize..4, 4 => 4usize..40];
    let per_tenant = prop::option::weighted(0.2, 1usize..6);
    let seconds = || prop::option::weighted(0.3, 1u64..12);
    (
        prop::sample::select(disciplines),
        max_size,
        per_tenant,
        seconds(),
        seconds(),
        any::<bool>(),
        prop::sample::select(vec![0, 1, 2, 4]),
    )
        .prop_map(
            |(
                discipline,
                max_size,
                max_size_per_tenant,
                max_wait,
                promote_after,
                displace,
                weight,
            )| {
                Config {
                    discipline,
                    max_size,
                    max_size_per_tenant,
                    max_wait,
                    promote_after,
                    displace,
                    weight,
                }
            },
        )
        .prop_flat_map(move |config| {
            // Half of them only bound the size and the wait.
            let plain = Config {
                discipline: disciplines[0],
                max_size_per_tenant: None,
                promote_after: None,
                displace: false,
                ..config.clone()
            };
            prop::sample::select(vec![plain, config])
        })
}

/// Half of the tickets give no more than a priority.
fn new_item() -> impl Strategy<Value = NewItem> {
    (any_item(), any::<bool>()).prop_map(|(new_item, is_plain)| match is_plain {
        true => NewItem {
            tenant: 0,
            age: new_item.age.and(Some(0)),
            timeout: None,
            share: 1,
            ..new_item
        },
        false => new_item,
    })
}

fn any_item() -> impl Strategy<Value = NewItem> {
    (
        0u8..4,
        0..TENANTS.len(),
        prop_oneof![5 => Just(None), 5 => Just(Some(0)), 1 => (1u64..8).prop_map(Some)],
        prop::option::weighted(0.2, 0u64..15),
        0u32..4,
        0..BUDGET + 2,
        prop::sample::select(vec![CancelBy::Id, CancelBy::Token, CancelBy::Guard]),
    )
        .prop_map(
            |(priority, tenant, age, timeout, share, cost, cancel_by)| NewItem {
                priority,
                tenant,
                age,
                timeout,
                share,
                cost,
                cancel_by,
            },
        )
}

fn events(disciplines: &'static [Discipline]) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        60 => new_item().prop_map(Event::Enqueue),
        5 => Just(Event::Dequeue),
        5 => Just(Event::TryDequeue),
        30 => (0usize..6, 0..BUDGET + 2).prop_map(|(count, budget)| Event::Batch(count, budget)),
        15 => any::<Index>().prop_map(Event::Remove),
        1 => Just(Event::Clear),
        15 => (1u64..5).prop_map(Event::Pass),
        8 => (1u64..5).prop_map(Event::PassWithoutTimer),
        6 => config_strategy(disciplines).prop_map(Event::Reconfigure),
        1 => prop_oneof![3 => Just(Event::Drain), 1 => Just(Event::Close)],
    ];
    prop::collection::vec(event, 1..150)
}

impl Config {
    /// First in first out, without a bound per tenant, promotion or displacement.
    fn plain(self) -> Self {
        Self {
            discipline: Discipline::Fifo,
            max_size_per_tenant: None,
            promote_after: None,
            displace: false,
            ..self
        }
    }
}

impl Event {
    /// The same, with a plain ticket or configuration, and a single item instead of a batch.
    fn plain(self) -> Self {
        match self {
            Self::Enqueue(new_item) => Self::Enqueue(NewItem {
                tenant: 0,
                age: new_item.age.and(Some(0)),
                timeout: None,
                share: 1,
                ..new_item
            }),
            Self::Batch(..) => Self::TryDequeue,
            Self::Reconfigure(new) => Self::Reconfigure(new.plain()),
            other => other,
        }
    }
}

/// Events of which nine in ten are plain.
fn plain_events() -> impl Strategy<Value = Vec<Event>> {
    let is_plain = prop::collection::vec(prop::bool::weighted(0.9), 150);
    (events(ALL), is_plain).prop_map(|(events, is_plain)| {
        let all = events.into_iter().zip(is_plain);
        all.map(|(event, is_plain)| if is_plain { event.plain() } else { event })
            .collect()
    })
}

fn on_oversize() -> impl Strategy<Value = OnOversize> {
    prop_oneof![
        1 => Just(OnOversize::Stop),
        4 => (0u32..5).prop_map(|max_overtakes| OnOversize::Backfill { max_overtakes }),
    ]
}

/// What the caller of an item keeps to remove it.
enum Handle {
    Id(RequestId),
    Token(CancellationToken),
    Guard(RequestGuard<(Id, u64)>),
}

struct Driver {
    queue: RequestQueue<(Id, u64)>,
    rejected: Rejections<(Id, u64)>,
    model: Model,
    enqueued: Vec<Option<(RequestId, Option<Handle>)>>,
}

impl Driver {
    fn new(config: WaitingRoomConfig, on_oversize: OnOversize) -> Self {
        let rejected = Rejections::default();
        let queue = RequestQueue::builder(config.clone())
            .cost(BUDGET, |&(_, cost): &(Id, u64)| cost)
            .on_oversize(on_oversize)
            .on_rejected({
                let rejected = rejected.clone();
                move |item, why| rejected.lock().unwrap().push((item, why))
            })
            .build();
        Self {
            queue,
            rejected,
            model: Model::new(config, BUDGET, on_oversize),
            enqueued: Vec::new(),
        }
    }

    async fn apply(&mut self, event: Event) {
        let Self {
            queue,
            model,
            enqueued,
            ..
        } = self;
        match event {
            Event::Enqueue(new_item) => self.enqueue(new_item),
            Event::Dequeue => {
                let found = queue.dequeue().now_or_never().map(|item| item.map(id));
                let expected = match model.dequeue() {
                    None if !model.closed => None,
                    found => Some(found),
                };
                assert_eq!(found, expected);
            }
            Event::TryDequeue => {
                let nothing = match model.closed {
                    true => DequeueError::Closed,
                    false => DequeueError::Empty,
                };
                let expected = model.dequeue().ok_or(nothing);
                assert_eq!(queue.try_dequeue().map(id), expected);
            }
            Event::Batch(count, budget) => {
                let batch = queue.take_batch(count, budget);
                assert!(batch.iter().map(|&(_, cost)| cost).sum::<u64>() <= budget);
                let batch: Vec<_> = batch.into_iter().map(id).collect();
                assert_eq!(batch, model.take_batch(count, budget));
            }
            Event::Remove(_) if enqueued.is_empty() => {}
            Event::Remove(which) => {
                let id = which.index(enqueued.len());
                let handle = enqueued[id].as_mut().and_then(|(_, handle)| handle.take());
                match handle {
                    None => {}
                    Some(Handle::Id(request_id)) => {
                        let item = queue.remove(request_id).map(|item| item.0);
                        assert_eq!(item, model.remove(id).then_some(id));
                    }
                    Some(Handle::Token(token)) => {
                        token.cancel();
                        model.remove(id);
                    }
                    Some(Handle::Guard(guard)) => {
                        assert_eq!(guard.is_waiting(), model.contains(id));
                        drop(guard);
                        model.remove(id);
                    }
                }
            }
            Event::Clear => {
                let all: Vec<_> = queue.clear().into_iter().map(id).collect();
                assert_eq!(all, model.clear());
            }
            Event::Pass(seconds) => {
                advance(Duration::from_secs(seconds)).await;
                yield_now().await;
                model.pass(seconds);
                // Promotions happen when a consumer polls.
                let nonempty = queue.wait_nonempty().now_or_never();
                assert_eq!(
                    nonempty,
                    (model.len() > 0 || model.closed).then_some(model.len() > 0)
                );
            }
            Event::PassWithoutTimer(seconds) => {
                // The clock is advanced, but the timer is not polled.
                assert_eq!(advance(Duration::from_secs(seconds)).now_or_never(), None);
                model.pass_without_timer(seconds);
                return; // the next event meets expired items
            }
            Event::Reconfigure(config) => {
                queue.reconfigure(config.room());
                model.reconfigure(config.room());
            }
            Event::Drain => {
                queue.drain();
                model.drain();
            }
            Event::Close => {
                queue.close();
                model.close();
            }
        }
        self.compare();
    }

    fn enqueue(&mut self, new_item: NewItem) {
        let NewItem {
            priority,
            share,
            cost,
            timeout,
            age,
            ..
        } = new_item;
        let (id, tenant) = (self.enqueued.len(), TENANTS[new_item.tenant]);
        let mut ticket = Ticket::from(Priority(priority))
            .tenant(tenant.into())
            .cost(share);
        ticket.arrival = age.map(|age| now() - Duration::from_secs(age));
        if let Some(timeout) = timeout {
            let arrival = ticket.arrival.unwrap_or_else(now);
            ticket.deadline = Some(arrival + Duration::from_secs(timeout));
        }
        let token = CancellationToken::new();
        let enqueued = match new_item.cancel_by {
            CancelBy::Token => self
                .queue
                .enqueue_with_token((id, cost), ticket, token.clone()),
            _ => self.queue.enqueue((id, cost), ticket),
        };
        let arrival = Arrival {
            id,
            priority,
            tenant,
            age,
            timeout,
            share,
            cost,
        };
        let expected = self.model.enqueue(arrival);
        self.enqueued.push(match enqueued {
            Err(error) => {
                assert_eq!((error.item, Err(error.reason)), ((id, cost), expected));
                None
            }
            Ok(request_id) => {
                assert_eq!(expected, Ok(()));
                let handle = match new_item.cancel_by {
                    CancelBy::Id => Handle::Id(request_id),
                    CancelBy::Token => Handle::Token(token),
                    CancelBy::Guard => Handle::Guard(self.queue.guard(request_id)),
                };
                Some((request_id, Some(handle)))
            }
        });
    }

    fn compare(&mut self) {
        let Self {
            queue,
            rejected,
            model,
            enqueued,
        } = self;
        // Waits may have ended that the last event did not depend on.
        _ = queue.wait_nonempty().now_or_never();
        model.advance();
        let rejected = std::mem::take(&mut *rejected.lock().unwrap()).into_iter();
        let rejected: Vec<_> = rejected.map(|(item, why)| (item.0, why)).collect();
        assert_eq!(rejected, std::mem::take(&mut model.rejected));
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (model.len(), model.len() == 0)
        );
        assert_eq!(queue.is_closed(), model.closed);
        assert_eq!(queue.stats().cancelled, model.cancelled);
        let order = model.order();
        for (id, request_id) in enqueued.iter().enumerate() {
            let Some((request_id, _)) = *request_id else {
                continue;
            };
            assert_eq!(queue.contains(request_id), model.contains(id));
            let position = order.iter().position(|&other| other == id);
            assert_eq!(queue.position(request_id), position.map(|i| i + 1));
        }
    }

    /// Dequeues all items one by one.
    fn finish(mut self) {
        let rest = std::iter::from_fn(|| self.queue.try_dequeue().ok().map(id));
        let rest: Vec<_> = rest.collect();
        let expected: Vec<_> = std::iter::from_fn(|| self.model.dequeue()).collect();
        assert_eq!(rest, expected);
        self.compare();
    }
}

fn id(item: (Id, u64)) -> Id {
    item.0
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

fn run(start: &Config, on_oversize: OnOversize, events: Vec<Event>) {
    paused().block_on(async {
        let mut driver = Driver::new(start.room(), on_oversize);
        for event in events {
            driver.apply(event).await;
        }
        driver.finish();
    });
}

const ALL: &[Discipline] = &[Discipline::Fifo, Discipline::Deadline, Discipline::Fair];
const FAIR: &[Discipline] = &[Discipline::Fair];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_disciplines_agree_with_the_model(
        start in config_strategy(ALL),
        on_oversize in on_oversize(),
        events in events(ALL),
    ) {
        run(&start, on_oversize, events);
    }

    #[test]
    fn mostly_plain_tickets_agree_with_the_model(
        start in config_strategy(ALL),
        on_oversize in on_oversize(),
        events in plain_events(),
    ) {
        run(&start.plain(), on_oversize, events);
    }

    #[test]
    fn fair_queues_agree_with_the_model(
        start in config_strategy(FAIR),
        on_oversize in on_oversize(),
        events in events(FAIR),
    ) {
        run(&start, on_oversize, events);
    }
}
