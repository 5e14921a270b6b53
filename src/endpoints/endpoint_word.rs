//! The leases, limit and health of an endpoint in one atomic word. One compare-and-swap takes a slot under exactly the
//! limit and the health that were checked.
//!
//! With separate words, the limit could fall between the check and the count, and one request too many would get through.
//!
//! From the lowest bit, the word has 24 bits of leases, 24 bits of the limit, 8 bits of the last probe's number and 8
//! bits of [`HealthFlags`].
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
//! Requests that began earlier may fail while a probe runs. The endpoint is then ejected again, and later probed by
//! another request. So each probe has a number, and the end of an old probe is ignored.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst; // required by `Capacity`, because slots and waiters are a store-load pair

use bitflags::bitflags;

/// The leases, the limit and the health of one endpoint. If the limit falls below the leases, slots that come back are
/// retired.
#[derive(Debug)]
pub(crate) struct EndpointWord(AtomicU64);

bitflags! {
    /// The reasons that keep requests from an endpoint.
    ///
    /// Each source of bad news has a flag of its own, so that a good check or probe leaves the bad news of others in place.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct HealthFlags: u8 {
        /// Set while the health checks of the endpoint fail.
        const DOWN = 1;
        /// Set for a while after the endpoint failed too many requests.
        const EJECTED = 1 << 1;
        /// Set once the time of the ejection is over, so that one request may probe the endpoint.
        const HALF_OPEN = 1 << 2;
        /// Set while the probe is running, so that other requests stay away.
        const PROBING = 1 << 3;
        /// Set while the operator keeps new requests away from the endpoint.
        const DRAINING = 1 << 4;
        /// Set until an endpoint with a check has had one or has answered a request. Until then it gets one request at a
        /// time, and endpoints with known health go first.
        const UNKNOWN = 1 << 5;
        /// Set while the endpoint is stopped or about to stop, so that requests for it wait until it is started.
        const STOPPED = 1 << 6;
        /// Set after a caller had waited for much longer than usual and left, while the endpoint answered nobody. Until it
        /// answers, it gets one request at a time, and endpoints without the flag go first. Clients can set it, so it is set
        /// only while others can serve all that the endpoint serves, and not for long.
        const SILENT = 1 << 7;
    }
}

/// The flags that are set while failures keep requests away.
const FAILED: HealthFlags = HealthFlags::EJECTED
    .union(HealthFlags::HALF_OPEN)
    .union(HealthFlags::PROBING);

/// The flags that an answer clears. With either of them, the endpoint is the last resort, and has one slot.
const NO_ANSWER: HealthFlags = HealthFlags::UNKNOWN.union(HealthFlags::SILENT);

/// The requests that an endpoint may get at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admissible {
    /// Any request may go to the endpoint.
    Always,
    /// Requests go to the endpoint if all others that could serve them are busy.
    LastResort,
    /// One request may go to the endpoint as its probe.
    Probe,
    /// Requests stay away from the endpoint.
    Never,
}

/// The flags of an endpoint before and after a change.
#[derive(Debug, Clone, Copy)]
#[must_use = "waiters and metrics have to be notified of it"]
pub(crate) struct HealthChange {
    old: HealthFlags,
    new: HealthFlags,
}

/// The number of a probe, which wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeId(u8);

/// The value of the word at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

const COUNT_BITS: u32 = 24;
const PROBE_SHIFT: u32 = 2 * COUNT_BITS;
const FLAGS_SHIFT: u32 = PROBE_SHIFT + u8::BITS;

/// The largest limit that fits into the word. A larger limit counts as this one.
pub(super) const MAX_SLOTS: u32 = (1 << COUNT_BITS) - 1;

