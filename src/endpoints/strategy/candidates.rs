//! The endpoints that a strategy may choose from.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // a counter: no other memory depends on it
use std::time::Duration;

use super::Choice;
use crate::admit::KeptSlots;
use crate::endpoints::backends::Backend;
use crate::endpoints::endpoint_word::{Admissible, Snapshot};
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{EndpointRef, Lane};

/// The endpoints that can serve a request: they have the model, can do what is asked, and are healthy.
///
/// Endpoints that have answered no request and have not had their first check are not among them as long as one of
/// the others has a slot free; a strategy is then asked a second time, to choose among those.
pub struct Candidates<'a> {
    pub(crate) backends: &'a [Backend],
    pub(crate) query: &'a Lane,
    /// Whether these are the endpoints of the last resort: those that have yet to be checked.
    pub(crate) last_resort: bool,
    /// The slots of each endpoint that the request has to leave free.
    pub(crate) kept: KeptSlots,
    pub(crate) prefix: Option<u64>,
    pub(crate) next_rotation: &'a AtomicU64,
    /// Drawn at the first use.
    pub(crate) rotation: Cell<Option<u64>>,
    /// Read at the first use.
    pub(crate) now: Cell<Option<CoarseInstant>>,
}

impl<'a> Candidates<'a> {
    /// Those that have a slot free, in the registry's order.
    pub fn free(&self) -> impl Iterator<Item = Candidate<'a>> {
        self.all().filter(|candidate| candidate.is_free())
    }

    /// The first of the free ones that no other is `better` than. A loop, as `min_by` moves each candidate.
    pub(super) fn best(
        &self,
        better: impl Fn(&Candidate<'a>, &Candidate<'a>) -> bool,
    ) -> Option<Choice<'a>> {
        let mut free = self.free();
        let mut best = free.next()?;
        for next in free {
            if better(&next, &best) {
                best = next;
            }
        }
        Some(Choice::new(best))
    }

    /// All of them, the busy ones included, in the registry's order.
    pub fn all(&self) -> impl Iterator<Item = Candidate<'a>> {
        let (query, last_resort, kept) = (self.query, self.last_resort, self.kept);
        let backends = self.backends.iter();
        backends.filter_map(move |backend| Candidate::new(backend, query, last_resort, kept))
    }

    /// How many endpoints have the model, including those that cannot serve the request: the bound of
    /// [`get`](Self::get).
    #[must_use]
    pub fn len(&self) -> usize {
        self.backends.len()
    }

    /// Whether no endpoint has the model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// The endpoint at `index`, if it can serve the request.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Candidate<'a>> {
        let backend = self.backends.get(index)?;
        Candidate::new(backend, self.query, self.last_resort, self.kept)
    }

    /// The position of this request in a rotation over the endpoints of its model: 0, 1, 2 and so on, one number per
    /// request, drawn at the first call.
    #[must_use]
    pub fn rotation(&self) -> u64 {
        let rotation = self
            .rotation
            .get()
            .unwrap_or_else(|| self.next_rotation.fetch_add(1, Relaxed));
        self.rotation.set(Some(rotation));
        rotation
    }

    /// A hash of the beginning of the prompt: equal for requests that share it. `None` if it is not known.
    #[must_use]
    pub fn prefix(&self) -> Option<u64> {
        self.prefix
    }

    /// A candidate's average time until the head of a response; zero if there was none of late.
    #[must_use]
    pub fn first_byte_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(candidate.first_byte_micros(self.now()).into())
    }

    /// The same, but a longer sample replaces the average at once.
    #[must_use]
    pub fn peak_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(candidate.peak_micros(self.now()).into())
    }

    /// One clock reading for the whole decision.
    pub(super) fn now(&self) -> CoarseInstant {
        let now = self.now.get().unwrap_or_else(CoarseInstant::now);
        self.now.set(Some(now));
        now
    }
}

impl fmt::Debug for Candidates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

/// An endpoint that can serve a request, and how busy it was when it was looked at.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    pub(crate) backend: &'a Backend,
    pub(crate) seen: Snapshot,
    /// How many of its slots the request has to leave free.
    kept: u32,
}

impl<'a> Candidate<'a> {
    /// `None` if the endpoint cannot serve `query` in this round.
    #[inline]
    fn new(backend: &'a Backend, query: &Lane, last_resort: bool, kept: KeptSlots) -> Option<Self> {
        let seen = backend.offer(query, last_resort)?;
        let kept = kept.of(seen.limit() as usize) as u32; // below the limit
        Some(Self {
            backend,
            seen,
            kept,
        })
    }

    #[inline]
    pub(super) fn first_byte_micros(&self, now: CoarseInstant) -> u32 {
        self.backend.state.latency.first_byte.micros(now)
    }

    #[inline]
    pub(super) fn peak_micros(&self, now: CoarseInstant) -> u32 {
        self.backend.state.latency.peak.micros(now)
    }

    /// Whether the request would be its probe.
    pub(crate) fn is_probe(&self) -> bool {
        self.seen.flags().admissible() == Admissible::Probe
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &'a EndpointRef {
        &self.backend.endpoint
    }

    /// Lower is preferred: 0 to 100.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.backend.priority.into()
    }

    /// How many requests it serves.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.seen.in_use()
    }

    /// How many requests it may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.seen.limit()
    }

    /// Whether it has a slot free for the request, beside those that are kept for higher levels. Until it has answered, or
    /// a check has, it has one slot at most.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.seen.is_free() && self.seen.in_use() + self.kept < self.seen.limit()
    }
}

impl fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("endpoint", &self.endpoint().name())
            .field("in_flight", &self.in_flight())
            .field("limit", &self.limit())
            .finish()
    }
}
