//! Where nothing counts but who came first, a ticket that says nothing special may take a shorter way in and out
//! than one that does. Nobody can tell which it was.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::runtime::Builder;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::advance;
use tokio_util::sync::CancellationToken;
use tower_triage::batch::{OnOversize, RequestId, RequestQueue};
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

use super::support::{Told, drained, now, queue, room, telling, ticket};

type Item = (usize, u64);
/// By which consumer, and who.
type Consumed = Arc<Mutex<Vec<(usize, Option<Item>)>>>;

const BUDGET: u64 = 12;

#[derive(Debug, Clone)]
enum Event {
    Enqueue(Newcomer),
    Dequeue,
    TryDequeue,
    Batch(usize, u64),
    Remove(Index),
    Cancel(Index),
    Clear,
    Pass(u64),
    /// Time passes, and no timer has run when the next event comes.
    PassAtOnce(u64),
    /// Somebody waits for whoever comes.
    Consume,
    /// The last who waits so no longer does.
    GiveUp,
    Reconfigure(WaitingRoomConfig),
    Drain,
    Close,
}

#[derive(Debug, Clone)]
struct Newcomer {
    level: u8,
    cost: u64,
    has_token: bool,
    /// Whether its ticket says nothing of its arrival.
    is_undated: bool,
    terms: Terms,
}

/// What a ticket says that is not plain.
#[derive(Debug, Clone, Default)]
struct Terms {
    tenant: &'static str,
    late: u64,
    early: u64,
    timeout: Option<u64>,
    returning: bool,
    no_wait: bool,
}

impl Newcomer {
    fn ticket(&self, share: u32) -> Ticket {
        let Terms {
            tenant,
            late,
            early,
            ..
        } = self.terms;
        let arrival = now() - Duration::from_secs(late) + Duration::from_secs(early);
        let mut ticket = Ticket::new(Priority(self.level), arrival)
            .tenant(tenant.into())
            .cost(share);
        if let Some(timeout) = self.terms.timeout {
            ticket = ticket.timeout(Duration::from_secs(timeout));
        }
        if self.is_undated {
            ticket.arrival = None;
        }
        ticket.requeued = self.terms.returning;
        ticket.wait = !self.terms.no_wait;
        ticket
    }
}

fn newcomer() -> impl Strategy<Value = Newcomer> {
    let plain = Terms::default;
    let terms = prop_oneof![
        6 => Just(plain()),
        1 => Just(Terms { tenant: "a", ..plain() }),
        1 => (1u64..8).prop_map(move |late| Terms { late, ..plain() }),
        1 => (1u64..8).prop_map(move |early| Terms { early, ..plain() }),
        1 => (0u64..15).prop_map(move |timeout| Terms { timeout: Some(timeout), ..plain() }),
        1 => (0u64..8).prop_map(move |late| Terms { late, returning: true, ..plain() }),
        1 => Just(Terms { no_wait: true, ..plain() }),
    ];
    let flags = (prop::bool::weighted(0.3), any::<bool>());
    (0u8..4, 0..BUDGET + 2, flags, terms).prop_map(
        |(level, cost, (has_token, is_undated), terms)| Newcomer {
            level,
            cost,
            has_token,
            is_undated,
            terms,
        },
    )
}