impl EndpointWord {
    /// Makes the word of a healthy endpoint with `limit` slots.
    pub(super) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(Snapshot(0).with_limit(limit).0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(SeqCst))
    }

    /// Takes the slot that is free in `seen`, and the probe if the endpoint is half open, unless the word has changed.
    #[inline]
    pub(super) fn take(&self, seen: Snapshot) -> bool {
        let admitted = match seen.flags().admissible() {
            Admissible::Always | Admissible::LastResort => seen,
            Admissible::Probe => seen.with_probe(seen.next_probe()),
            Admissible::Never => return false,
        };
        let taken = Snapshot(admitted.0 + 1); // one more lease, which cannot overflow because a slot is free
        self.0
            .compare_exchange(seen.0, taken.0, SeqCst, SeqCst)
            .is_ok()
    }

    /// Gives a slot back, and returns the number of slots that are still leased.
    pub(super) fn release(&self) -> u32 {
        let before = Snapshot(self.0.fetch_sub(1, SeqCst)); // the lowest bits are the leases
        debug_assert!(before.in_use() > 0, "released a slot that was not leased");
        before.in_use() - 1
    }

    /// Sets the limit, and keeps the leases that exceed it.
    pub(super) fn set_limit(&self, limit: u32) {
        self.update(|word| word.with_limit(limit));
    }

    /// Records that the endpoint has answered a request. Returns `None` if that is no news.
    pub(crate) fn answered(&self) -> Option<HealthChange> {
        // The load comes first because this runs for each response, while the health of most endpoints is known.
        let is_news = self.flags().intersects(NO_ANSWER);
        is_news.then(|| self.set(NO_ANSWER, false))
    }

    /// Forgets past checks, and awaits none. Requests show from now on if the endpoint works.
    #[cfg(feature = "client")]
    pub(crate) fn forget_checks(&self) -> HealthChange {
        self.set(HealthFlags::DOWN | HealthFlags::UNKNOWN, false)
    }

    /// Records that a check passed or failed.
    pub(crate) fn set_up(&self, up: bool) -> HealthChange {
        self.change(|mut flags| {
            flags.remove(HealthFlags::UNKNOWN);
            flags.set(HealthFlags::DOWN, !up);
            flags
        })
    }

    /// Sets or clears `flags`.
    pub(crate) fn set(&self, flags: HealthFlags, is_set: bool) -> HealthChange {
        self.change(|mut all| {
            all.set(flags, is_set);
            all
        })
    }

    /// Stops the endpoint unless it serves a request. Returns `true` if it is stopped.
    pub(super) fn stop_if_idle(&self) -> bool {
        // One atomic step does both. A concurrent request either is seen here or finds the endpoint stopped.
        let update = self.0.fetch_update(SeqCst, SeqCst, |word| {
            let word = Snapshot(word);
            let stopped = word.flags() | HealthFlags::STOPPED;
            (word.in_use() == 0).then(|| word.with_flags(stopped).0)
        });
        update.is_ok()
    }

    /// Ejects the endpoint, so that requests stay away until it is half open.
    pub(crate) fn eject(&self) -> HealthChange {
        self.change(|flags| (flags - FAILED) | HealthFlags::EJECTED)
    }

    /// Lets one request probe an ejected endpoint. Returns `false` if it was not ejected.
    pub(super) fn half_open(&self) -> bool {
        // The load comes first because this runs after each check that passes.
        if !self.flags().contains(HealthFlags::EJECTED) {
            return false;
        }
        let change = self.change(|flags| match flags.contains(HealthFlags::EJECTED) {
            true => (flags - HealthFlags::EJECTED) | HealthFlags::HALF_OPEN,
            false => flags,
        });
        change.is_new()
    }

    /// Ends a probe that has no result, so that the next request may probe. Returns `true` if it was the current probe.
    pub(super) fn return_probe(&self, probe: ProbeId) -> bool {
        let old = self.update(|word| match word.is_probed_by(probe) {
            true => word.with_flags(word.flags() - HealthFlags::PROBING),
            false => word,
        });
        old.is_probed_by(probe)
    }

    /// Ends the ejection, because the probe succeeded or the endpoint must not be ejected.
    pub(crate) fn close(&self) -> HealthChange {
        self.set(FAILED, false)
    }

    pub(super) fn flags(&self) -> HealthFlags {
        self.load().flags()
    }

    /// Changes the flags by `next`, and returns the flags before and after.
    fn change(&self, next: impl Fn(HealthFlags) -> HealthFlags) -> HealthChange {
        let old = self.update(|word| word.with_flags(next(word.flags())));
        let old = old.flags();
        let new = next(old);
        HealthChange { old, new }
    }

    /// Replaces the word by a compare-and-swap loop, and returns the word before.
    fn update(&self, next: impl Fn(Snapshot) -> Snapshot) -> Snapshot {
        let next = |word| Some(next(Snapshot(word)).0);
        // The closure always returns `Some`, so both variants hold the word before.
        let (Ok(word) | Err(word)) = self.0.fetch_update(SeqCst, SeqCst, next);
        Snapshot(word)
    }
}

impl HealthFlags {
    /// Returns `true` if neither checks nor failures keep requests away.
    pub(super) fn is_healthy(self) -> bool {
        !self.intersects(Self::DOWN | FAILED)
    }

    /// Returns `true` if failures keep requests away, because the endpoint is ejected or half open.
    pub(super) fn is_ejected(self) -> bool {
        self.intersects(FAILED)
    }

    /// Returns `true` if the endpoint may get more requests than a probe.
    pub(super) fn is_in_service(self) -> bool {
        let admissible = self.admissible();
        matches!(admissible, Admissible::Always | Admissible::LastResort)
    }

