//! Random runs, each step of them compared with the model.

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
use super::support::{Told, now, room};

const TENANTS: [&str; 4] = ["", "a", "b", "c"];
const BUDGET: u64 = 12;

#[derive(Debug, Clone)]
enum Event {
    Enqueue(Newcomer),
    Dequeue,
    TryDequeue,
    Batch(usize, u64),
    /// One of those who came leaves, by its own means.
    Leave(Index),
    Clear,
    Pass(u64),
    Reconfigure(Furniture),
    Drain,
    Close,
}

#[derive(Debug, Clone)]
struct Newcomer {
    priority: u8,
    tenant: usize,
    /// How long ago its ticket says that it arrived, if it does.
    late: Option<u64>,
    patience: Option<u64>,
    share: u32,
    cost: u64,
    means: Means,
}

#[derive(Debug, Clone, Copy)]
enum Means {
    Removed,
    Cancelled,
    Guarded,
}

#[derive(Debug, Clone)]
struct Furniture {
    discipline: Discipline,
    max_size: usize,
    max_size_per_tenant: Option<usize>,
    max_wait: Option<u64>,
    promote_after: Option<u64>,
    displace: bool,
    weight: u32,
}

impl Furniture {
    fn room(&self) -> WaitingRoomConfig {
        room(|room| {
            room.discipline = self.discipline;
            (room.max_size, room.max_size_per_tenant) = (self.max_size, self.max_size_per_tenant);
            room.max_wait = self.max_wait.map(Duration::from_secs);
            room.promote_after = self.promote_after.map(Duration::from_secs);
            room.displace = self.displace;
            room.levels = PriorityLevels::new(["high", "normal", "low"], "low").unwrap();
            room.weights.insert("a".into(), self.weight);
        })
    }
}

fn furniture(disciplines: &'static [Discipline]) -> impl Strategy<Value = Furniture> + Clone {
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
                Furniture {
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
        .prop_flat_map(move |furniture| {
            // No more is asked than how many wait, and for how long.
            let plain = Furniture {
                discipline: disciplines[0],
                max_size_per_tenant: None,
                promote_after: None,
                displace: false,
                ..furniture.clone()
            };
            prop::sample::select(vec![plain, furniture])
        })
}

/// Half of those who come say no more than how urgent they are.
fn newcomer() -> impl Strategy<Value = Newcomer> {
    (any_newcomer(), any::<bool>()).prop_map(|(newcomer, is_plain)| match is_plain {
        true => Newcomer {
            tenant: 0,
            late: newcomer.late.and(Some(0)),
            patience: None,
            share: 1,
            ..newcomer
        },
        false => newcomer,
    })
}

fn any_newcomer() -> impl Strategy<Value = Newcomer> {
    (
        0u8..4,
        0..TENANTS.len(),
        prop_oneof![5 => Just(None), 5 => Just(Some(0)), 1 => (1u64..8).prop_map(Some)],
        prop::option::weighted(0.2, 0u64..15),
        0u32..4,
        0..BUDGET + 2,
        prop::sample::select(vec![Means::Removed, Means::Cancelled, Means::Guarded]),
    )
        .prop_map(
            |(priority, tenant, late, patience, share, cost, means)| Newcomer {
                priority,
                tenant,
                late,
                patience,
                share,
                cost,
                means,
            },
        )
}

fn events(disciplines: &'static [Discipline]) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        60 => newcomer().prop_map(Event::Enqueue),
        5 => Just(Event::Dequeue),
        5 => Just(Event::TryDequeue),
        30 => (0usize..6, 0..BUDGET + 2).prop_map(|(count, budget)| Event::Batch(count, budget)),
        15 => any::<Index>().prop_map(Event::Leave),
        1 => Just(Event::Clear),
        15 => (1u64..5).prop_map(Event::Pass),
        6 => furniture(disciplines).prop_map(Event::Reconfigure),
        1 => prop_oneof![3 => Just(Event::Drain), 1 => Just(Event::Close)],
    ];
    prop::collection::vec(event, 1..150)
}

impl Furniture {
    /// One that asks for nothing special, so that there is a short way in and out.
    fn plainly(self) -> Self {
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
    /// The same, with nothing special about it.
    fn plainly(self) -> Self {
        match self {
            Self::Enqueue(newcomer) => Self::Enqueue(Newcomer {
                tenant: 0,
                late: newcomer.late.and(Some(0)),
                patience: None,
                share: 1,
                ..newcomer
            }),
            Self::Batch(..) => Self::TryDequeue,
            Self::Reconfigure(new) => Self::Reconfigure(new.plainly()),
            other => other,
        }
    }
}

/// Events of which few have anything special about them.
fn plain_events() -> impl Strategy<Value = Vec<Event>> {
    let is_plain = prop::collection::vec(prop::bool::weighted(0.9), 150);
    (events(ALL), is_plain).prop_map(|(events, is_plain)| {
        let all = events.into_iter().zip(is_plain);
        all.map(|(event, is_plain)| if is_plain { event.plainly() } else { event })
            .collect()
    })
}

fn on_oversize() -> impl Strategy<Value = OnOversize> {
    prop_oneof![
        1 => Just(OnOversize::Stop),
        4 => (0u32..5).prop_map(|times| OnOversize::Backfill { max_overtakes: times }),
    ]
}

/// What its caller holds of one who came.
enum Hold {
    Id(RequestId),
    Token(CancellationToken),
    Guard(RequestGuard<(Id, u64)>),
}

struct Driver {
    queue: RequestQueue<(Id, u64)>,
    told: Told<(Id, u64)>,
    model: Model,
    came: Vec<Option<(RequestId, Option<Hold>)>>,
}

impl Driver {
    fn new(room: WaitingRoomConfig, on_oversize: OnOversize) -> Self {
        let told = Told::default();
        let queue = RequestQueue::builder(room.clone())
            .cost(BUDGET, |&(_, cost): &(Id, u64)| cost)
            .on_oversize(on_oversize)
            .on_rejected({
                let told = told.clone();
                move |item, why| told.lock().unwrap().push((item, why))
            })
            .build();
        Self {
            queue,
            told,
            model: Model::new(room, BUDGET, on_oversize),
            came: Vec::new(),
        }
    }

