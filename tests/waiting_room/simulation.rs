//! A room in front of slots, and callers with any patience, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use tower_triage::admit::{
    AdmitOutcome, Capacity, HoldId, ServiceSample, Slot, WaiterId, WaitingRoom, WakeList,
};
use tower_triage::{Priority, RejectReason, Ticket, WaitingRoomConfig};

/// A capacity of plain slots.
pub(crate) trait Slots:
    Capacity<Demand = (), Lease = Slot, Unservable = Infallible>
{
}
impl<C: Capacity<Demand = (), Lease = Slot, Unservable = Infallible>> Slots for C {}

/// A request, and what its caller does.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The time of arrival since the start of the run.
    pub(crate) at: Duration,
    pub(crate) level: u8,
    pub(crate) tenant: usize,
    pub(crate) service: Duration,
    /// The time after which the caller leaves.
    pub(crate) patience: Duration,
    /// The timeout that the request names, if it names one.
    pub(crate) named: Option<Duration>,
    pub(crate) cost: u32,
    /// The number of times that a refused caller tries again, each a millisecond later.
    pub(crate) retries: u32,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            at: Duration::ZERO,
            level: 0,
            tenant: 0,
            service: Duration::from_millis(200),
            patience: Duration::from_secs(20),
            named: None,
            cost: 1,
            retries: 0,
        }
    }
}

/// The outcome of a call.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// The number of waiters that its last try found.
    pub(crate) found: usize,
    /// The time until it got a slot, if it got one.
    pub(crate) wait: Option<Duration>,
    /// `true` if its answer was ready before its caller left.
    pub(crate) in_time: bool,
    pub(crate) rejected: Option<RejectReason>,
    waiter: Option<WaiterId>,
    slot: Option<(Slot, Option<HoldId>)>,
    sample: Option<ServiceSample>,
    tries: u32,
}

/// The backend, as far as it differs from one to another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backend {
    /// `true` if it stops working for callers that left.
    pub(crate) notices: bool,
    /// The seconds between which it stands still.
    pub(crate) pause: (u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    /// The caller goes away.
    Leaves(usize),
    Ends(usize),
}

struct Run<'a, C: Capacity> {
    calls: &'a [Call],
    lives: Vec<Life>,
    backend: Backend,
    begin: Instant,
    room: WaitingRoom<C, usize>,
    slots: C,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    now: Duration,
}

/// Runs all calls, in the order of their arrival, until `end`.
pub(crate) fn simulate(
    config: &WaitingRoomConfig,
    slots: impl Slots,
    backend: Backend,
    calls: &[Call],
    end: Duration,
) -> Vec<Life> {
    let begin = Instant::now();
    let mut run = Run {
        calls,
        lives: calls.iter().map(|_| Life::default()).collect(),
        backend,
        begin,
        room: WaitingRoom::new(config.clone(), begin).with_holds(),
        slots,
        events: BinaryHeap::new(),
        now: Duration::ZERO,
    };
    for (number, call) in calls.iter().enumerate() {
        run.events.push(Reverse((call.at, Event::Arrives(number))));
    }
    while let Some(Reverse((at, event))) = run.events.pop() {
        if at > end {
            break;
        }
        // The room may end waits before the next event.
        while let Some(timeout) = run.room.next_timeout()
            && timeout <= begin + at
        {
            run.now = run.now.max(timeout - begin);
            run.advance();
        }
        run.now = at;
        run.on_event(event);
    }
    run.lives
}

