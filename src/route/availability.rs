//! With one flag for "healthy", the checks switch on what the failures have just switched off, and the other
//! way round.
//!
//! [`Availability`] keeps apart who says what, in the word in which the slots are counted: a decision reads
//! both at once, and whoever takes a slot takes it of an endpoint that may be used.

use super::slots::{Load, Slots};

/// Whether an endpoint is given requests, how many, and who says so.
#[derive(Debug)]
pub(super) struct Availability {
    pub(super) slots: Slots,
}

/// What speaks against an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks(pub(super) u8);

impl Marks {
    pub(super) const NONE: Self = Self(0);
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

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// What a decision may do with an endpoint that has these.
    #[inline]
    pub(super) fn admit(self) -> Admits {
        match self {
            Self::NONE => Admits::All,
            Self::ON_TRIAL => Admits::Trial,
            _ => Admits::None,
        }
    }
}

/// What a decision may do with an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admits {
    All,
    /// One request, whose fate decides.
    Trial,
    None,
}

impl Availability {
    /// Nothing speaks against it, and it has so many slots.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            slots: Slots::new(limit),
        }
    }

    /// Whether neither the checks nor its failures speak against it.
    pub(super) fn is_healthy(&self) -> bool {
        let against = Marks::DOWN.or(Marks::EJECTED).or(Marks::ON_TRIAL);
        !self.marks().has_any(against)
    }

    /// Whether it is given requests like any other.
    pub(super) fn is_open(&self) -> bool {
        self.marks().admit() == Admits::All
    }

    /// Whether it has yet to be tried, be it now or when nothing else speaks against it.
    pub(super) fn awaits_trial(&self) -> bool {
        self.marks().has_any(Marks::ON_TRIAL)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.marks().has_any(Marks::DRAINING)
    }

    /// Says what the checks say. Returns whether that is new.
    pub(super) fn set_up(&self, up: bool) -> bool {
        self.set(Marks::DOWN, !up)
    }

    /// Says what the operator says. Returns whether that is new.
    pub(super) fn set_draining(&self, draining: bool) -> bool {
        self.set(Marks::DRAINING, draining)
    }

    /// Leaves it alone. Returns whether that is new.
    pub(super) fn eject(&self) -> bool {
        let trial = Marks::ON_TRIAL.or(Marks::TRIAL_OUT);
        let old = self
            .slots
            .mark(|marks| marks.without(trial).or(Marks::EJECTED));
        !old.has_any(Marks::EJECTED)
    }

    /// One request may try it.
    pub(super) fn put_on_trial(&self) {
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
            Admits::All => seen.marks(),
            Admits::Trial => seen.marks().or(Marks::TRIAL_OUT),
            Admits::None => return false,
        };
        self.slots.take(seen, marks)
    }

    /// The request on trial ended without a verdict: the next one may try. Returns whether one may.
    pub(super) fn give_trial_back(&self) -> bool {
        let old = self.slots.mark(|marks| marks.without(Marks::TRIAL_OUT));
        old.has_any(Marks::TRIAL_OUT)
    }

    /// That request went well. Returns whether it was out of service.
    pub(super) fn acquit(&self) -> bool {
        let out = Marks::EJECTED.or(Marks::ON_TRIAL);
        let old = self
            .slots
            .mark(|marks| marks.without(out.or(Marks::TRIAL_OUT)));
        old.has_any(out)
    }

    fn marks(&self) -> Marks {
        self.slots.load().marks()
    }

    fn set(&self, mark: Marks, on: bool) -> bool {
        let old = self.slots.mark(|marks| match on {
            true => marks.or(mark),
            false => marks.without(mark),
        });
        old.has_any(mark) != on
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
        assert!(availability.eject());
        assert!(!availability.set_up(true));
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.set_up(false));
        assert!(availability.acquit());
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.set_up(true));
        assert_eq!(admits(&availability), Admits::All);
    }

    #[test]
    fn one_request_at_a_time_is_on_trial() {
        let availability = Availability::new(9);
        availability.eject();
        availability.put_on_trial();
        assert_eq!(admits(&availability), Admits::Trial);
        assert!(!availability.is_healthy());
        assert!(take(&availability));
        assert!(!take(&availability));
        assert_eq!(admits(&availability), Admits::None);
        assert!(availability.give_trial_back());
        assert!(!availability.give_trial_back());
        assert!(take(&availability));
        assert!(availability.acquit());
        assert_eq!(admits(&availability), Admits::All);
        assert!(!availability.acquit());
    }

    #[test]
    fn a_trial_that_failed_is_an_ejection() {
        let availability = Availability::new(9);
        availability.eject();
        availability.put_on_trial();
        take(&availability);
        assert!(availability.eject());
        assert!(!availability.eject());
        assert!(!availability.give_trial_back());
        assert_eq!(admits(&availability), Admits::None);
    }

    #[test]
    fn nobody_is_tried_who_is_in_service_or_draining() {
        let availability = Availability::new(9);
        availability.put_on_trial();
        assert_eq!(admits(&availability), Admits::All);
        assert!(availability.set_draining(true));
        assert!(availability.is_healthy());
        assert!(availability.is_draining());
        availability.eject();
        availability.put_on_trial();
        assert!(!take(&availability));
    }

    #[test]
    fn a_slot_that_was_seen_free_is_not_taken_of_who_drains_since() {
        let availability = Availability::new(9);
        let seen = availability.slots.load();
        availability.set_draining(true);
        assert!(!availability.take(seen));
        assert!(!take(&availability));
        assert_eq!(availability.slots.load().in_use(), 0);
    }

    #[test]
    fn who_drains_on_trial_is_tried_afterwards() {
        let availability = Availability::new(1);
        availability.eject();
        availability.put_on_trial();
        availability.set_draining(true);
        assert!(availability.awaits_trial());
        availability.set_draining(false);
        assert!(take(&availability));
        assert!(availability.awaits_trial());
    }
}