    async fn apply(&mut self, event: Event) {
        let Self {
            queue, model, came, ..
        } = self;
        match event {
            Event::Enqueue(newcomer) => self.enqueue(newcomer),
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
            Event::Leave(_) if came.is_empty() => {}
            Event::Leave(which) => {
                let id = which.index(came.len());
                let hold = came[id].as_mut().and_then(|(_, hold)| hold.take());
                match hold {
                    None => {}
                    Some(Hold::Id(name)) => {
                        let item = queue.remove(name).map(|item| item.0);
                        assert_eq!(item, model.remove(id).then_some(id));
                    }
                    Some(Hold::Token(token)) => {
                        token.cancel();
                        model.remove(id);
                    }
                    Some(Hold::Guard(guard)) => {
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
                model.time_passes(seconds);
                // Who rises does so when somebody comes to look.
                let occupied = queue.wait_nonempty().now_or_never();
                assert_eq!(
                    occupied,
                    (model.len() > 0 || model.closed).then_some(model.len() > 0)
                );
            }
            Event::Reconfigure(furniture) => {
                queue.reconfigure(furniture.room());
                model.reconfigure(furniture.room());
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

    fn enqueue(&mut self, newcomer: Newcomer) {
        let Newcomer {
            priority,
            share,
            cost,
            patience,
            late,
            ..
        } = newcomer;
        let (id, tenant) = (self.came.len(), TENANTS[newcomer.tenant]);
        let mut ticket = Ticket::from(Priority(priority))
            .tenant(tenant.into())
            .cost(share);
        ticket.arrival = late.map(|late| now() - Duration::from_secs(late));
        if let Some(patience) = patience {
            let arrival = ticket.arrival.unwrap_or_else(now);
            ticket.deadline = Some(arrival + Duration::from_secs(patience));
        }
        let token = CancellationToken::new();
        let enqueued = match newcomer.means {
            Means::Cancelled => self
                .queue
                .enqueue_with_token((id, cost), ticket, token.clone()),
            _ => self.queue.enqueue((id, cost), ticket),
        };
        let who = Arrival {
            id,
            priority,
            tenant,
            late,
            patience,
            share,
            cost,
        };
        let expected = self.model.enqueue(who);
        self.came.push(match enqueued {
            Err(refused) => {
                assert_eq!((refused.item, Err(refused.why)), ((id, cost), expected));
                None
            }
            Ok(name) => {
                assert_eq!(expected, Ok(()));
                let hold = match newcomer.means {
                    Means::Removed => Hold::Id(name),
                    Means::Cancelled => Hold::Token(token),
                    Means::Guarded => Hold::Guard(self.queue.guard(name)),
                };
                Some((name, Some(hold)))
            }
        });
    }

    fn compare(&mut self) {
        let Self {
            queue,
            told,
            model,
            came,
        } = self;
        let told = std::mem::take(&mut *told.lock().unwrap()).into_iter();
        let told: Vec<_> = told.map(|(item, why)| (item.0, why)).collect();
        assert_eq!(told, std::mem::take(&mut model.told));
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (model.len(), model.len() == 0)
        );
        assert_eq!(queue.is_closed(), model.closed);
        assert_eq!(queue.stats().cancelled, model.cancelled);
        let order = model.order();
        for (id, name) in came.iter().enumerate() {
            let Some((name, _)) = *name else { continue };
            assert_eq!(queue.contains(name), model.contains(id));
            let position = order.iter().position(|&other| other == id);
            assert_eq!(queue.position(name), position.map(|i| i + 1));
        }
    }

    /// Everyone is taken, one by one.
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

fn run(furniture: &Furniture, on_oversize: OnOversize, events: Vec<Event>) {
    paused().block_on(async {
        let mut driver = Driver::new(furniture.room(), on_oversize);
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
    fn everyone_is_taken_as_the_model_says(
        start in furniture(ALL),
        on_oversize in on_oversize(),
        events in events(ALL),
    ) {
        run(&start, on_oversize, events);
    }

    #[test]
    fn by_the_short_way_and_the_long_everyone_is_taken_as_the_model_says(
        start in furniture(ALL),
        on_oversize in on_oversize(),
        events in plain_events(),
    ) {
        run(&start.plainly(), on_oversize, events);
    }

    #[test]
    fn tenants_are_taken_in_turn_as_the_model_says(
        start in furniture(FAIR),
        on_oversize in on_oversize(),
        events in events(FAIR),
    ) {
        run(&start, on_oversize, events);
    }
}