impl<C: Slots> Run<'_, C> {
    fn now(&self) -> Instant {
        self.begin + self.now
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.events.push(Reverse((self.now + delay, event)));
    }

    fn advance(&mut self) {
        let (mut wakes, now) = (WakeList::new(), self.now());
        if self.room.advance(now, &mut wakes) {
            self.room.on_capacity_grown(&self.slots, now, &mut wakes);
        }
        self.take_outcomes(wakes);
    }

    fn on_event(&mut self, event: Event) {
        let mut wakes = WakeList::new();
        match event {
            Event::Arrives(number) => self.arrive(number, &mut wakes),
            Event::Leaves(number) => self.leave(number, &mut wakes),
            Event::Ends(number) => self.end(number, &mut wakes),
        }
        self.take_outcomes(wakes);
    }

    fn take_outcomes(&mut self, wakes: WakeList<usize>) {
        for number in wakes {
            let Some(waiter) = self.lives[number].waiter.take() else {
                continue;
            };
            match self.room.take_holding(waiter) {
                Some((Ok(slot), hold)) => self.start(number, (slot, hold)),
                Some((Err(why), _)) => self.reject(number, why),
                None => unreachable!("a waiter is woken when its wait is over"),
            }
        }
    }

    fn arrive(&mut self, number: usize, wakes: &mut WakeList<usize>) {
        let (call, now) = (&self.calls[number], self.now());
        // The caller leaves when it leaves, however often it tries.
        let Some(patience) = (call.at + call.patience).checked_sub(self.now) else {
            return;
        };
        let mut ticket =
            Ticket::new(Priority(call.level), now).tenant(call.tenant.to_string().into());
        ticket.cost = call.cost;
        if let Some(named) = call.named {
            ticket = ticket.timeout(named);
        }
        let life = &mut self.lives[number];
        life.tries += 1;
        life.found = self.room.len();
        if life.tries == 1 {
            self.after(patience, Event::Leaves(number));
        }
        let (outcome, hold) = self
            .room
            .arrive_holding(&self.slots, ticket, (), now, wakes);
        match outcome {
            AdmitOutcome::Leased(slot) => self.start(number, (slot, hold)),
            AdmitOutcome::Queued(waiter) => {
                self.room.set_waker(waiter, number).unwrap();
                self.lives[number].waiter = Some(waiter);
            }
            AdmitOutcome::Rejected(why) => self.reject(number, why),
        }
    }

    fn reject(&mut self, number: usize, why: RejectReason) {
        let life = &mut self.lives[number];
        if life.tries <= self.calls[number].retries {
            self.after(Duration::from_millis(1), Event::Arrives(number));
        } else {
            life.rejected = Some(why);
        }
    }

    fn start(&mut self, number: usize, slot: (Slot, Option<HoldId>)) {
        let (call, now) = (&self.calls[number], self.now());
        let life = &mut self.lives[number];
        life.sample = Some(self.room.served(&self.slots, &(), now));
        life.wait = Some(self.now - call.at);
        life.slot = Some(slot);
        let (begin, end) = self.backend.pause;
        let mut service = call.service;
        if self.now.as_secs() < end && self.now + service >= Duration::from_secs(begin) {
            service += Duration::from_secs(end) - self.now.max(Duration::from_secs(begin));
        }
        self.after(service, Event::Ends(number));
    }

    fn leave(&mut self, number: usize, wakes: &mut WakeList<usize>) {
        let now = self.now();
        let life = &mut self.lives[number];
        life.sample = None;
        if let Some(waiter) = life.waiter.take() {
            self.room.cancel(waiter, now);
        } else if self.backend.notices {
            self.release(number, wakes);
        }
    }

    fn end(&mut self, number: usize, wakes: &mut WakeList<usize>) {
        let now = self.now();
        let life = &mut self.lives[number];
        if let Some(sample) = life.sample.take() {
            life.in_time = true;
            self.room.on_answered(&sample, now);
        }
        self.release(number, wakes);
    }

    /// Gives the slot of a request back, if it has one.
    fn release(&mut self, number: usize, wakes: &mut WakeList<usize>) {
        if let Some((slot, hold)) = self.lives[number].slot.take() {
            let (pool, now) = (self.slots.release(slot), self.now());
            if let Some(hold) = hold {
                self.room.end_hold(hold, now);
            }
            self.room.on_release(&self.slots, pool, now, wakes);
        }
    }
}
