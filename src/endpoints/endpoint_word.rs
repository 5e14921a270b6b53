//! An endpoint's leases, limit and health in one atomic word: a slot is taken under exactly the limit and the health
//! that were checked, by one compare-and-swap.
//!
//! In words of their own, a limit that falls or an endpoint that is drained between the check and the count would let
//! one request too many through.
//!
//! From the lowest bit: 24 bits of leases, 24 bits of the limit, 8 bits of the last probe's number, 8 bits of
//! [`HealthFlags`].
//!
//! # Ejection
//!
//! ```text
//! closed --eject()--> EJECTED --half_open()--> HALF_OPEN --take()--> HALF_OPEN | PROBING
//!                        ^                         ^                       |
//!                        |                         +----return_probe()-----+  the probe had no result
//!                        +------------eject()------------------------------+  it failed
//! closed <------------------------------close()----------------------------+  it succeeded
//! ```
//!
//! Requests that began before may fail while a probe runs. The endpoint is ejected again then, and later probed by another
//! request: so each probe has a number, and the end of one that is over changes nothing.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst; // required by `Capacity`: slots and waiters are a store-load pair

use bitflags::bitflags;

/// The leases, the limit and the health of one endpoint. The limit may fall below the leases: slots released then are
/// not leased again.
#[derive(Debug)]
pub(crate) struct EndpointWord(AtomicU64);

bitflags! {
    /// What keeps requests from an endpoint. Each source of bad news has a flag of its own, so that a good check does
    /// no more than to begin the probe of an ejected endpoint, and a good probe does not end a failed check.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct HealthFlags: u8 {
        /// Its health checks fail.
        const DOWN = 1;
        /// It failed too many requests, and gets none for a while.
        const EJECTED = 1 << 1;
        /// That while is over: one request may probe it.
        const HALF_OPEN = 1 << 2;
        /// The probe is running.
        const PROBING = 1 << 3;
        /// The operator wants no new requests there.
        const DRAINING = 1 << 4;
        /// It has neither answered a request nor passed a check: it gets one request at a time.
        const NEW = 1 << 5;
        /// Its first check is still to come: endpoints that are known go first.
        const UNCHECKED = 1 << 6;
        /// It does not run, or is about to stop: its requests wait until it was started.
        const STOPPED = 1 << 7;
    }
}

/// Set until an endpoint has answered a request or had a check.
const UNKNOWN: HealthFlags = HealthFlags::NEW.union(HealthFlags::UNCHECKED);

/// Set while failures keep requests away. An endpoint that is probed is half open.
const FAILED: HealthFlags = HealthFlags::EJECTED
    .union(HealthFlags::HALF_OPEN)
    .union(HealthFlags::PROBING);

/// Which requests an endpoint may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admissible {
    /// Any.
    Always,
    /// Those for which no other endpoint has a slot free.
    LastResort,
    /// One: the probe.
    Probe,
    Never,
}

/// The flags of an endpoint before and after a change.
#[derive(Debug, Clone, Copy)]
#[must_use = "waiters and metrics have to be notified of it"]
pub(crate) struct HealthChange {
    old: HealthFlags,
    new: HealthFlags,
}

/// The number of a probe. It wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeId(u8);

/// The word at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

const COUNT_BITS: u32 = 24;
const PROBE_SHIFT: u32 = 2 * COUNT_BITS;
const FLAGS_SHIFT: u32 = PROBE_SHIFT + u8::BITS;

/// No endpoint has more slots, whatever is configured.
const MAX_SLOTS: u32 = (1 << COUNT_BITS) - 1;

