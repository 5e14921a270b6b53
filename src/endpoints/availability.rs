//! With one flag for "healthy", the checks switch on what the failures have just switched off, and the other
//! way round.
//!
//! [`Availability`] keeps apart who says what, in the word in which the slots are counted: a decision reads
//! both at once, and whoever takes a slot takes it of an endpoint that may be used.

use super::slots::{Load, Slots};

/// Whether an endpoint is given requests, how many, and who says so.
#[derive(Debug)]
pub(crate) struct Availability {
    pub(super) slots: Slots,
}

/// What speaks against an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks(pub(super) u8);

impl Marks {
    pub(crate) const NONE: Self = Self(0);
    /// The checks say that it is down.
    const DOWN: Self = Self(1);
    /// It failed too often, and is left alone for a while.
    const EJECTED: Self = Self(1 << 1);
    /// That while is over: one request may try it.
    const ON_TRIAL: Self = Self(1 << 2);
    /// That request is on its way.
    const TRIAL_OUT: Self = Self(1 << 3);
    /// The operator says that nothing new is to go there.
    const DRAINING: Self = Self(1 << 4);
    /// It has neither answered nor been checked: it gets one request at a time.
    pub(crate) const NEW: Self = Self(1 << 5);
    /// Its first check will tell more: until then, endpoints that are known go first.
    const LAST: Self = Self(1 << 6);

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    #[inline]
    pub(crate) const fn is_new(self) -> bool {
        self.has_any(Self::NEW)
    }

    const fn is_healthy(self) -> bool {
        !self.has_any(Self::DOWN.or(Self::EJECTED).or(Self::ON_TRIAL))
    }

    /// Whether it is out of service for a while only: it is left alone, or a request is trying it.
    pub(crate) fn is_recovering(self) -> bool {
        self.has_any(Self::EJECTED.or(Self::TRIAL_OUT))
            && !self.has_any(Self::DOWN.or(Self::DRAINING))
    }

    /// Whether a strategy may choose an endpoint that has these: among those that come first, or `last`.
    #[inline]
    pub(crate) fn are_offered(self, last: bool) -> bool {
        match self {
            // As it is with most endpoints.
            Self::NONE => !last,
            _ => self.some_are_offered(last),
        }
    }

    #[cold]
    fn some_are_offered(self, last: bool) -> bool {
        match self.admit() {
            Admits::All | Admits::Trial => !last,
            Admits::Last => last,
            Admits::None => false,
        }
    }

    /// What a decision may do with an endpoint that has these.
    #[inline]
    pub(crate) fn admit(self) -> Admits {
        if self == Self::NONE {
            return Admits::All;
        }
        match self.without(Self::NEW.or(Self::LAST)) {
            Self::NONE if self.has_any(Self::LAST) => Admits::Last,
            Self::NONE => Admits::All,
            Self::ON_TRIAL => Admits::Trial,
            _ => Admits::None,
        }
    }
}

/// What is said of an endpoint until it has answered or been checked.
const UNKNOWN: Marks = Marks::NEW.or(Marks::LAST);

/// What a decision may do with an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admits {
    All,
    /// Requests for which none of the others has a slot free.
    Last,
    /// One request, whose fate decides.
    Trial,
    None,
}

/// What was said of an endpoint before, and what after.
#[derive(Debug, Clone, Copy)]
#[must_use = "whoever waits may have to be told"]
pub(crate) struct Shift {
    old: Marks,
    new: Marks,
}

impl Shift {
    pub(crate) fn is_new(self) -> bool {
        self.old != self.new
    }

    /// Whether the endpoint is healthy now, if it was not before, or the other way round.
    pub(crate) fn health(self) -> Option<bool> {
        let healthy = self.new.is_healthy();
        (healthy != self.old.is_healthy()).then_some(healthy)
    }
}