    /// Returns `true` if the endpoint is out of service only for a while, because it is ejected or being probed.
    pub(super) fn is_recovering(self) -> bool {
        self.intersects(Self::EJECTED | Self::PROBING)
            && !self.intersects(Self::DOWN | Self::DRAINING)
    }

    /// Returns `true` if a strategy may choose the endpoint in this round.
    #[inline]
    pub(super) fn are_offered(self, last_resort: bool) -> bool {
        match self.admissible() {
            Admissible::Always | Admissible::Probe => !last_resort,
            Admissible::LastResort => last_resort,
            Admissible::Never => false,
        }
    }

    /// Returns `true` if the endpoint may get a request now, be it a probe.
    pub(super) fn may_get_requests(self) -> bool {
        self.admissible() != Admissible::Never
    }

    /// Returns `true` if requests may wait for the endpoint. It gets requests now, or would get them if it were
    /// started.
    pub(super) fn may_serve(self) -> bool {
        (self - Self::STOPPED).admissible() != Admissible::Never
    }

    /// Returns the requests that the endpoint may get with these flags.
    #[inline]
    pub(super) fn admissible(self) -> Admissible {
        if self.is_empty() {
            return Admissible::Always; // the usual case
        }
        let known = self - NO_ANSWER;
        if known == Self::HALF_OPEN {
            // Half open is the only flag, so a probe is not running and the endpoint is up and not draining.
            Admissible::Probe
        } else if !known.is_empty() {
            Admissible::Never
        } else if self.intersects(NO_ANSWER) {
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

    /// Returns `true` if a report tells the two states apart: the endpoint left service or came back, its first answer
    /// came, it was started or stopped, or an operator began or ended to drain it.
    pub(super) fn is_reported(self) -> bool {
        let noted = HealthFlags::DRAINING | HealthFlags::UNKNOWN | HealthFlags::STOPPED;
        self.health().is_some() || !((self.old ^ self.new) & noted).is_empty()
    }

    /// Returns the new health if the change made the endpoint healthy or unhealthy, and `None` otherwise.
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

    /// Returns `true` while an endpoint on demand is closed.
    pub(super) fn is_stopped(self) -> bool {
        self.flags().contains(HealthFlags::STOPPED)
    }

    #[inline]
    pub(super) fn limit(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32 & MAX_SLOTS
    }

    #[inline]
    pub(super) fn flags(self) -> HealthFlags {
        HealthFlags::from_bits_retain((self.0 >> FLAGS_SHIFT) as u8)
    }

    /// Returns the number of slots, which is at most 1 for an endpoint that has yet to answer.
    pub(super) fn slots(self) -> u32 {
        match self.flags().intersects(NO_ANSWER) {
            true => self.limit().min(1),
            false => self.limit(),
        }
    }

    /// Returns `true` if there is a slot for one more request.
    #[inline]
    pub(super) fn is_free(self) -> bool {
        self.in_use() < self.limit() && (self.in_use() == 0 || !self.flags().intersects(NO_ANSWER))
    }

    /// Returns `true` if a larger share of the slots is free than in `other`. The limit of `other` must be above 0.
    pub(super) fn is_idler_than(self, other: Self) -> bool {
        // The comparison in_use / limit < other.in_use / other.limit, without a division. Products of 24 bits fit into
        // 64 bits.
        u64::from(self.in_use()) * u64::from(other.limit())
            < u64::from(other.in_use()) * u64::from(self.limit())
    }

    /// Replaces the bits of the limit, and keeps all others.
    fn with_limit(self, limit: u32) -> Self {
        let limit = u64::from(limit.min(MAX_SLOTS)) << COUNT_BITS;
        Self(self.0 & !(u64::from(MAX_SLOTS) << COUNT_BITS) | limit)
    }

    /// Returns the number of the probe that would begin now.
    pub(super) fn next_probe(self) -> ProbeId {
        ProbeId(((self.0 >> PROBE_SHIFT) as u8).wrapping_add(1))
    }

    /// Returns `true` if `probe` is running, because the flag is set and the number is its own.
    pub(crate) fn is_probed_by(self, probe: ProbeId) -> bool {
        self.flags().contains(HealthFlags::PROBING)
            && ProbeId((self.0 >> PROBE_SHIFT) as u8) == probe
    }

    /// Replaces the bits of the probe's number, and sets the flag of a running probe.
    fn with_probe(self, ProbeId(number): ProbeId) -> Self {
        let others = self.0 & !(u64::from(u8::MAX) << PROBE_SHIFT);
        let probed = Self(others | u64::from(number) << PROBE_SHIFT);
        probed.with_flags(self.flags() | HealthFlags::PROBING)
    }

    /// Replaces the bits of the flags, which are the highest ones.
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
