//! The record of one request, from the arrival of its head to the end of its response's body.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use http::HeaderValue;
use tower_triage::Ticket;
use tower_triage::admit::Tenant;
use tower_triage::endpoints::Decision;
use tower_triage::route::RouteObserver;

use super::Key;

/// The record of one request. The router tells it the facts, and the response's body the bytes.
pub(crate) struct Record {
    /// The `x-request-id`: visible ASCII. A client chooses it, so several requests may have the same one.
    pub(crate) id: HeaderValue,
    /// The key that no other request of this process has.
    pub(crate) key: Key,
    /// `true` if the request is logged, so that the level and the tenant of each one are wanted.
    is_logged: bool,
    is_cancelled: AtomicBool,
    /// Wakes the task of the request when it is cancelled.
    waker: AtomicWaker,
    bytes: AtomicU64,
    facts: Mutex<Facts>,
}

/// The facts about a request that the router tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) phase: Phase,
    /// The first time that the router told. `None` if the router has not seen the request.
    pub(crate) since: Option<Instant>,
    /// The start of the present wait.
    queued: Option<Instant>,
    /// The sum of the waits that are over.
    waited: Duration,
    called: Option<Instant>,
    answered: Option<Instant>,
    /// The name that the request asks for.
    pub(crate) asked: Option<Arc<str>>,
    pub(super) level: Option<Arc<str>>,
    pub(super) tenant: Tenant,
    /// The decision of the last call.
    pub(crate) decision: Option<Decision>,
    pub(crate) tries: u32,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) tokens: Option<u64>,
    /// `true` if the answer is an error, or has one in it, although its status says success.
    pub(crate) has_error_in_stream: bool,
}

/// The phase of a request that the router works on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Phase {
    #[default]
    Reading,
    Waiting,
    Running,
    Streaming,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Streaming => "streaming",
        }
    }
}

impl Record {
    pub(crate) fn new(id: HeaderValue, is_logged: bool) -> Self {
        Self {
            id,
            key: Key::next(),
            is_logged,
            is_cancelled: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            bytes: AtomicU64::new(0),
            facts: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default() // visible ASCII only
    }

    pub(crate) fn facts(&self) -> Facts {
        self.lock().clone()
    }

    /// Passes the facts to `read`, while the record is locked.
    pub(crate) fn with_facts<T>(&self, read: impl FnOnce(&Facts) -> T) -> T {
        read(&self.lock())
    }

    /// Returns `true` if the answer is an error, or has one in it, although its status says success.
    pub(crate) fn has_error_in_stream(&self) -> bool {
        self.lock().has_error_in_stream
    }

    /// Returns `true` if the router has seen the request.
    pub(super) fn is_routed(&self) -> bool {
        self.lock().since.is_some()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) // a counter: no order needed
    }

    /// Counts bytes of the body. One task at a time counts.
    pub(crate) fn count(&self, bytes: usize) {
        let sum = self.bytes() + bytes as u64;
        self.bytes.store(sum, Ordering::Relaxed);
    }

    /// Ends the request as soon as its task runs.
    pub(super) fn cancel(&self) {
        // Before the task is woken, which reads the flag then. The waker orders the two.
        self.is_cancelled.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Returns `true` if the request is cancelled. Otherwise its task is woken when it is.
    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.is_cancelled() // after the waker is there, so that no cancellation is missed
    }

    /// Ends the wait of a request that was refused.
    pub(crate) fn end_wait(&self) {
        let mut facts = self.lock();
        if facts.queued.is_some() {
            facts.waited = facts.waited(Instant::now());
            facts.queued = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    /// Returns the time that the request has waited for slots, up to `now`.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        let present = self
            .queued
            .map(|since| now.saturating_duration_since(since));
        self.waited + present.unwrap_or_default()
    }

    /// Returns the time from the last call to the head of its answer.
    pub(crate) fn first_byte(&self) -> Option<Duration> {
        Some(self.answered?.saturating_duration_since(self.called?))
    }

    fn begin(&mut self, phase: Phase, at: Instant) {
        self.phase = phase;
        self.since.get_or_insert(at);
    }
}

impl RouteObserver for Record {
    fn wants_ticket(&self) -> bool {
        self.is_logged
    }

    fn wants_tokens(&self) -> bool {
        true // for the metrics
    }

    fn on_reading(&self, at: Instant) {
        self.lock().begin(Phase::Reading, at);
    }

    fn on_asked(&self, model: &Arc<str>) {
        self.lock().asked = Some(Arc::clone(model));
    }

    fn on_ticket(&self, ticket: &Ticket, level: &str) {
        let mut facts = self.lock();
        facts.level = Some(level.into());
        facts.tenant = ticket.tenant.clone();
    }

    fn on_queued(&self, at: Instant) {
        let mut facts = self.lock();
        facts.begin(Phase::Waiting, at);
        facts.queued.get_or_insert(at);
        facts.answered = None;
    }

    fn on_error_in_stream(&self) {
        self.lock().has_error_in_stream = true;
    }

    fn on_called(&self, decision: &Decision, at: Instant) {
        let mut facts = self.lock();
        facts.begin(Phase::Running, at);
        facts.waited = facts.waited(at);
        facts.queued = None;
        (facts.called, facts.answered) = (Some(at), None);
        facts.decision = Some(decision.clone());
        facts.has_error_in_stream = false;
        facts.tries += 1;
    }

    fn on_answered(&self, at: Instant) {
        let mut facts = self.lock();
        facts.phase = Phase::Streaming;
        facts.answered = Some(at);
    }

    fn on_tokens(&self, prompt: Option<u64>, output: u64) {
        let mut facts = self.lock();
        (facts.prompt_tokens, facts.tokens) = (prompt, Some(output));
    }
}