impl EndpointWord {
    /// A healthy endpoint with `limit` slots.
    pub(super) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(Snapshot(0).with_limit(limit).0))
    }

    #[inline]
    pub(super) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(SeqCst))
    }

    /// Takes the slot that is free in `seen`, and the probe if the endpoint is half open. Fails if the word has changed
    /// since.
    #[inline]
    pub(super) fn take(&self, seen: Snapshot) -> bool {
        let admitted = match seen.flags().admissible() {
            Admissible::Always | Admissible::LastResort => seen,
            Admissible::Probe => seen.with_probe(seen.next_probe()),
            Admissible::Never => return false,
        };
        let taken = Snapshot(admitted.0 + 1); // one more lease: it does not overflow, a slot is free
        self.0
            .compare_exchange(seen.0, taken.0, SeqCst, SeqCst)
            .is_ok()
    }

    /// Gives a slot back. Returns how many are still leased.
    pub(super) fn release(&self) -> u32 {
        let before = Snapshot(self.0.fetch_sub(1, SeqCst)); // the lowest bits are the leases
        debug_assert!(before.in_use() > 0, "released a slot that was not leased");
        before.in_use() - 1
    }

    pub(super) fn set_limit(&self, limit: u32) {
        self.update(|word| word.with_limit(limit));
    }

    /// Changes the limit to one that was found by measurement, and says whether it is higher. A limit of 0 stays: the
    /// endpoint was taken out of service.
    pub(super) fn adapt_limit(&self, limit: u32) -> bool {
        if self.load().limit() == limit {
            return false; // nearly always
        }
        let old = self.update(|word| match word.limit() {
            0 => word,
            _ => word.with_limit(limit),
        });
        (1..limit).contains(&old.limit())
    }

    /// Marks the endpoint as new. If it has a check, known endpoints go first until the first result.
    pub(super) fn set_unknown(&self, is_checked: bool) {
        let unknown = match is_checked {
            true => UNKNOWN,
            false => HealthFlags::NEW,
        };
        _ = self.change(|flags| flags | unknown);
    }

    /// The endpoint has answered a request. `None` if it was known before.
    pub(crate) fn answered(&self) -> Option<HealthChange> {
        // A load first: most endpoints are known, and this runs for each response.
        let is_news = self.flags().intersects(UNKNOWN);
        is_news.then(|| self.change(|flags| flags - UNKNOWN))
    }

    /// The endpoint has no check any more: only requests show whether it works.
    pub(super) fn expect_no_check(&self) {
        if self.flags().contains(HealthFlags::UNCHECKED) {
            _ = self.change(|flags| flags - HealthFlags::UNCHECKED);
        }
    }

    /// Past checks do not count any more. An endpoint that was down is new again.
    #[cfg(feature = "client")]
    pub(crate) fn forget_checks(&self) -> HealthChange {
        self.change(|flags| match flags.contains(HealthFlags::DOWN) {
            true => (flags - HealthFlags::DOWN) | HealthFlags::NEW,
            false => flags,
        })
    }

    /// Whether neither checks nor failures keep requests away.
    pub(super) fn is_healthy(&self) -> bool {
        self.flags().is_healthy()
    }

    /// Whether failures keep requests away: it is ejected or half open.
    pub(super) fn is_ejected(&self) -> bool {
        self.flags().intersects(FAILED)
    }

    /// Whether it gets more requests than a probe.
    pub(super) fn is_in_service(&self) -> bool {
        matches!(
            self.flags().admissible(),
            Admissible::Always | Admissible::LastResort
        )
    }

    /// Whether it is to be probed, now or when nothing else keeps requests away.
    pub(super) fn is_half_open(&self) -> bool {
        self.flags().contains(HealthFlags::HALF_OPEN)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.flags().contains(HealthFlags::DRAINING)
    }

    /// A check passed or failed.
    pub(crate) fn set_up(&self, up: bool) -> HealthChange {
        self.change(|flags| match up {
            true => flags - UNKNOWN - HealthFlags::DOWN,
            false => (flags - UNKNOWN) | HealthFlags::DOWN,
        })
    }

    pub(crate) fn set_draining(&self, draining: bool) -> HealthChange {
        self.change(|flags| match draining {
            true => flags | HealthFlags::DRAINING,
            false => flags - HealthFlags::DRAINING,
        })
    }

    /// Whether it does not run, or is about to stop.
    #[cfg(feature = "swap")]
    pub(super) fn is_stopped(&self) -> bool {
        self.flags().contains(HealthFlags::STOPPED)
    }

    #[cfg(feature = "swap")]
    pub(super) fn set_stopped(&self, stopped: bool) -> HealthChange {
        self.change(|flags| match stopped {
            true => flags | HealthFlags::STOPPED,
            false => flags - HealthFlags::STOPPED,
        })
    }

    /// The same, to stop it, unless it serves a request. Returns whether it is stopped.
    #[cfg(feature = "swap")]
    pub(super) fn stop_if_idle(&self) -> bool {
        // One step: a request that takes a slot at the same time either is seen here or finds the endpoint stopped.
        let update = self.0.fetch_update(SeqCst, SeqCst, |word| {
            let word = Snapshot(word);
            let stopped = word.flags() | HealthFlags::STOPPED;
            (word.in_use() == 0).then(|| word.with_flags(stopped).0)
        });
        update.is_ok()
    }

    /// Ejects the endpoint: it gets no requests until it is half open.
    pub(crate) fn eject(&self) -> HealthChange {
        self.change(|flags| (flags - FAILED) | HealthFlags::EJECTED)
    }

    /// Lets one request probe an ejected endpoint. Returns `false` if it was not ejected.
    pub(super) fn half_open(&self) -> bool {
        // A load first: this runs after each check that passes.
        if !self.flags().contains(HealthFlags::EJECTED) {
            return false;
        }
        let change = self.change(|flags| match flags.contains(HealthFlags::EJECTED) {
            true => (flags - HealthFlags::EJECTED) | HealthFlags::HALF_OPEN,
            false => flags,
        });
        change.is_new()
    }

    /// This probe ended without a result: the next request may probe. Returns whether it was still the endpoint's.
    pub(super) fn return_probe(&self, probe: ProbeId) -> bool {
        let old = self.update(|word| match word.is_probed_by(probe) {
            true => word.with_flags(word.flags() - HealthFlags::PROBING),
            false => word,
        });
        old.is_probed_by(probe)
    }

    /// Whether this probe is still the endpoint's: it was not ejected or closed since.
    pub(crate) fn is_probed_by(&self, probe: ProbeId) -> bool {
        self.load().is_probed_by(probe)
    }

    /// The probe succeeded, or the endpoint must not be ejected: failures keep no requests away.
    pub(crate) fn close(&self) -> HealthChange {
        self.change(|flags| flags - FAILED)
    }

    fn flags(&self) -> HealthFlags {
        self.load().flags()
    }

    /// Changes the flags, and says from what to what.
    fn change(&self, next: impl Fn(HealthFlags) -> HealthFlags) -> HealthChange {
        let old = self.update(|word| word.with_flags(next(word.flags())));
        let old = old.flags();
        let new = next(old);
        HealthChange { old, new }
    }

    /// Replaces the word by a compare-and-swap loop. Returns the word before.
    fn update(&self, next: impl Fn(Snapshot) -> Snapshot) -> Snapshot {
        let word = self
            .0
            .fetch_update(SeqCst, SeqCst, |word| Some(next(Snapshot(word)).0));
        // The closure never returns `None`, so both are the word before.
        Snapshot(word.unwrap_or_else(|word| word))
    }
}

