//! A wait queue by itself, each step of it compared with a sorted list.

use std::hash::Hash;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_triage::Discipline::{Deadline, Fifo};
use tower_triage::admit::{TenantLimits, WaitQueue, WaiterId};
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

#[derive(Debug, Clone)]
enum Event {
    Push {
        priority: u8,
        lane: u8,
        ago: u64,
        within: Option<u64>,
        requeued: bool,
        wait: bool,
        tenant: bool,
        patient: bool,
    },
    SetTicket {
        which: Index,
        priority: u8,
        lane: u8,
        ago: u64,
        within: Option<u64>,
        tenant: bool,
        patient: bool,
    },
    Pop,
    Remove(Index),
    SkipAndPop(usize, usize),
    Pass(u64),
    Reconfigure(Setup),
}

#[derive(Debug, Clone)]
struct Setup {
    discipline: Discipline,
    max_size: usize,
    max_wait: Option<u64>,
    promote_after: Option<u64>,
    per_tenant: Option<usize>,
    /// The number of items of tenant `t` that may wait.
    of_t: Option<usize>,
    displace: bool,
}

impl Setup {
    fn config(&self) -> WaitingRoomConfig {
        let mut config = WaitingRoomConfig::default();
        config.levels = PriorityLevels::new(["a", "b", "c"], "c").unwrap();
        config.discipline = self.discipline;
        config.max_size = self.max_size;
        config.max_wait = self.max_wait.map(Duration::from_secs);
        config.promote_after = self.promote_after.map(Duration::from_secs);
        config.max_size_per_tenant = self.per_tenant;
        config.displace = self.displace;
        match self.of_t {
            Some(most) => config.tenant_limits("t", TenantLimits::default().max_size(most)),
            None => config,
        }
    }

    /// Returns the number of items of a tenant that may wait, if that is bounded. It is tenant `t`, or that without a
    /// name.
    fn most_of(&self, is_t: bool) -> Option<usize> {
        self.of_t.filter(|_| is_t).or(self.per_tenant)
    }
}

fn setup() -> impl Strategy<Value = Setup> {
    (
        prop::sample::select(vec![Fifo, Deadline]),
        0usize..90,
        prop::option::of(0u64..200),
        prop::option::of(1u64..40),
        prop::option::weighted(0.2, 1usize..40),
        prop::option::weighted(0.2, 0usize..20),
        any::<bool>(),
    )
        .prop_map(
            |(discipline, max_size, max_wait, promote_after, per_tenant, of_t, displace)| Setup {
                discipline,
                max_size,
                max_wait,
                promote_after,
                per_tenant,
                of_t,
                displace,
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    let push = (
        0u8..3,
        0u8..3,
        prop_oneof![6 => Just(0u64), 1 => 0u64..60],
        prop::option::weighted(0.3, 0u64..150),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.95),
        any::<bool>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(priority, lane, ago, within, requeued, wait, tenant, patient)| Event::Push {
                priority,
                lane,
                ago,
                within,
                requeued,
                wait,
                tenant,
                patient,
            },
        );
    let change = (
        any::<Index>(),
        0u8..3,
        0u8..3,
        0u64..60,
        prop::option::weighted(0.3, 0u64..150),
        any::<bool>(),
        prop::bool::weighted(0.3),
    )
        .prop_map(
            |(which, priority, lane, ago, within, tenant, patient)| Event::SetTicket {
                which,
                priority,
                lane,
                ago,
                within,
                tenant,
                patient,
            },
        );
    prop_oneof![
        30 => push,
        6 => Just(Event::Pop),
        6 => change,
        14 => any::<Index>().prop_map(Event::Remove),
        3 => (0usize..60, 0usize..3).prop_map(|(skip, pop)| Event::SkipAndPop(skip, pop)),
        3 => (0u64..12).prop_map(Event::Pass),
        1 => setup().prop_map(Event::Reconfigure),
    ]
}

#[derive(Debug, Clone)]
struct Item {
    n: u32,
    id: Option<WaiterId>,
    priority: u8,
    level: u8,
    arrival: u64,
    since: u64,
    deadline: u64,
    tenant: bool,
    patient: bool,
}

struct Model {
    setup: Setup,
    now: u64,
    latest: u64,
    items: Vec<Item>,
    next: u32,
}

const NEVER: u64 = u64::MAX;

impl Model {
    fn end(&self, item: &Item) -> u64 {
        let max_wait = self.setup.max_wait.filter(|_| !item.patient);
        let wait = max_wait.unwrap_or(NEVER);
        item.arrival.saturating_add(wait).min(item.deadline)
    }

    fn key(&self, item: &Item) -> (u8, u64, u64, u32) {
        let end = match self.setup.discipline {
            Deadline => self.end(item),
            _ => 0,
        };
        (item.level, end, item.since, item.n)
    }

    fn level(&self, item: &Item) -> u8 {
        let ups = self
            .setup
            .promote_after
            .map_or(0, |every| (self.now - item.arrival) / every);
        item.priority.saturating_sub(ups.min(9) as u8)
    }

    fn update(&mut self) -> Vec<(u32, &'static str)> {
        let mut gone: Vec<(u64, u32, &'static str)> = Vec::new();
        for item in &self.items {
            let end = self.end(item);
            if end <= self.now {
                let why = if item.deadline == end {
                    "deadline"
                } else {
                    "time"
                };
                gone.push((end, item.n, why));
            }
        }
        gone.sort_unstable();
        self.items.retain(|i| gone.iter().all(|g| g.1 != i.n));
        for i in 0..self.items.len() {
            self.items[i].level = self.level(&self.items[i]);
        }
        gone.into_iter().map(|(_, n, why)| (n, why)).collect()
    }

    fn order(&self) -> Vec<u32> {
        let mut all: Vec<_> = self.items.iter().map(|i| (self.key(i), i.n)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, n)| n).collect()
    }

    /// Those that take a place.
    fn placed(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| !item.patient)
    }

    fn lowest(&self) -> Option<&Item> {
        self.placed().max_by_key(|i| (i.level, i.since, i.n))
    }

    fn take(&mut self, n: u32) -> Item {
        let at = self.items.iter().position(|i| i.n == n).unwrap();
        self.items.remove(at)
    }
}