/// Most ask for nothing that speaks against the shorter way.
fn furniture() -> impl Strategy<Value = WaitingRoomConfig> {
    let max_size = prop_oneof![1 => 0usize..4, 4 => 4usize..40];
    let max_wait = prop::option::of(1u64..20);
    let special = (
        prop::sample::select(vec![Discipline::Fifo, Discipline::Deadline]),
        prop::option::weighted(0.3, 1usize..6),
        prop::option::weighted(0.3, 1u64..12),
        any::<bool>(),
    );
    let special = prop_oneof![2 => Just((Discipline::Fifo, None, None, false)), 1 => special];
    (max_size, max_wait, special).prop_map(|(max_size, max_wait, special)| {
        let (discipline, max_size_per_tenant, promote_after, displace) = special;
        room(|room| {
            (room.max_size, room.max_size_per_tenant) = (max_size, max_size_per_tenant);
            (room.discipline, room.displace) = (discipline, displace);
            room.max_wait = max_wait.map(Duration::from_secs);
            room.promote_after = promote_after.map(Duration::from_secs);
            room.levels = PriorityLevels::new(["high", "normal", "low"], "low").unwrap();
        })
    })
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        60 => newcomer().prop_map(Event::Enqueue),
        8 => Just(Event::Dequeue),
        30 => Just(Event::TryDequeue),
        8 => (0usize..6, 0..BUDGET + 2).prop_map(|(count, budget)| Event::Batch(count, budget)),
        8 => any::<Index>().prop_map(Event::Remove),
        8 => any::<Index>().prop_map(Event::Cancel),
        1 => Just(Event::Clear),
        8 => (1u64..5).prop_map(Event::Pass),
        8 => (1u64..5).prop_map(Event::PassAtOnce),
        3 => Just(Event::Consume),
        3 => Just(Event::GiveUp),
        3 => furniture().prop_map(Event::Reconfigure),
        1 => prop_oneof![3 => Just(Event::Drain), 1 => Just(Event::Close)],
    ];
    prop::collection::vec(event, 1..120)
}

/// A queue, all of whose tickets say that they cost as much.
struct Way {
    share: u32,
    queue: RequestQueue<Item>,
    told: Told<Item>,
    came: Vec<Option<(RequestId, CancellationToken)>>,
    consumers: Vec<AbortHandle>,
    consumed: Consumed,
}

impl Way {
    fn new(share: u32, room: WaitingRoomConfig, on_oversize: OnOversize) -> Self {
        let told = Told::default();
        let queue = RequestQueue::builder(room)
            .cost(BUDGET, |&(_, cost): &Item| cost)
            .on_oversize(on_oversize)
            .on_rejected({
                let told = told.clone();
                move |item, why| told.lock().unwrap().push((item, why))
            });
        Self {
            share,
            queue: queue.build(),
            told,
            came: Vec::new(),
            consumers: Vec::new(),
            consumed: Arc::default(),
        }
    }

    /// What is seen of it.
    fn apply(&mut self, event: Event) -> String {
        let queue = &self.queue;
        match event {
            Event::Enqueue(newcomer) => self.enqueue(&newcomer),
            Event::Dequeue => format!("{:?}", queue.dequeue().now_or_never()),
            Event::TryDequeue => format!("{:?}", queue.try_dequeue()),
            Event::Batch(count, budget) => format!("{:?}", queue.take_batch(count, budget)),
            Event::Remove(which) => {
                let name = self.pick(which).map(|(name, _)| *name);
                format!("{:?}", name.map(|name| queue.remove(name)))
            }
            Event::Cancel(which) => {
                self.pick(which)
                    .iter()
                    .for_each(|(_, token)| token.cancel());
                String::new()
            }
            Event::Clear => format!("{:?}", queue.clear()),
            Event::Consume => self.consume(),
            Event::GiveUp => {
                self.consumers.pop().iter().for_each(AbortHandle::abort);
                String::new()
            }
            Event::Reconfigure(room) => {
                queue.reconfigure(room);
                String::new()
            }
            Event::Drain => {
                queue.drain();
                String::new()
            }
            Event::Close => {
                queue.close();
                String::new()
            }
            Event::Pass(_) | Event::PassAtOnce(_) => String::new(),
        }
    }

    fn enqueue(&mut self, newcomer: &Newcomer) -> String {
        let (item, ticket) = (
            (self.came.len(), newcomer.cost),
            newcomer.ticket(self.share),
        );
        let token = CancellationToken::new();
        let name = match newcomer.has_token {
            true => self.queue.enqueue_with_token(item, ticket, token.clone()),
            false => self.queue.enqueue(item, ticket),
        };
        let seen = format!("{:?}", name.as_ref().map(|_| ()));
        self.came.push(name.ok().map(|name| (name, token)));
        seen
    }

    fn pick(&self, which: Index) -> Option<&(RequestId, CancellationToken)> {
        self.came.get(which.index(self.came.len().max(1)))?.as_ref()
    }

