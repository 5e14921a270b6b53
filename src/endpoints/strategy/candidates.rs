//! The endpoints that a strategy may choose from.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // turns are given out, nothing else depends on them
use std::time::Duration;

use crate::endpoints::EndpointRef;
use crate::endpoints::availability::Admits;
use crate::endpoints::backends::Server;
use crate::endpoints::lane::Asks;
use crate::endpoints::latency::Moment;
use crate::endpoints::slots::Load;

/// The endpoints that can serve a request: they have the model, do what is asked, and are well.
///
/// Endpoints whose first check is still to come, and that have answered no request, are not among them as long as
/// one of the others has a slot free; a strategy is then asked a second time, to choose among those.
pub struct Candidates<'a> {
    pub(crate) servers: &'a [Server],
    /// Whose each of them is.
    pub(crate) endpoints: &'a [EndpointRef],
    pub(crate) asks: Asks<'a>,
    /// Whether these are the ones that come last: of which nothing is known.
    pub(crate) last: bool,
    pub(crate) prefix: Option<u64>,
    pub(crate) turns: &'a AtomicU64,
    pub(crate) turn: Cell<Option<u64>>,
    pub(crate) now: Cell<Option<Moment>>,
}

impl<'a> Candidates<'a> {
    /// Those that have a slot free, in the registry's order.
    pub fn free(&self) -> impl Iterator<Item = Candidate<'a>> {
        self.all().filter(|candidate| candidate.is_free())
    }

    /// The first of the free ones that no other is `better` than.
    pub(super) fn best(
        &self,
        better: impl Fn(&Candidate<'a>, &Candidate<'a>) -> bool,
    ) -> Option<Candidate<'a>> {
        let mut free = self.free();
        let mut best = free.next()?;
        for next in free {
            if better(&next, &best) {
                best = next;
            }
        }
        Some(best)
    }

    /// All of them, those that are busy included, in the registry's order.
    pub fn all(&self) -> impl Iterator<Item = Candidate<'a>> {
        let (asks, last) = (self.asks, self.last);
        let servers = self.servers.iter().zip(self.endpoints);
        servers.filter_map(move |(server, endpoint)| Candidate::of(server, endpoint, asks, last))
    }

    /// How many endpoints have the model, including those that cannot serve the request: the bound of
    /// [`get`](Self::get).
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether no endpoint has the model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The endpoint at `index`, if it can serve the request.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Candidate<'a>> {
        let (server, endpoint) = (self.servers.get(index)?, self.endpoints.get(index)?);
        Candidate::of(server, endpoint, self.asks, self.last)
    }

    /// The position of this request in a rotation over the endpoints of its model: 0, 1, 2 and so on, one number per
    /// request, drawn at the first call.
    #[must_use]
    pub fn rotation(&self) -> u64 {
        let turn = self
            .turn
            .get()
            .unwrap_or_else(|| self.turns.fetch_add(1, Relaxed));
        self.turn.set(Some(turn));
        turn
    }

    /// A hash of the beginning of the prompt: equal for requests that share it. `None` if that is not known.
    #[must_use]
    pub fn prefix(&self) -> Option<u64> {
        self.prefix
    }

    /// How long a candidate took of late until the head of an answer was there, on average; zero if that is
    /// not known.
    #[must_use]
    pub fn first_byte_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(candidate.first_byte_micros(self.now()).into())
    }

    /// The same, but up at once when it rises, and down slowly.
    #[must_use]
    pub fn peak_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(candidate.peak_micros(self.now()).into())
    }

    /// The same moment for all that one decision looks at.
    pub(super) fn now(&self) -> Moment {
        let now = self.now.get().unwrap_or_else(Moment::now);
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
    pub(crate) server: &'a Server,
    pub(crate) endpoint: &'a EndpointRef,
    pub(crate) seen: Load,
}

impl<'a> Candidate<'a> {
    /// `server`, if it may be given a request that asks so, now or `last`.
    #[inline]
    fn of(
        server: &'a Server,
        endpoint: &'a EndpointRef,
        asks: Asks<'_>,
        last: bool,
    ) -> Option<Self> {
        let seen = server.offer(asks, last)?;
        Some(Self {
            server,
            endpoint,
            seen,
        })
    }

    #[inline]
    pub(super) fn first_byte_micros(&self, now: Moment) -> u32 {
        self.server.live.latency.first_byte.micros(now)
    }

    #[inline]
    pub(super) fn peak_micros(&self, now: Moment) -> u32 {
        self.server.live.latency.peak.micros(now)
    }

    /// Whether the request would be its trial.
    pub(crate) fn is_trial(&self) -> bool {
        self.seen.marks().admit() == Admits::Trial
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &'a EndpointRef {
        self.endpoint
    }

    /// Lower is preferred: 0 to 100.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.server.priority.into()
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

    /// Whether it has a slot free. Until it has answered, or a check has, it has one at most.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.seen.is_free()
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
