//! The slots of an endpoint that refuses requests because it is full.
//!
//! An endpoint may take fewer requests than it has slots, because its configuration says too much or because others use it,
//! too. Its refusals bound its limit to what it took, for a short while. Then the limit grows again step by step, and a step
//! that is refused is repeated later. If the endpoint takes nothing at all, its limit is 0 for that while.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed; // the mark only saves the lock
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::EndpointRef;

/// The bound that an endpoint's refusals put on its limit. It has no clock: the caller calls [`grow`](Self::grow) after each
/// pause.
#[derive(Debug)]
pub(crate) struct RefusalBound {
    /// The number of requests that the endpoint takes. `None` while it takes as many as it has slots.
    taken: Option<u32>,
    /// The number of requests in flight that the endpoint is known to take. Below it, steps follow quickly, because a refusal
    /// may only mean that the endpoint had not noticed the end of another request.
    known: u32,
    /// The number of requests above `known` that were served since the last refusal there. One may only have come at the very
    /// end of another request.
    hits: u32,
    /// The number of steps up to `known` that were refused since a request was served there.
    misses: u32,
    /// The number of requests in flight at the last refusal above `known`.
    refused_at: u32,
    /// The time until the next step below `known`, and of an endpoint that takes nothing.
    short_pause: Duration,
    /// The time until the next step from `known` on.
    long_pause: Duration,
    /// `true` if a step was made since the last refusal.
    has_grown: bool,
    /// `true` while a timer runs that makes the steps.
    is_timed: bool,
}

/// The pause after the first refusal. It is short, because an engine with short answers has a place free again soon.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause of an endpoint that serves requests, or does not say when to come again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause of an endpoint that serves nothing and says when to come again.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(10);

/// The number of refused steps after which an endpoint is known to take less than before, and of served requests after which
/// it is known to take more.
const ENOUGH: u32 = 3;

impl Default for RefusalBound {
    fn default() -> Self {
        Self {
            taken: None,
            known: 0,
            hits: 0,
            misses: 0,
            refused_at: 0,
            short_pause: SHORTEST_PAUSE,
            long_pause: SHORTEST_PAUSE,
            has_grown: false,
            is_timed: false,
        }
    }
}

impl RefusalBound {
    /// Records that the endpoint refused one of `in_flight` requests, and asked for a pause of `retry_after`. Returns `true`
    /// if the caller has to start a timer for the next step.
    ///
    /// A pause doubles with each step that is refused, so it is in proportion to the number of refusals in a row.
    pub(crate) fn refused(&mut self, in_flight: u32, retry_after: Option<Duration>) -> bool {
        // Each refusal is one request less that the endpoint took, although refused requests may still be in flight.
        let most = self.taken.unwrap_or(u32::MAX).min(in_flight);
        let taken = most.saturating_sub(1);
        let is_above = in_flight > self.known.max(1);
        if is_above {
            self.refused_at = in_flight;
            self.hits = 0;
        }
        if std::mem::take(&mut self.has_grown) {
            let longest = match retry_after {
                Some(asked) if taken == 0 => asked.min(LONGEST_ASKED_PAUSE),
                _ => LONGEST_PAUSE,
            };
            let doubled = |pause: Duration| (pause * 2).min(longest).max(SHORTEST_PAUSE);
            match is_above {
                true => self.long_pause = doubled(self.long_pause),
                false => {
                    self.short_pause = doubled(self.short_pause);
                    self.misses += 1;
                }
            }
            if self.misses >= ENOUGH {
                self.known = self.known.min(taken);
                self.misses = 0;
            }
        }
        self.taken = Some(taken);
        !std::mem::replace(&mut self.is_timed, true)
    }

    /// Records that the endpoint served a request which was one of `in_flight`. If it refused at this number before, it has
    /// more room now, so that the next steps follow quickly.
    pub(crate) fn served(&mut self, in_flight: u32) {
        self.short_pause = SHORTEST_PAUSE;
        if in_flight >= self.known {
            self.misses = 0;
            self.hits += u32::from(in_flight > self.known);
        }
        if self.hits >= ENOUGH {
            self.known = in_flight;
            self.hits = 0;
        }
        if in_flight >= self.refused_at {
            self.long_pause = (self.long_pause / 2).max(SHORTEST_PAUSE);
        }
    }