    fn consume(&mut self) -> String {
        let (queue, consumed) = (self.queue.clone(), self.consumed.clone());
        let number = self.consumers.len();
        let consumer = tokio::spawn(async move {
            let item = queue.dequeue().await;
            consumed.lock().unwrap().push((number, item));
        });
        self.consumers.push(consumer.abort_handle());
        String::new()
    }

    /// All that can be asked.
    fn look(&self) -> String {
        let Self {
            queue,
            told,
            consumed,
            ..
        } = self;
        let stands = |came: &Option<(RequestId, _)>| {
            came.as_ref()
                .map(|(name, _)| (queue.contains(*name), queue.position(*name)))
        };
        let stand: Vec<_> = self.came.iter().map(stands).collect();
        let (told, consumed) = (told.lock().unwrap(), consumed.lock().unwrap());
        let (len, counts) = (queue.len(), queue.stats());
        format!(
            "{len} {} {counts:?} {told:?} {consumed:?} {stand:?}",
            queue.is_closed()
        )
    }
}

/// Consumers and timers get their turns.
async fn others_run() {
    for _ in 0..4 {
        yield_now().await;
    }
}

async fn run(room: WaitingRoomConfig, on_oversize: OnOversize, events: Vec<Event>) {
    let mut ways = [1, 2].map(|share| Way::new(share, room.clone(), on_oversize));
    for event in events {
        match event {
            Event::Pass(seconds) => advance(Duration::from_secs(seconds)).await,
            // Nobody else runs before its second poll.
            Event::PassAtOnce(seconds) => {
                assert_eq!(advance(Duration::from_secs(seconds)).now_or_never(), None);
                continue;
            }
            _ => {}
        }
        let [short, long] = ways.each_mut().map(|way| way.apply(event.clone()));
        assert_eq!(short, long, "{event:?}");
        let [short, long] = ways
            .each_ref()
            .map(|way| (way.queue.len(), way.queue.stats()));
        assert_eq!(short, long, "at {event:?}");
        others_run().await;
        let [short, long] = ways.each_ref().map(Way::look);
        assert_eq!(short, long, "after {event:?}");
    }
    let [short, long] = ways.each_ref().map(|way| way.queue.clear());
    assert_eq!(short, long);
}

#[tokio::test(start_paused = true)]
async fn who_waits_beside_one_from_the_future_is_told_in_time() {
    let max_wait = Some(Duration::from_secs(10));
    let (queue, told) = telling(room(|room| room.max_wait = max_wait));
    let mut from_the_future = ticket(1);
    from_the_future.arrival = Some(now() + Duration::from_secs(5));
    queue.enqueue("from the future", from_the_future).unwrap();
    others_run().await;
    queue.enqueue("from now", ticket(1)).unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let late = |item| (item, RejectReason::TimedOut);
    assert_eq!(
        *told.lock().unwrap(),
        [late("from the future"), late("from now")]
    );
}

#[test]
fn who_comes_inside_a_runtime_starts_the_timer_for_those_who_came_outside() {
    let max_wait = Some(Duration::from_secs(10));
    let (queue, told) = telling(room(|room| room.max_wait = max_wait));
    queue.enqueue("outside", ticket(1)).unwrap();
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        queue.enqueue("inside", ticket(1)).unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
    });
    let told: Vec<_> = told.lock().unwrap().iter().map(|(who, _)| *who).collect();
    assert_eq!(told, ["outside", "inside"]);
}

#[test]
fn who_came_back_goes_first_though_all_of_its_level_whom_it_joined_have_left() {
    let queue = queue();
    let came = ticket(0);
    let joined = queue.enqueue("joined", ticket(0)).unwrap();
    queue.enqueue("back", came.requeued()).unwrap();
    queue.enqueue("low", ticket(1)).unwrap();
    assert_eq!(queue.remove(joined), Some("joined"));
    assert_eq!(drained(&queue), ["back", "low"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 2,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_can_tell_by_which_way_others_came(
        room in furniture(),
        on_oversize in prop_oneof![Just(OnOversize::Stop), (0u32..5).prop_map(|times| OnOversize::Backfill { max_overtakes: times })],
        events in events(),
    ) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(room, on_oversize, events));
    }
}
