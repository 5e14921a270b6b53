//! The endpoints that a strategy may choose from.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed; // turns are given out, nothing else depends on them
use std::time::Duration;

use crate::route::EndpointRef;
use crate::route::endpoints::{Lane, Server};
use crate::route::latency::Moment;
use crate::route::slots::Load;

/// The endpoints that can serve a request: they have the model, do what is asked, and are well.
pub struct Candidates<'a> {
    pub(in crate::route) servers: &'a [Server],
    /// Whose each of them is.
    pub(in crate::route) endpoints: &'a [EndpointRef],
    pub(in crate::route) lane: &'a Lane,
    pub(in crate::route) prefix: Option<u64>,
    pub(in crate::route) avoiding: bool,
    pub(in crate::route) turns: &'a AtomicU64,
    pub(in crate::route) turn: Cell<Option<u64>>,
    pub(in crate::route) now: Cell<Option<Moment>>,
}

impl<'a> Candidates<'a> {
    /// Those that have a slot free, in the registry's order.
    pub fn free(&self) -> impl Iterator<Item = Candidate<'a>> {
        self.all().filter(|candidate| candidate.is_free())
    }

    /// All of them, those that are busy included, in the registry's order.
    pub fn all(&self) -> impl Iterator<Item = Candidate<'a>> {
        let (lane, avoiding) = (self.lane, self.avoiding);
        let servers = self.servers.iter().zip(self.endpoints);
        servers
            .filter_map(move |(server, endpoint)| Candidate::of(server, endpoint, lane, avoiding))
    }

    /// How many places there are, those of endpoints included that cannot serve the request.
    #[must_use]
    pub fn places(&self) -> usize {
        self.servers.len()
    }

    /// Who is at a place, if it can serve the request.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<Candidate<'a>> {
        let (server, endpoint) = (self.servers.get(place)?, self.endpoints.get(place)?);
        Candidate::of(server, endpoint, self.lane, self.avoiding)
    }

    /// How many requests for the model were given a turn before this one. Each has a turn of its own, which
    /// it gets when it is first asked for.
    #[must_use]
    pub fn turn(&self) -> u64 {
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
        Duration::from_micros(self.first_byte_micros(candidate).into())
    }

    /// The same, but up at once when it rises, and down slowly.
    #[must_use]
    pub fn peak_latency(&self, candidate: &Candidate<'_>) -> Duration {
        Duration::from_micros(self.peak_micros(candidate).into())
    }

    pub(super) fn first_byte_micros(&self, candidate: &Candidate<'_>) -> u32 {
        candidate.server.live.latency.first_byte.micros(self.now())
    }

    pub(super) fn peak_micros(&self, candidate: &Candidate<'_>) -> u32 {
        candidate.server.live.latency.peak.micros(self.now())
    }

    fn now(&self) -> Moment {
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
    pub(in crate::route) server: &'a Server,
    pub(in crate::route) endpoint: &'a EndpointRef,
    pub(in crate::route) seen: Load,
    /// Whether the request would be its trial.
    pub(in crate::route) trial: bool,
}

impl<'a> Candidate<'a> {
    /// `server`, if it may be given a request of `lane`.
    #[inline]
    fn of(
        server: &'a Server,
        endpoint: &'a EndpointRef,
        lane: &Lane,
        avoiding: bool,
    ) -> Option<Self> {
        let (seen, trial) = server.look(lane, avoiding)?;
        Some(Self {
            server,
            endpoint,
            seen,
            trial,
        })
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
        self.seen.in_use
    }

    /// How many requests it may serve at a time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.seen.limit
    }

    /// Whether it has a slot free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.seen.free() > 0
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
