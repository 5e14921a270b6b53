//! With one flag for "healthy", the checks switch on what the failures have just switched off, and the other
//! way round.
//!
//! [`Availability`] keeps apart who says what, in one word that a decision reads at once.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst; // a change must be seen by whoever is told of it

/// Whether an endpoint is given requests, and who says so.
#[derive(Debug, Default)]
pub(super) struct Availability(AtomicU8);

/// The checks say that it is down.
const DOWN: u8 = 1;
/// It failed too often, and is left alone for a while.
const EJECTED: u8 = 1 << 1;
/// That while is over: one request may try it.
const ON_TRIAL: u8 = 1 << 2;
/// That request is on its way.
const TRIAL_OUT: u8 = 1 << 3;
/// The operator says that nothing new is to go there.
const DRAINING: u8 = 1 << 4;

/// What a decision may do with an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admits {
    All,
    /// One request, whose fate decides.
    Trial,
    None,
}

/// What was said of an endpoint before, and what after.
#[derive(Debug, Clone, Copy)]
#[must_use = "whoever waits may have to be told"]
pub(super) struct Shift {
    old: u8,
    new: u8,
}

impl Shift {
    pub(super) fn is_new(self) -> bool {
        self.old != self.new
    }

    /// Whether the endpoint is healthy now, if it was not before, or the other way round.
    pub(super) fn health(self) -> Option<bool> {
        let healthy = is_healthy(self.new);
        (healthy != is_healthy(self.old)).then_some(healthy)
    }
}

fn is_healthy(bits: u8) -> bool {
    bits & (DOWN | EJECTED | ON_TRIAL) == 0
}

impl Availability {
    #[inline]
    pub(super) fn admits(&self) -> Admits {
        match self.0.load(SeqCst) {
            0 => Admits::All,
            ON_TRIAL => Admits::Trial,
            _ => Admits::None,
        }
    }

    /// Whether neither the checks nor its failures speak against it.
    pub(super) fn is_healthy(&self) -> bool {
        is_healthy(self.0.load(SeqCst))
    }

    /// Whether it is given requests like any other.
    pub(super) fn is_open(&self) -> bool {
        self.admits() == Admits::All
    }

    /// Whether it is to be tried: now, or once nothing else speaks against it.
    pub(super) fn is_on_trial(&self) -> bool {
        self.0.load(SeqCst) & ON_TRIAL != 0
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.load(SeqCst) & DRAINING != 0
    }

    /// Says what the checks say.
    pub(super) fn set_up(&self, up: bool) -> Shift {
        self.set(DOWN, !up)
    }

    /// Says what the operator says.
    pub(super) fn set_draining(&self, draining: bool) -> Shift {
        self.set(DRAINING, draining)
    }

    /// Leaves it alone.
    pub(super) fn eject(&self) -> Shift {
        self.shift(|bits| bits & !(ON_TRIAL | TRIAL_OUT) | EJECTED)
    }

    /// One request may try it.
    pub(super) fn put_on_trial(&self) {
        self.update(|bits| (bits & EJECTED != 0).then_some(bits & !EJECTED | ON_TRIAL));
    }

    /// Takes the one request that is allowed.
    pub(super) fn take_trial(&self) -> bool {
        self.0
            .compare_exchange(ON_TRIAL, ON_TRIAL | TRIAL_OUT, SeqCst, SeqCst)
            .is_ok()
    }

    /// That request ended without a verdict: the next one may try. Returns whether one may.
    pub(super) fn give_trial_back(&self) -> bool {
        let old = self.update(|bits| (bits & TRIAL_OUT != 0).then_some(bits & !TRIAL_OUT));
        old & TRIAL_OUT != 0
    }

    /// That request went well.
    pub(super) fn acquit(&self) -> Shift {
        self.shift(|bits| bits & !(EJECTED | ON_TRIAL | TRIAL_OUT))
    }

    fn set(&self, bit: u8, on: bool) -> Shift {
        self.shift(|bits| if on { bits | bit } else { bits & !bit })
    }

    fn shift(&self, next: impl Fn(u8) -> u8) -> Shift {
        let old = self.update(|bits| Some(next(bits)));
        Shift {
            old,
            new: next(old),
        }
    }

    fn update(&self, next: impl FnMut(u8) -> Option<u8>) -> u8 {
        match self.0.fetch_update(SeqCst, SeqCst, next) {
            Ok(old) | Err(old) => old,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_do_not_bring_back_what_failures_took_out() {
        let availability = Availability::default();
        assert!(availability.eject().is_new());
        assert!(!availability.set_up(true).is_new());
        assert_eq!(availability.admits(), Admits::None);
        assert!(availability.set_up(false).is_new());
        assert!(availability.acquit().is_new());
        assert_eq!(availability.admits(), Admits::None);
        assert!(availability.set_up(true).is_new());
        assert_eq!(availability.admits(), Admits::All);
    }

    #[test]
    fn one_request_at_a_time_is_on_trial() {
        let availability = Availability::default();
        _ = availability.eject();
        availability.put_on_trial();
        assert_eq!(availability.admits(), Admits::Trial);
        assert!(!availability.is_healthy());
        assert!(availability.take_trial());
        assert!(!availability.take_trial());
        assert_eq!(availability.admits(), Admits::None);
        assert!(availability.give_trial_back());
        assert!(!availability.give_trial_back());
        assert!(availability.take_trial());
        assert!(availability.acquit().is_new());
        assert_eq!(availability.admits(), Admits::All);
        assert!(!availability.acquit().is_new());
    }

    #[test]
    fn a_trial_that_failed_is_an_ejection() {
        let availability = Availability::default();
        _ = availability.eject();
        availability.put_on_trial();
        availability.take_trial();
        assert!(availability.eject().is_new());
        assert!(!availability.eject().is_new());
        assert!(!availability.give_trial_back());
        assert_eq!(availability.admits(), Admits::None);
    }

    #[test]
    fn nobody_is_tried_who_is_in_service_or_draining() {
        let availability = Availability::default();
        availability.put_on_trial();
        assert_eq!(availability.admits(), Admits::All);
        assert!(availability.set_draining(true).is_new());
        assert!(availability.is_healthy());
        assert!(availability.is_draining());
        _ = availability.eject();
        availability.put_on_trial();
        assert!(!availability.take_trial());
    }

    #[test]
    fn health_changes_once_however_many_speak_against_it() {
        let availability = Availability::default();
        assert_eq!(availability.set_draining(true).health(), None);
        assert_eq!(availability.eject().health(), Some(false));
        assert_eq!(availability.set_up(false).health(), None);
        availability.put_on_trial();
        assert_eq!(availability.eject().health(), None);
        assert_eq!(availability.acquit().health(), None);
        assert_eq!(availability.set_up(true).health(), Some(true));
        assert_eq!(availability.set_up(true).health(), None);
    }
}