impl HealthFlags {
    #[inline]
    pub(super) fn is_new(self) -> bool {
        self.contains(Self::NEW)
    }

    fn is_healthy(self) -> bool {
        !self.intersects(Self::DOWN | FAILED)
    }

    /// Whether it is out of service for a while only: ejected, or being probed.
    pub(super) fn is_recovering(self) -> bool {
        self.intersects(Self::EJECTED | Self::PROBING)
            && !self.intersects(Self::DOWN | Self::DRAINING)
    }

    /// Whether a strategy may choose the endpoint: in the first round, or in the last one.
    #[inline]
    pub(super) fn are_offered(self, last_resort: bool) -> bool {
        match self.admissible() {
            Admissible::Always | Admissible::Probe => !last_resort,
            Admissible::LastResort => last_resort,
            Admissible::Never => false,
        }
    }

    /// Whether requests may wait for it: it gets some now, or would if it were started.
    pub(super) fn may_serve(self) -> bool {
        (self - Self::STOPPED).admissible() != Admissible::Never
    }

    #[inline]
    pub(super) fn admissible(self) -> Admissible {
        if self.is_empty() {
            return Admissible::Always; // most endpoints, most of the time
        }
        let known = self - UNKNOWN;
        if known == Self::HALF_OPEN {
            // Half open, and nothing else: no probe is running, and it is up and not draining.
            Admissible::Probe
        } else if !known.is_empty() {
            Admissible::Never
        } else if self.contains(Self::UNCHECKED) {
            Admissible::LastResort
        } else {
            Admissible::Always
        }
    }
}