    /// Makes a step towards the limit `own` after a pause. The bound is gone once it has reached that.
    pub(crate) fn grow(&mut self, own: u32) {
        self.has_grown = true;
        let taken = self.taken.map(|taken| taken + (taken / 4).max(1));
        self.taken = taken.filter(|&taken| taken < own);
    }

    /// Returns the time until the next step, or `None` if the bound is gone. The timer, which asks for it, then ends.
    fn next_step(&mut self) -> Option<Duration> {
        self.is_timed = self.taken.is_some();
        self.pause()
    }

    /// Returns the time until the next step, or `None` if there is no bound.
    fn pause(&self) -> Option<Duration> {
        let is_below = self.taken? < self.known.max(1);
        Some(if is_below {
            self.short_pause
        } else {
            self.long_pause
        })
    }

    /// Removes the bound, because no timer can make the next step.
    pub(crate) fn lift(&mut self) {
        self.taken = None;
        self.is_timed = false;
    }

    /// Returns `true` if served requests change nothing.
    fn is_forgotten(&self) -> bool {
        self.taken.is_none() && self.short_pause.max(self.long_pause) == SHORTEST_PAUSE
    }
}

/// The refusals of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    bound: Mutex<RefusalBound>,
    /// `true` from a refusal until the endpoint is known to have room for all its slots again.
    are_recent: AtomicBool,
}