fn name(why: &RejectReason) -> &'static str {
    match why {
        RejectReason::DeadlinePassed => "deadline",
        RejectReason::TimedOut => "time",
        RejectReason::Full => "full",
        RejectReason::Disabled => "disabled",
        RejectReason::TenantFull => "tenant",
        RejectReason::NotQueued => "not queued",
        _ => "other",
    }
}

/// `lane_of`: the lanes among which events choose.
fn run<L: Copy + Eq + Hash>(setup: Setup, events: Vec<Event>, lane_of: impl Fn(u8) -> L) {
    let begin = Instant::now();
    let at = |t: u64| begin + Duration::from_secs(t);
    let mut queue: WaitQueue<L, u32> = WaitQueue::new(setup.config(), begin);
    let mut model = Model {
        setup,
        now: 1000,
        latest: 0,
        items: Vec::new(),
        next: 0,
    };
    for event in events {
        let now = at(model.now);
        let gone = model.update();
        let mut told = Vec::new();
        while let Some((id, why)) = queue.advance(now) {
            told.push((queue.take(id), name(&why)));
        }
        assert_eq!(told, gone);
        match event.clone() {
            Event::Push {
                priority,
                lane,
                ago,
                within,
                requeued,
                wait,
                tenant,
                patient,
            } => {
                let arrival = model.now - ago;
                let mut ticket = Ticket::new(Priority(priority), at(arrival));
                ticket.requeued = requeued;
                (ticket.wait, ticket.patient) = (wait, patient);
                ticket.deadline = within.map(|w| at(arrival + w));
                if tenant {
                    ticket.tenant = "t".into();
                }
                let n = model.next;
                model.next += 1;
                let mut item = Item {
                    n,
                    id: None,
                    priority,
                    level: priority,
                    arrival,
                    since: if requeued {
                        arrival
                    } else {
                        model.latest.max(arrival)
                    },
                    deadline: within.map_or(NEVER, |w| arrival + w),
                    tenant,
                    patient,
                };
                item.level = model.level(&item);
                let end = model.end(&item);
                let same = model.placed().filter(|i| i.tenant == tenant).count();
                let mut displaced = None;
                let why = if model.setup.max_size == 0 && !patient {
                    Some("disabled")
                } else if !wait {
                    Some("not queued")
                } else if end <= model.now {
                    Some(if item.deadline == end {
                        "deadline"
                    } else {
                        "time"
                    })
                } else if patient {
                    None
                } else if model.setup.most_of(tenant).is_some_and(|max| same >= max) {
                    Some("tenant")
                } else if model.placed().count() < model.setup.max_size {
                    None
                } else {
                    match model.lowest() {
                        Some(low) if model.setup.displace && low.level > item.level => {
                            displaced = Some(low.n);
                            None
                        }
                        _ => Some("full"),
                    }
                };
                match queue.push(ticket, lane_of(lane), now, |_| n) {
                    Err(refused) => assert_eq!(Some(name(&refused)), why, "{event:?}"),
                    Ok(pushed) => {
                        assert_eq!(why, None);
                        assert_eq!(pushed.displaced.map(|id| queue.take(id)), displaced);
                        if let Some(n) = displaced {
                            model.take(n);
                        }
                        item.id = Some(pushed.id);
                        if !requeued {
                            model.latest = item.since;
                        }
                        model.items.push(item);
                    }
                }
            }
            Event::SetTicket {
                which,
                priority,
                lane,
                ago,
                within,
                tenant,
                patient,
            } if !model.items.is_empty() => {
                let nth = which.index(model.items.len());
                let arrival = model.now - ago;
                let mut ticket = Ticket::new(Priority(priority), at(arrival));
                ticket.deadline = within.map(|w| at(arrival + w));
                ticket.patient = patient;
                if tenant {
                    ticket.tenant = "t".into();
                }
                let mut item = model.items[nth].clone();
                (item.priority, item.tenant, item.patient) = (priority, tenant, patient);
                (item.arrival, item.since) = (arrival, arrival);
                item.deadline = within.map_or(NEVER, |w| arrival + w);
                item.level = model.level(&item);
                assert!(queue.set_ticket(item.id.unwrap(), ticket, lane_of(lane), now));
                assert_eq!(queue.len(), model.items.len());
                model.items[nth] = item;
                // Its wait may be over.
                let mut told = Vec::new();
                while let Some((id, why)) = queue.advance(now) {
                    told.push((queue.take(id), name(&why)));
                }
                assert_eq!(told, model.update());
            }
            Event::SetTicket { .. } => {}
            Event::Pop => {
                let next = queue.peek();
                assert_eq!(
                    next.map(|id| *queue.get(id)),
                    model.order().first().copied()
                );
                if let Some(n) = next.map(|id| queue.pop(id).unwrap()) {
                    model.take(n);
                }
            }
            Event::Remove(which) if !model.items.is_empty() => {
                let at = which.index(model.items.len());
                let item = model.items.remove(at);
                assert_eq!(queue.remove(item.id.unwrap()), Some(item.n));
                assert_eq!(queue.remove(item.id.unwrap()), None);
            }
            Event::Remove(_) => {}
            Event::SkipAndPop(skip, pop) => {
                let order = model.order();
                let mut skipped = Vec::new();
                for &n in order.iter().take(skip) {
                    let next = queue.peek().unwrap();
                    assert_eq!(*queue.get(next), n);
                    skipped.push(queue.skip(next));
                }
                for &n in order.iter().skip(skip).take(pop) {
                    let next = queue.peek().unwrap();
                    assert_eq!(queue.pop(next), Some(n));
                    model.take(n);
                }
                // In any order.
                if pop % 2 == 1 {
                    skipped.reverse();
                }
                for skipped in skipped {
                    queue.restore(skipped);
                }
            }
            Event::Pass(seconds) => model.now += seconds,
            Event::Reconfigure(setup) => {
                model.setup = setup;
                let mut expected = model.update();
                let mut all = model.items.clone();
                all.sort_by_key(|i| std::cmp::Reverse((i.level, i.since, i.n)));
                for item in all {
                    let same = model.placed().filter(|i| i.tenant == item.tenant);
                    let most = model.setup.most_of(item.tenant);
                    if most.is_some_and(|most| same.count() > most) && !item.patient {
                        model.take(item.n);
                        expected.push((item.n, "tenant"));
                    }
                }
                while model.placed().count() > model.setup.max_size {
                    let n = model.lowest().unwrap().n;
                    model.take(n);
                    let why = if model.setup.max_size == 0 {
                        "disabled"
                    } else {
                        "full"
                    };
                    expected.push((n, why));
                }
                let ended = queue.reconfigure(model.setup.config(), now);
                let ended: Vec<_> = ended
                    .into_iter()
                    .map(|(id, why)| (queue.take(id), name(&why)))
                    .collect();
                assert_eq!(ended, expected);
            }
        }
        assert_eq!(queue.len(), model.items.len());
        if !matches!(event, Event::Pass(_)) {
            let order: Vec<u32> = queue.in_order().iter().map(|&id| *queue.get(id)).collect();
            assert_eq!(order, model.order(), "after {event:?}");
            let end = model.items.iter().map(|i| model.end(i)).min();
            let end = end.filter(|&end| end < NEVER);
            assert_eq!(queue.next_timeout(), end.map(at));
            let oldest = model.items.iter().min_by_key(|i| (i.since, i.n));
            assert_eq!(queue.oldest(), oldest.map(|i| at(i.arrival)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_wait_queue_is_in_the_order_of_a_sorted_list(
        setup in setup(),
        events in prop::collection::vec(event(), 1..400),
    ) {
        run(setup, events, |lane| lane);
    }

    #[test]
    fn a_queue_of_one_lane_is_in_the_order_of_a_sorted_list(
        setup in setup(),
        events in prop::collection::vec(event(), 1..400),
    ) {
        run(setup, events, |_| ());
    }
}
