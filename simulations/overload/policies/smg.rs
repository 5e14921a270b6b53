//! SMG's priority scheduler: classes, each with a bounded FIFO queue and a timeout.
//!
//! The level `high` is its class Interactive (256 places, 30 s), every other its Default (512 places, 60 s). A slot goes to
//! a head that has waited for longer than its starvation threshold (30 s in Default, 5 s in Interactive), the lowest class
//! first; else to the head of the highest class. So in lasting overload, where every head of Default is starving, Interactive
//! goes last. A waiter that timed out, or was left by its caller, keeps its place until it is at the head.
//!
//! Its reservations, 160 slots by default, are left out: they exceed the slots here. So is preemption: it ends requests
//! without a first byte, and here that comes soon after the start.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::Setting;
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};

pub(crate) struct Smg {
    free: usize,
    interactive: Class,
    default: Class,
}

struct Class {
    places: usize,
    timeout: Duration,
    starvation: Duration,
    queue: VecDeque<Place>,
    /// The waiters of places that are not abandoned.
    waiting: HashSet<RequestId>,
    /// The number of places at the front that have timed out.
    timed_out: usize,
}

#[derive(Clone, Copy)]
struct Place {
    id: RequestId,
    since: Duration,
}

impl Smg {
    pub(crate) fn new(setting: &Setting) -> Self {
        let seconds = Duration::from_secs;
        Self {
            free: setting.slots,
            interactive: Class::new(256, seconds(30), seconds(5)),
            default: Class::new(512, seconds(60), seconds(30)),
        }
    }

    fn class(&mut self, level: u8) -> &mut Class {
        match level {
            0 => &mut self.interactive,
            _ => &mut self.default,
        }
    }

    /// The waiter that gets the next slot.
    fn next(&mut self, now: Duration) -> Option<RequestId> {
        let classes = [&mut self.default, &mut self.interactive];
        for class in classes {
            if class
                .head()
                .is_some_and(|head| now - head.since > class.starvation)
            {
                return class.pop();
            }
        }
        self.interactive.pop().or_else(|| self.default.pop())
    }
}

impl Class {
    fn new(places: usize, timeout: Duration, starvation: Duration) -> Self {
        Self {
            places,
            timeout,
            starvation,
            queue: VecDeque::new(),
            waiting: HashSet::new(),
            timed_out: 0,
        }
    }

    /// The first waiter that is still there. Only here are abandoned places given up.
    fn head(&mut self) -> Option<Place> {
        while let Some(&head) = self.queue.front() {
            if self.waiting.contains(&head.id) {
                return Some(head);
            }
            self.pop_place();
        }
        None
    }

    fn pop(&mut self) -> Option<RequestId> {
        let head = self.head()?;
        self.pop_place();
        self.waiting.remove(&head.id);
        Some(head.id)
    }

    fn pop_place(&mut self) {
        self.queue.pop_front();
        self.timed_out = self.timed_out.saturating_sub(1);
    }

    fn next_timeout(&self) -> Option<Duration> {
        let place = self.queue.get(self.timed_out)?;
        Some(place.since + self.timeout)
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        while let Some(place) = self.queue.get(self.timed_out)
            && place.since + self.timeout <= now
        {
            self.timed_out += 1;
            if self.waiting.remove(&place.id) {
                decisions.push(Decision::Refuse(place.id));
            }
        }
    }
}

impl Policy for Smg {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>) {
        let id = arrival.id;
        if self.free > 0 {
            self.free -= 1;
            decisions.push(Decision::Admit(id));
            return;
        }
        let class = self.class(arrival.level);
        if class.queue.len() >= class.places {
            decisions.push(Decision::Refuse(id));
            return;
        }
        class.queue.push_back(Place { id, since: now });
        class.waiting.insert(id);
    }

    fn release(&mut self, _: RequestId, _: Ended, now: Duration, decisions: &mut Vec<Decision>) {
        match self.next(now) {
            Some(next) => decisions.push(Decision::Admit(next)),
            None => self.free += 1,
        }
    }

    fn leave(&mut self, id: RequestId, _: Duration, _: &mut Vec<Decision>) {
        self.interactive.waiting.remove(&id);
        self.default.waiting.remove(&id);
    }

    fn next_timeout(&self) -> Option<Duration> {
        let classes = [&self.interactive, &self.default];
        classes.into_iter().filter_map(Class::next_timeout).min()
    }

    fn advance(&mut self, now: Duration, decisions: &mut Vec<Decision>) {
        self.interactive.advance(now, decisions);
        self.default.advance(now, decisions);
    }
}
