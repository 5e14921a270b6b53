//! Fair shares of service that is known only once it was given: `Permit::charge`, and the time for which slots are held.
//!
//! The clock is paused, because time with a slot is charged, too.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tokio::runtime::Runtime;
use tokio::time::advance;
use tower_triage::admit::TargetWait;
use tower_triage::gate::{Acquire, Permit};
use tower_triage::{Discipline, Gate, Priority, SlotPool, Ticket, WaitingRoomConfig};

/// A gate, the requests that wait in front of it, and those that have a slot. A request has a tenant and a number.
struct Queue {
    gate: Gate<SlotPool>,
    waiting: Vec<(Name, Pin<Box<Acquire<SlotPool>>>)>,
    running: VecDeque<(Name, Permit<SlotPool>)>,
}

type Name = (&'static str, u32);

/// A runtime whose clock stands still.
fn paused() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap()
}

fn config() -> WaitingRoomConfig {
    WaitingRoomConfig::default()
        .max_size(1_000)
        .discipline(Discipline::Fair)
        .target_wait(TargetWait::Off)
}

impl Queue {
    fn new(slots: usize, config: WaitingRoomConfig) -> Self {
        Self {
            gate: Gate::new(SlotPool::new(slots), config),
            waiting: Vec::new(),
            running: VecDeque::new(),
        }
    }

    fn arrive(&mut self, name: Name, cost: u32) {
        let ticket = Ticket::from(Priority::HIGHEST)
            .tenant(name.0.into())
            .cost(cost);
        let acquire = Box::pin(self.gate.acquire(ticket, ()));
        self.waiting.push((name, acquire));
        self.poll();
    }

    /// Polls the requests that wait, and returns those that have a slot now.
    fn poll(&mut self) -> Vec<Name> {
        let mut served = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        self.waiting.retain_mut(|(name, acquire)| {
            let Poll::Ready(answer) = acquire.as_mut().poll(&mut cx) else {
                return true;
            };
            self.running.push_back((*name, answer.unwrap()));
            served.push(*name);
            false
        });
        served
    }

    /// Ends a running request, which is charged, and returns those that have a slot now.
    fn end(&mut self, nth: usize, charge: u32) -> Vec<Name> {
        let (_, permit) = self.running.remove(nth).unwrap();
        permit.charge(charge);
        drop(permit);
        self.poll()
    }

