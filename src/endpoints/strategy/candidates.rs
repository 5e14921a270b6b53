//! The endpoints that a strategy may choose from.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // a counter that guards no other memory
use std::time::Duration;

use super::Choice;
use crate::admit::KeptSlots;
use crate::endpoints::backends::{Backend, ModelBackends};
use crate::endpoints::endpoint_word::{Admissible, Snapshot};
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{Demand, EndpointRef, Lane};

/// The endpoints that can serve a request because they have the model, have the capabilities and are healthy.
///
/// An endpoint that has yet to pass its first health check is left out as long as another endpoint has a slot free. If all
/// others are busy, the strategy is called a second time, for the endpoints that were left out.
pub struct Candidates<'a> {
    backends: &'a [Backend],
    query: &'a Lane,
    /// `true` in the second call, for which the candidates are the endpoints that have yet to be checked.
    pub(crate) last_resort: bool,
    /// The slots of each endpoint that are reserved for higher levels, so that the request has to leave them free.
    kept: KeptSlots,
    prefix: Option<u64>,
    next_rotation: &'a AtomicU64,
    /// The position in the rotation, which is drawn at the first use.
    rotation: Cell<Option<u64>>,
    /// The time, which is read at the first use.
    now: Cell<Option<CoarseInstant>>,
}

impl<'a> Candidates<'a> {
    pub(in crate::endpoints) fn new(
        model: &'a ModelBackends,
        demand: &'a Demand,
        kept: KeptSlots,
    ) -> Self {
        Self {
            backends: &model.backends,
            query: &demand.asked,
            last_resort: false,
            kept,
            prefix: demand.prefix,
            next_rotation: &model.rotation,
            rotation: Cell::new(None),
            now: Cell::new(None),
        }
    }

    /// Returns the candidates that have a slot free, in the order of the registry.
    pub fn free(&self) -> impl Iterator<Item = Candidate<'a>> {
        self.all().filter(|candidate| candidate.is_free())
    }

    /// Returns one of the best free candidates, each with the same probability. Otherwise one that is frozen and idle could
    /// get all requests. It loops by hand because `min_by` would move each candidate.
    pub(super) fn best(
        &self,
        better: impl Fn(&Candidate<'a>, &Candidate<'a>) -> bool,
    ) -> Option<Choice<'a>> {
        let mut free = self.free();
        let mut best = free.next()?;
        let mut ties = Ties::default();
        for next in free {
            if better(&next, &best) {
                best = next;
                ties = Ties::default();
            } else if !better(&best, &next) && ties.takes_next() {
                best = next;
            }
        }
        Some(Choice::new(best))
    }

    /// Returns all candidates, including those that are busy, in the order of the registry.
    pub fn all(&self) -> impl Iterator<Item = Candidate<'a>> {
        let (query, last_resort, kept) = (self.query, self.last_resort, self.kept);
        let backends = self.backends.iter();
        backends.filter_map(move |backend| Candidate::new(backend, query, last_resort, kept))
    }

    /// Returns the number of endpoints that have the model, which is the bound for [`get`](Self::get).
    #[must_use]
    pub fn len(&self) -> usize {
        self.backends.len()
    }

    /// Returns `true` if the model has no endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// Returns the candidate at `index`, or `None` if that endpoint cannot serve the request.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Candidate<'a>> {
        let backend = self.backends.get(index)?;
        Candidate::new(backend, self.query, self.last_resort, self.kept)
    }

    /// Returns the position of this request in a rotation over the endpoints of its model. The positions count up from 0,
    /// one for each request that asks.
    #[must_use]
    pub fn rotation(&self) -> u64 {
        let rotation = self
            .rotation
            .get()
            .unwrap_or_else(|| self.next_rotation.fetch_add(1, Relaxed));
        self.rotation.set(Some(rotation));
        rotation
    }

    /// Returns a hash of the beginning of the prompt, if it is known. It is equal for requests that share the beginning.
    #[must_use]
    pub fn prefix(&self) -> Option<u64> {
        self.prefix
    }

    /// Returns a candidate's average time until the head of a response arrives, or zero without a response lately.
    #[must_use]
    pub fn first_byte_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(
            candidate
                .backend
                .state
                .latency
                .first_byte
                .micros(self.now())
                .into(),
        )
    }

    /// Returns the time of the decision. The clock is read once, so that all candidates are compared at the same time.
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

/// The number of equal candidates so far, of which one is drawn.
#[derive(Debug)]
pub(super) struct Ties(u32);

impl Default for Ties {
    fn default() -> Self {
        Self(1)
    }
}

impl Ties {
    /// Counts one more candidate. Returns `true` if it takes the place of the one before, which happens with probability
    /// 1/n for the nth, so that all have the same probability in the end.
    pub(super) fn takes_next(&mut self) -> bool {
        self.0 += 1;
        fastrand::u32(..self.0) == 0
    }
}

/// An endpoint that can serve a request, with its load at the moment when the router looked at it.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    pub(crate) backend: &'a Backend,
    pub(crate) seen: Snapshot,
    /// The number of the endpoint's slots that the request has to leave free.
    kept: u32,
}

impl<'a> Candidate<'a> {
    /// Returns `None` if the endpoint cannot serve `query` in this round.
    #[inline]
    fn new(backend: &'a Backend, query: &Lane, last_resort: bool, kept: KeptSlots) -> Option<Self> {
        let seen = backend.offer(query, last_resort)?;
        let kept = kept.of(seen.limit() as usize) as u32; // below the limit, so it fits
        Some(Self {
            backend,
            seen,
            kept,
        })
    }

    /// Returns `true` if the request would be the probe of a half-open endpoint.
    pub(crate) fn is_probe(&self) -> bool {
        self.seen.flags().admissible() == Admissible::Probe
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &'a EndpointRef {
        &self.backend.endpoint
    }

    /// Returns the priority number, from 0 to 100. Endpoints with a lower number are preferred.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.backend.priority.into()
    }

    /// Returns the number of requests that the endpoint served when the router looked at it.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.seen.in_use()
    }

    /// Returns the number of requests that the endpoint may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.seen.limit()
    }

    /// Returns `true` if the endpoint has a slot free for the request, besides those reserved for higher levels. A new
    /// endpoint has at most one slot.
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