impl HealthChange {
    pub(crate) fn is_new(self) -> bool {
        self.old != self.new
    }

    /// Whether the endpoint is healthy now, if it was not before, or the other way round.
    pub(crate) fn health(self) -> Option<bool> {
        let healthy = self.new.is_healthy();
        (healthy != self.old.is_healthy()).then_some(healthy)
    }
}

impl Snapshot {
    #[inline]
    pub(super) fn in_use(self) -> u32 {
        self.0 as u32 & MAX_SLOTS
    }

    #[inline]
    pub(super) fn limit(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32 & MAX_SLOTS
    }

    #[inline]
    pub(super) fn flags(self) -> HealthFlags {
        HealthFlags::from_bits_retain((self.0 >> FLAGS_SHIFT) as u8)
    }

    /// How many slots there are. A new endpoint has one slot.
    pub(super) fn slots(self) -> u32 {
        match self.flags().is_new() {
            true => self.limit().min(1),
            false => self.limit(),
        }
    }

    /// Whether there is a slot for one more.
    #[inline]
    pub(super) fn is_free(self) -> bool {
        self.in_use() < self.limit() && (self.in_use() == 0 || !self.flags().is_new())
    }

    /// Whether a larger share of the slots is free than in `other`. The limit of `other` must be above 0.
    pub(super) fn is_idler_than(self, other: Self) -> bool {
        // in_use / limit < other.in_use / other.limit, without a division; 24 + 24 bits do not overflow
        u64::from(self.in_use()) * u64::from(other.limit())
            < u64::from(other.in_use()) * u64::from(self.limit())
    }

    fn with_limit(self, limit: u32) -> Self {
        let limit = u64::from(limit.min(MAX_SLOTS)) << COUNT_BITS;
        Self(self.0 & !(u64::from(MAX_SLOTS) << COUNT_BITS) | limit)
    }

    /// The number of the probe that would begin now.
    pub(super) fn next_probe(self) -> ProbeId {
        ProbeId(self.last_probe().0.wrapping_add(1))
    }

    fn last_probe(self) -> ProbeId {
        ProbeId((self.0 >> PROBE_SHIFT) as u8)
    }

    fn is_probed_by(self, probe: ProbeId) -> bool {
        self.flags().contains(HealthFlags::PROBING) && self.last_probe() == probe
    }

    fn with_probe(self, ProbeId(number): ProbeId) -> Self {
        let others = self.0 & !(u64::from(u8::MAX) << PROBE_SHIFT);
        let probed = Self(others | u64::from(number) << PROBE_SHIFT);
        probed.with_flags(self.flags() | HealthFlags::PROBING)
    }

    fn with_flags(self, flags: HealthFlags) -> Self {
        let others = self.0 & ((1 << FLAGS_SHIFT) - 1);
        Self(others | u64::from(flags.bits()) << FLAGS_SHIFT)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_use, limit) = (self.in_use(), self.limit());
        write!(f, "{in_use} of {limit}, {:?}", self.flags())
    }
}

#[cfg(test)]
mod tests;