    /// Ends the only running request, and all that follow, and returns those in order.
    fn served(&mut self) -> Vec<&'static str> {
        let mut served = Vec::new();
        while !self.running.is_empty() {
            served.extend(self.end(0, 0).into_iter().map(|(tenant, _)| tenant));
        }
        served
    }

    /// Ends the only running request after a second, and all that follow, and returns those in order.
    async fn served_by_the_second(&mut self) -> Vec<&'static str> {
        let mut served = Vec::new();
        while !self.running.is_empty() {
            advance(Duration::from_secs(1)).await;
            served.extend(self.end(0, 0).into_iter().map(|(tenant, _)| tenant));
        }
        served
    }

    /// Teaches the gate that a second with a slot usually brings a cost of 1.
    async fn teach_rate(&mut self) {
        self.all_arrive(&["teacher"]);
        assert!(self.served_by_the_second().await.is_empty());
    }

    /// Requests of cost 1.
    fn all_arrive(&mut self, tenants: &[&'static str]) {
        for tenant in tenants {
            self.arrive((tenant, 0), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_behind_by_what_it_was_charged() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a", "a", "a", "b", "b", "b", "b"]);
    queue.end(0, 2);
    assert_eq!(queue.served(), ["b", "a", "b", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_remembered_for_the_tenants_next_request() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a", "b", "b", "b", "b"]);
    // No other request of `a` waits. The first of `b` goes.
    queue.end(0, 2);
    queue.all_arrive(&["a"]);
    // Before the third of `b`, which is due at the same time.
    assert_eq!(queue.served(), ["b", "a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_outlasts_a_moment_without_waiters() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a", "b"]);
    queue.end(0, 2);
    // None waits now.
    queue.all_arrive(&["a", "b", "b", "b"]);
    assert_eq!(queue.served(), ["b", "a", "b", "b"]);
}

#[test]
fn a_charge_outlasts_memory_that_is_given_back() {
    // Outside of a task, because more requests arrive than a task may poll at once.
    let runtime = paused();
    let _entered = runtime.enter();
    let mut queue = Queue::new(1, config().max_size(2_000));
    queue.all_arrive(&["a"]);
    queue.all_arrive(&["c"; 1_100]);
    queue.waiting.clear();
    queue.all_arrive(&["b"]);
    queue.end(0, 2);
    // None waits now, and few have waited since the burst.
    queue.all_arrive(&["a", "b", "b", "b"]);
    assert_eq!(queue.served(), ["b", "a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_no_other_wanted_is_not_charged() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a"]);
    queue.end(0, 1_000);
    queue.all_arrive(&["c", "a", "b", "b"]);
    assert_eq!(queue.served(), ["a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn waiters_that_leave_pay_nothing_back() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a", "a", "b", "b", "b", "b"]);
    queue.end(0, 3);
    queue.waiting.retain(|((tenant, _), _)| *tenant == "b");
    queue.all_arrive(&["a"]);
    assert_eq!(queue.served(), ["b", "b", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_keeps_what_was_charged() {
    for waits in [true, false] {
        let mut queue = Queue::new(1, config());
        queue.all_arrive(&["a", "b", "b", "b", "b"]);
        if waits {
            queue.all_arrive(&["a"]);
        }
        queue.end(0, 2);
        queue.gate.reconfigure(config().max_size(999));
        queue.gate.capacity_changed();
        if !waits {
            queue.all_arrive(&["a"]);
        }
        assert_eq!(queue.served(), ["b", "a", "b", "b"], "{waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_detached_permit_keeps_its_tenant() {
    let mut queue = Queue::new(1, config());
    queue.all_arrive(&["a", "a", "b", "b", "b"]);
    let (_, permit) = queue.running.pop_front().unwrap();
    let permit = queue.gate.reattach(&permit.detach()).unwrap();
    permit.charge(2);
    queue.running.push_back((("a", 0), permit));
    assert_eq!(queue.served(), ["b", "b", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn other_disciplines_charge_nothing() {
    for discipline in [Discipline::Fifo, Discipline::Deadline] {
        let mut queue = Queue::new(1, config().discipline(discipline));
        queue.all_arrive(&["a", "a", "b"]);
        queue.end(0, 1_000);
        assert_eq!(queue.served(), ["b"], "{discipline:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_with_a_slot_costs_what_it_usually_brings() {
    let mut queue = Queue::new(1, config());
    queue.teach_rate().await;
    queue.all_arrive(&["a", "a", "a", "b", "b", "b", "b"]);
    // Two more than the one of `served_by_the_second`.
    advance(Duration::from_secs(2)).await;
    let served = queue.served_by_the_second().await;
    assert_eq!(served, ["b", "b", "b", "a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_still_held_counts_by_now() {
    let mut queue = Queue::new(2, config());
    queue.teach_rate().await;
    queue.all_arrive(&["a", "c", "a", "a", "b", "b", "b", "b"]);
    for nth in 1..=3 {
        advance(Duration::from_secs(1)).await;
        // The slot of `a` is never given back.
        assert_eq!(queue.end(1, 0), [("b", 0)], "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_back_to_an_empty_room_is_charged_for_its_contended_time() {
    let mut queue = Queue::new(1, config());
    queue.teach_rate().await;
    for _ in 0..3 {
        queue.all_arrive(&["a", "b"]);
        advance(Duration::from_secs(1)).await;
        queue.waiting.clear();
        queue.end(0, 0);
    }
    queue.all_arrive(&["c", "a", "b", "b", "b", "b"]);
    assert_eq!(queue.served(), ["b", "b", "b", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn time_with_a_slot_that_no_other_wanted_is_free() {
    let mut queue = Queue::new(1, config());
    queue.teach_rate().await;
    for _ in 0..60 {
        queue.all_arrive(&["a"]);
        advance(Duration::from_secs(1)).await;
        queue.end(0, 0);
    }
    queue.all_arrive(&["c", "a", "b", "b"]);
    assert_eq!(queue.served(), ["a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_requests_were_long_waits_for_its_share_of_another() {
    let mut queue = Queue::new(1, config());
    queue.teach_rate().await;
    queue.all_arrive(&["a"]);
    advance(Duration::from_secs(6)).await;
    queue.end(0, 0);
    queue.all_arrive(&["c", "a", "b", "b", "b"]);
    let served = queue.served();
    assert!(
        served.iter().position(|tenant| *tenant == "a") >= Some(1),
        "{served:?}"
    );
}

/// The most tokens of a prompt, and of an answer.
const PROMPT: u32 = 50;
const ANSWER: u32 = 200;
/// A token of an answer costs as much as two of a prompt.
const ANSWER_WEIGHT: u32 = 2;

#[derive(Debug, Clone)]
struct Tokens {
    prompt: u32,
    /// In the pieces in which it is charged.
    answer: Vec<u32>,
    /// Which of the running requests ends.
    ends: Index,
}

fn tokens() -> impl Strategy<Value = Tokens> {
    let answer = prop::collection::vec(0..=ANSWER / 4, 0..=4);
    // Some tenants' requests are always large, others' always small.
    let prompt = prop_oneof![1..=PROMPT, Just(1), Just(PROMPT)];
    (prompt, answer, any::<Index>()).prop_map(|(prompt, answer, ends)| Tokens {
        prompt,
        answer,
        ends,
    })
}

const TENANTS: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The bound of VTC (Sheng et al., OSDI 24): 2 · max(w_p · L_in, w_q · M).
    #[test]
    fn service_of_backlogged_tenants_differs_by_no_more_than_is_in_flight(
        slots in 1..6_usize,
        weights in prop::collection::vec(1..4_u32, 2..=3),
        sizes in prop::collection::vec(tokens(), 3),
        script in prop::collection::vec(tokens(), 50..400),
        joins in 0..100_usize,
        by_size in any::<bool>(),
    ) {
        let runtime = paused();
        let _entered = runtime.enter();
        let mut room = config();
        for (tenant, weight) in TENANTS.into_iter().zip(&weights) {
            room = room.weight(tenant, *weight);
        }
        let mut queue = Queue::new(slots, room);
        let mut service = vec![0.0; weights.len()];
        let mut requests: Vec<Tokens> = Vec::new();
        // The least and the largest difference between two tenants.
        let mut range = vec![vec![(f64::MAX, f64::MIN); weights.len()]; weights.len()];
        for (step, next) in script.into_iter().enumerate() {
            // The last tenant is idle at first: it gets no credit for that.
            let present = weights.len() - usize::from(step < joins);
            for (nth, tenant) in TENANTS.into_iter().enumerate().take(present) {
                let of_tenant = |((name, _), _): &&(Name, _)| *name == tenant;
                // So many that all slots may go to one tenant at once.
                while queue.waiting.iter().filter(of_tenant).count() < 8 {
                    let tokens = if by_size { &sizes[nth] } else { &next };
                    requests.push(tokens.clone());
                    queue.arrive((tenant, requests.len() as u32 - 1), tokens.prompt);
                }
            }
            let ends = next.ends.index(queue.running.len());
            let ((tenant, number), permit) = &queue.running[ends];
            let index = |tenant: &str| TENANTS.iter().position(|name| *name == tenant).unwrap();
            let own = index(tenant);
            for piece in &requests[*number as usize].answer {
                permit.charge(ANSWER_WEIGHT * piece);
                service[own] += f64::from(ANSWER_WEIGHT * piece) / f64::from(weights[own]);
            }
            for (tenant, number) in queue.end(ends, 0) {
                let (own, prompt) = (index(tenant), requests[number as usize].prompt);
                service[own] += f64::from(prompt) / f64::from(weights[own]);
            }
            // As long as each of these has had a waiter.
            for (p, q) in (0..present).flat_map(|p| (0..p).map(move |q| (p, q))) {
                let difference = service[p] - service[q];
                let (least, most) = &mut range[p][q];
                (*least, *most) = (least.min(difference), most.max(difference));
                let weight = f64::from(weights[p].min(weights[q]));
                let in_flight = slots as f64 * f64::from(PROMPT + ANSWER);
                let bound = f64::from(PROMPT).max(f64::from(ANSWER_WEIGHT) * in_flight) / weight;
                prop_assert!(
                    *most - *least <= 2.0 * bound,
                    "{} after {step}: {} > 2 × {bound}", TENANTS[p], *most - *least
                );
            }
        }
    }
}