impl Refusals {
    /// Records that the endpoint served a request which was one of `in_flight`.
    #[inline]
    pub(crate) fn served(&self, in_flight: u32) {
        // This runs after each response, and nearly no endpoint has refused a request lately.
        if self.are_recent.load(Relaxed) {
            let mut bound = self.lock();
            bound.served(in_flight);
            self.are_recent.store(!bound.is_forgotten(), Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RefusalBound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointRef {
    /// Changes the bound that refusals put on the limit, and applies it. Returns the result of `change`, and `true` if the
    /// limit is higher now. The lock is held meanwhile, so that the later of two changes stays.
    pub(crate) fn change_refusals<T>(
        &self,
        change: impl FnOnce(&mut RefusalBound) -> T,
    ) -> (T, bool) {
        let state = self.state();
        let refusals = &state.cold.refusals;
        let mut bound = refusals.lock();
        let result = change(&mut bound);
        refusals.are_recent.store(!bound.is_forgotten(), Relaxed);
        let has_more = state.cold.lease.set_taken(&state.word, bound.taken);
        (result, has_more)
    }

    /// Returns the time until the next step of the bound to the timer that makes it, or `None` if there is no bound any more.
    /// The timer then ends.
    pub(crate) fn next_refusals_step(&self) -> Option<Duration> {
        self.state().cold.refusals.lock().next_step()
    }

    /// Returns the time until the next step of the bound, or `None` if there is no bound.
    pub(crate) fn pause_for_refusals(&self) -> Option<Duration> {
        self.state().cold.refusals.lock().pause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_of_refusals_leaves_what_was_taken() {
        let mut bound = RefusalBound::default();
        let timers = (0..32).filter(|_| bound.refused(64, None)).count();
        assert_eq!((bound.taken, timers), (Some(32), 1));
        assert_eq!(bound.next_step(), Some(SHORTEST_PAUSE));
    }

    #[test]
    fn a_look_at_the_pause_starts_no_second_timer() {
        let mut bound = RefusalBound::default();
        assert!(bound.refused(2, None));
        bound.grow(1);
        assert_eq!(bound.pause(), None);
        assert!(!bound.refused(2, None), "the timer has yet to ask");
    }

    #[test]
    fn an_endpoint_that_takes_nothing_has_no_slots_for_a_pause() {
        let mut bound = RefusalBound::default();
        bound.refused(1, None);
        assert_eq!(bound.taken, Some(0));
        bound.grow(4);
        assert_eq!(bound.taken, Some(1));
        assert_eq!(bound.next_step(), Some(SHORTEST_PAUSE));
    }

    /// Returns the pauses of an endpoint that refuses each step.
    fn pauses(retry_after: Option<Duration>, in_flight: u32) -> Vec<Duration> {
        let mut bound = RefusalBound::default();
        let step = |_| {
            bound.refused(in_flight, retry_after);
            let pause = bound.next_step().unwrap();
            bound.grow(in_flight + 1);
            pause
        };
        (0..12).map(step).collect()
    }

    #[test]
    fn pauses_double_with_each_refused_step() {
        for (retry_after, in_flight, longest) in [
            (None, 1, SECOND),
            (Some(SECOND), 1, SECOND),
            (Some(100 * MS), 1, 100 * MS),
            (Some(60 * SECOND), 1, 10 * SECOND),
            (Some(60 * SECOND), 3, SECOND),
            (Some(Duration::ZERO), 1, SHORTEST_PAUSE),
        ] {
            let doubling = (0..12).map(|nth| (10 * MS * 2_u32.pow(nth)).min(longest));
            let expected: Vec<_> = doubling.collect();
            assert_eq!(pauses(retry_after, in_flight), expected, "{retry_after:?}");
        }
    }

    #[test]
    fn a_step_that_holds_makes_the_next_pauses_short() {
        let mut bound = RefusalBound::default();
        for _ in 0..5 {
            bound.refused(3, None);
            bound.grow(8);
        }
        bound.served(2);
        assert_eq!(bound.next_step(), Some(160 * MS));
        (0..4).for_each(|_| bound.served(3));
        assert_eq!(bound.next_step(), Some(SHORTEST_PAUSE));
    }

    #[test]
    fn a_refusal_below_what_is_known_is_made_up_for_soon() {
        let mut bound = RefusalBound::default();
        for _ in 0..6 {
            (0..ENOUGH).for_each(|_| bound.served(2));
            bound.refused(3, None);
            bound.grow(8);
        }
        bound.refused(2, None); // the end of another request was not noticed yet
        assert_eq!(bound.taken, Some(1));
        bound.served(1);
        assert_eq!(bound.next_step(), Some(SHORTEST_PAUSE));
        bound.grow(8);
        assert_eq!(
            bound.next_step(),
            Some(320 * MS),
            "a third request is tried rarely"
        );
    }

    #[test]
    fn an_endpoint_that_takes_less_than_before_is_learned() {
        let mut bound = RefusalBound::default();
        (0..ENOUGH).for_each(|_| bound.served(4));
        bound.refused(4, None);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            bound.refused(3, None);
            pauses.push(bound.next_step().unwrap());
            bound.grow(4);
            bound.served(2);
        }
        assert!(pauses[11] >= 160 * MS, "{pauses:?}");
    }

    /// Simulates a minute of an engine with `places` behind `own` slots, for which requests always wait. Returns the share of
    /// the places in use, and the share of the tries that are refused.
    fn simulated(places: u32, own: u32, service_ms: u64) -> (f64, f64) {
        let mut bound = RefusalBound::default();
        let mut running: Vec<(u64, u32)> = Vec::new();
        let (mut step_at, mut used, mut tries, mut refused) = (None, 0, 0, 0);
        for now in 0..60_000 {
            for (_, in_flight) in running.extract_if(.., |(end, _)| *end <= now) {
                bound.served(in_flight);
            }
            if step_at.is_some_and(|at| at <= now) {
                bound.grow(own);
                step_at = bound
                    .next_step()
                    .map(|pause| now + pause.as_millis() as u64);
            }
            while (running.len() as u32) < bound.taken.unwrap_or(own) {
                let in_flight = running.len() as u32 + 1;
                tries += 1;
                if in_flight <= places {
                    running.push((now + service_ms, in_flight));
                    continue;
                }
                refused += 1;
                if bound.refused(in_flight, Some(SECOND)) {
                    step_at = bound
                        .next_step()
                        .map(|pause| now + pause.as_millis() as u64);
                }
            }
            used += running.len();
        }
        let used = used as f64 / (60_000.0 * f64::from(places));
        (used, f64::from(refused) / f64::from(tries))
    }

    #[test]
    fn a_full_engine_is_kept_busy_with_few_refusals() {
        for (places, own, service_ms) in [
            (1, 8, 20),
            (2, 4, 10),
            (2, 4, 100),
            (4, 4, 50),
            (8, 16, 1_000),
            (32, 64, 1_000),
        ] {
            let (used, refused) = simulated(places, own, service_ms);
            let case = format!("{places} of {own}: used {used:.3}, refused {refused:.3}");
            assert!(used > 0.97 && refused < 0.15, "{case}");
        }
    }

    #[test]
    fn without_refusals_the_limit_is_back_after_few_steps() {
        let mut bound = RefusalBound::default();
        bound.refused(2, None);
        let grows = |_: &u32| {
            bound.grow(64);
            bound.next_step().is_none()
        };
        assert_eq!((1..).find(grows), Some(18));
        assert!(bound.is_forgotten());
        assert!(bound.refused(64, None), "a timer is needed again");
    }
}