impl Availability {
    /// Nothing speaks against it, and it has so many slots.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Slots::new(limit),
        }
    }

    /// Nothing is known of it yet. If it is going to be checked, the others go first until then.
    pub(crate) fn begin_unknown(&self, is_checked: bool) {
        let last = if is_checked { Marks::LAST } else { Marks::NONE };
        self.slots.mark(|marks| marks.or(Marks::NEW).or(last));
    }

    /// It has answered a request. That is news if nothing was known of it.
    pub(crate) fn answered(&self) -> Option<Shift> {
        let is_news = self.marks().has_any(UNKNOWN);
        is_news.then(|| self.shift(|marks| marks.without(UNKNOWN)))
    }

    /// It will not be checked: only requests can tell how it is.
    pub(crate) fn expect_no_check(&self) {
        if self.marks().has_any(Marks::LAST) {
            self.slots.mark(|marks| marks.without(Marks::LAST));
        }
    }

    /// What its checks said counts no more. If that was that it is down, nothing is known of it.
    #[cfg(feature = "client")]
    pub(crate) fn forget_checks(&self) -> Shift {
        self.shift(|marks| match marks.has_any(Marks::DOWN) {
            true => marks.without(Marks::DOWN).or(Marks::NEW),
            false => marks,
        })
    }

    /// Whether neither the checks nor its failures speak against it.
    pub(crate) fn is_healthy(&self) -> bool {
        self.marks().is_healthy()
    }

    /// Whether its failures speak against it.
    pub(crate) fn is_out_by_failures(&self) -> bool {
        self.marks().has_any(Marks::EJECTED.or(Marks::ON_TRIAL))
    }

    /// Whether it is given requests like any other.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.marks().admit(), Admits::All | Admits::Last)
    }

    /// Whether it has yet to be tried, be it now or when nothing else speaks against it.
    pub(crate) fn awaits_trial(&self) -> bool {
        self.marks().has_any(Marks::ON_TRIAL)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.marks().has_any(Marks::DRAINING)
    }

    /// Says what the checks say.
    pub(crate) fn set_up(&self, up: bool) -> Shift {
        self.shift(|marks| match up {
            true => marks.without(UNKNOWN.or(Marks::DOWN)),
            false => marks.without(UNKNOWN).or(Marks::DOWN),
        })
    }

    /// Says what the operator says.
    pub(crate) fn set_draining(&self, draining: bool) -> Shift {
        self.set(Marks::DRAINING, draining)
    }

    /// Leaves it alone.
    pub(crate) fn eject(&self) -> Shift {
        let trial = Marks::ON_TRIAL.or(Marks::TRIAL_OUT);
        self.shift(|marks| marks.without(trial).or(Marks::EJECTED))
    }

    /// One request may try it.
    pub(crate) fn put_on_trial(&self) {
        self.slots
            .mark(|marks| match marks.has_any(Marks::EJECTED) {
                true => marks.without(Marks::EJECTED).or(Marks::ON_TRIAL),
                false => marks,
            });
    }

    /// Takes the slot that was seen to be free, if nothing has changed; and the trial, if there is one.
    #[inline]
    pub(super) fn take(&self, seen: Load) -> bool {
        let marks = match seen.marks().admit() {
            Admits::All | Admits::Last => seen.marks(),
            Admits::Trial => seen.marks().or(Marks::TRIAL_OUT),
            Admits::None => return false,
        };
        self.slots.take(seen, marks)
    }

    /// The request on trial ended without a verdict: the next one may try. Returns whether one may.
    pub(crate) fn give_trial_back(&self) -> bool {
        let old = self.slots.mark(|marks| marks.without(Marks::TRIAL_OUT));
        old.has_any(Marks::TRIAL_OUT)
    }

    /// That request went well.
    pub(crate) fn acquit(&self) -> Shift {
        let out = Marks::EJECTED.or(Marks::ON_TRIAL).or(Marks::TRIAL_OUT);
        self.shift(|marks| marks.without(out))
    }

    fn marks(&self) -> Marks {
        self.slots.load().marks()
    }

    fn set(&self, mark: Marks, on: bool) -> Shift {
        self.shift(|marks| match on {
            true => marks.or(mark),
            false => marks.without(mark),
        })
    }

    fn shift(&self, next: impl Fn(Marks) -> Marks) -> Shift {
        let old = self.slots.mark(&next);
        Shift {
            old,
            new: next(old),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(availability: &Availability) -> Admits {
        availability.marks().admit()
    }

    fn take(availability: &Availability) -> bool {
        availability.take(availability.slots.load())
    }

    #[test]
    fn the_checks_do_not_bring_back_what_failures_took_out() {
        let availability = Availability::new(9);
        assert!(availability.eject().is_new());
        assert!(!availability.set_up(true).is_new());
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.set_up(false).is_new());
        assert!(availability.acquit().is_new());
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.set_up(true).is_new());
        assert_eq!(admits(&availability), Admits::All);
    }

    #[test]
    fn one_request_at_a_time_awaits_trial() {
        let availability = Availability::new(9);
        _ = availability.eject();
        availability.put_on_trial();
        assert_eq!(admits(&availability), Admits::Trial);
        assert!(!availability.is_healthy());
        assert!(take(&availability));
        assert!(!take(&availability));
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.give_trial_back());
        assert!(!availability.give_trial_back());
        assert!(take(&availability));
        assert!(availability.acquit().is_new());
        assert_eq!(admits(&availability), Admits::All);
        assert!(!availability.acquit().is_new());
    }

    #[test]
    fn a_trial_that_failed_is_an_ejection() {
        let availability = Availability::new(9);
        _ = availability.eject();
        availability.put_on_trial();
        take(&availability);
        assert!(availability.eject().is_new());
        assert!(!availability.eject().is_new());
        assert!(!availability.give_trial_back());
        assert_eq!(admits(&availability), Admits::None);
    }

    #[test]
    fn nobody_is_tried_who_is_in_service_or_draining() {
        let availability = Availability::new(9);
        availability.put_on_trial();
        assert_eq!(admits(&availability), Admits::All);
        assert!(availability.set_draining(true).is_new());
        assert!(availability.is_healthy());
        assert!(availability.is_draining());
        _ = availability.eject();
        availability.put_on_trial();
        assert!(!take(&availability));
    }

    #[test]
    fn a_slot_that_was_seen_free_is_not_taken_of_who_drains_since() {
        let availability = Availability::new(9);
        let seen = availability.slots.load();
        _ = availability.set_draining(true);
        assert!(!availability.take(seen));
        assert!(!take(&availability));
        assert_eq!(availability.slots.load().in_use(), 0);
    }

    #[test]
    fn who_drains_on_trial_is_tried_afterwards() {
        let availability = Availability::new(1);
        _ = availability.eject();
        availability.put_on_trial();
        _ = availability.set_draining(true);
        assert!(availability.awaits_trial());
        _ = availability.set_draining(false);
        assert!(take(&availability));
        assert!(availability.awaits_trial());
    }

    #[test]
    fn an_answer_or_a_check_makes_an_endpoint_known() {
        for checked in [false, true] {
            let availability = Availability::new(9);
            availability.begin_unknown(checked);
            let all = if checked { Admits::Last } else { Admits::All };
            assert_eq!(admits(&availability), all);
            assert!(availability.is_open() && availability.is_healthy());
            assert!(take(&availability));
            assert!(!availability.slots.load().is_free());
            match checked {
                true => assert!(availability.set_up(true).is_new()),
                false => assert!(availability.answered().unwrap().is_new()),
            }
            assert_eq!(admits(&availability), Admits::All);
            assert!(take(&availability));
            assert!(availability.answered().is_none());
        }
    }

    #[test]
    fn an_endpoint_of_which_nothing_is_known_is_tried_after_an_ejection_as_any_other() {
        let availability = Availability::new(9);
        availability.begin_unknown(true);
        _ = availability.eject();
        availability.put_on_trial();
        assert_eq!(admits(&availability), Admits::Trial);
        assert!(take(&availability));
        assert_eq!(admits(&availability), Admits::None);
    }

    #[test]
    fn health_changes_once_however_many_speak_against_it() {
        let availability = Availability::new(9);
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
