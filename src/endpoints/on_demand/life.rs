//! The states of an endpoint on demand.
//!
//! ```text
//!     Stopped -- start() --> Starting -- started() --> Running: open <----> closed
//!        ^ ^                    |                         |  open(), close(), close_if_idle(), a suspicion
//!        | +--- stopped() ------+                         |
//!        +--- stopped(), ended(how) ----------------------+
//! ```
//!
//! An endpoint is open only while it runs, its launcher lets it, no end is recorded and no suspicion is open. One lock guards
//! all of that, and the flag [`STOPPED`](HealthFlags::STOPPED) of the endpoint changes within it. A decision reads the flag
//! alone.
//!
//! A request without an answer makes its endpoint suspect, because the server may have ended. The launcher takes the
//! [`Suspicion`] and settles it, because it learns of an end a moment after the clients.

use std::mem::{Discriminant, discriminant};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::loading::Loading;
use super::{OnDemand, Refusal};
use crate::endpoints::endpoint_ref::EndpointState;
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{EndpointRef, HealthFlags};

/// The way in which a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEnd {
    /// The server ended by itself or ceased to answer: its requests get `model_crashed`.
    Crashed,
    /// The operator ended the server: its requests get `model_unloaded`.
    Killed,
}

/// The phase in which the launcher has the endpoint.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Stopped,
    Starting(Arc<Loading>),
    Running {
        /// `true` while the launcher lets the endpoint give slots.
        may_be_open: bool,
    },
}

/// The number of a refusal, by which it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusalId(u64);

/// The states of an endpoint, which change together.
#[derive(Debug, Default)]
pub(super) struct EndpointLife {
    phase: Phase,
    /// The number of starts.
    starts: u64,
    /// The end, until the next start.
    end: Option<EndpointEnd>,
    /// The number of suspicions.
    suspicions: u64,
    /// The number of suspicions that the launcher has taken.
    taken: u64,
    /// The number of suspicions that are settled, because the endpoint has ended, serves, or could not be checked.
    settled: u64,
    /// The number of suspicions at the launcher's last look, if it may leave suspicions to themselves.
    noticed: u64,
    /// The number of suspicions that were left to themselves. They are settled once the launcher holds none.
    forgotten: u64,
    /// The suspicions that the launcher holds, without those that are settled.
    held: Vec<u64>,
    /// The refusals that have not ended, of which the last one counts.
    refusals: Vec<(RefusalId, Refusal)>,
    /// The number of refusals so far.
    refused: u64,
    /// The endpoint that has these states, once it is in service.
    endpoint: Weak<EndpointState>,
}

impl EndpointLife {
    fn is_open(&self) -> bool {
        // An endpoint that has ended does not run.
        matches!(self.phase, Phase::Running { may_be_open: true })
            && self.settled == self.suspicions
    }

    /// Lets a server that runs give slots, or keeps it from that.
    fn let_be_open(&mut self, is_let: bool) {
        if let Phase::Running { may_be_open } = &mut self.phase {
            *may_be_open = is_let;
        }
    }

    /// Returns how the endpoint ended since its start number `starts`.
    fn end_since(&self, starts: u64) -> Option<EndpointEnd> {
        let is_other = self.starts != starts;
        self.end
            .or_else(|| is_other.then_some(EndpointEnd::Crashed))
    }

    /// Counts a suspicion, and returns its number.
    fn suspect(&mut self) -> u64 {
        self.suspicions += 1;
        self.suspicions
    }

    /// Settles the suspicions up to this number, and those that are forgotten if the launcher holds none.
    fn settle(&mut self, number: u64) {
        self.settled = self.settled.max(number);
        self.held.retain(|&held| held > self.settled);
        if self.held.is_empty() {
            self.settled = self.settled.max(self.forgotten);
        }
    }

    /// Forgets the suspicions up to this number that the launcher has not taken.
    fn forget(&mut self, number: u64) {
        if number > self.taken {
            (self.taken, self.forgotten) = (number, number);
            self.settle(0);
        }
    }

    /// Returns what the gate sees: if the endpoint is open, the kind of its phase, and its refusal.
    fn seen(&self) -> (bool, Discriminant<Phase>, Option<Refusal>) {
        (self.is_open(), discriminant(&self.phase), self.refusal())
    }

    pub(super) fn loading(&self) -> Option<&Arc<Loading>> {
        match &self.phase {
            Phase::Starting(loading) => Some(loading),
            Phase::Stopped | Phase::Running { .. } => None,
        }
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        let is_stopped = matches!(self.phase, Phase::Stopped);
        let refusals = self.refusals.iter().rev().map(|(_, refusal)| *refusal);
        // An endpoint whose guard outlives its launcher may still open.
        let mut refusals = refusals.filter(|it| is_stopped || *it != Refusal::NoLauncher);
        refusals.next()
    }
}

/// The result of a call, and whether the gate has to be told of it.
#[derive(Debug)]
pub(crate) struct Change<T> {
    pub(crate) result: T,
    /// `true` if the gate sees a difference.
    pub(crate) is_seen: bool,
}

/// An extension of a response, set if the suspicion that it stands for is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SuspicionSettled;

/// The time within which the launcher settles a suspicion, unless the launcher is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

/// The calls of the launcher. It tells the gate of them, for which several calls may count as one change.
impl OnDemand {
    /// Begins to start an endpoint, whose earlier starts took the time `usual`. Returns `None` if it is not stopped.
    pub(crate) fn start(&self, usual: Option<Duration>) -> Change<Option<Arc<Loading>>> {
        self.change(|life| {
            let is_stopped = matches!(life.phase, Phase::Stopped);
            let loading = is_stopped.then(|| Arc::new(Loading::begin(usual)))?;
            life.phase = Phase::Starting(Arc::clone(&loading));
            Some(loading)
        })
    }

    /// Returns `true` if [`start`](Self::start) would begin a start.
    pub(crate) fn is_startable(&self) -> bool {
        matches!(self.0.life.borrow().phase, Phase::Stopped)
    }

    /// Records that the server runs. The endpoint stays closed until it is [opened](Self::open).
    pub(crate) fn started(&self) {
        self.change(|life| {
            if let Some(endpoint) = life.endpoint.upgrade() {
                endpoint.forget_failures();
            }
            life.phase = Phase::Running { may_be_open: false };
            (life.starts, life.end) = (life.starts + 1, None);
            // Suspicions are of the server that ran before.
            life.taken = life.suspicions;
            life.settle(life.suspicions);
            self.0.ended_at.store(CoarseInstant::now().0, Relaxed); // a time for reports
        });
    }

    /// Records that the server was stopped without an end that its requests notice, or that its start was given up or failed.
    pub(crate) fn stopped(&self) -> Change<()> {
        self.change(|life| life.phase = Phase::Stopped)
    }

    /// Records how the server ended, of which the first end counts.
    pub(crate) fn ended(&self, end: EndpointEnd) -> Change<()> {
        self.change(|life| {
            if matches!(life.phase, Phase::Running { .. }) {
                life.phase = Phase::Stopped;
            }
            _ = life.end.get_or_insert(end);
        })
    }

    /// Lets the endpoint give slots, as soon as no suspicion is open. It has no effect unless the server runs.
    pub(crate) fn open(&self) -> Change<()> {
        self.change(|life| life.let_be_open(true))
    }

    /// Closes the endpoint, so that only requests that have a slot keep it.
    pub(crate) fn close(&self) -> Change<()> {
        self.change(|life| life.let_be_open(false))
    }

    /// Closes the endpoint in one atomic step unless it serves a request. Returns `true` if it is closed and idle.
    pub(crate) fn close_if_idle(&self) -> Change<bool> {
        self.change(|life| {
            let is_closed = match life.endpoint.upgrade() {
                Some(endpoint) => endpoint.close_if_idle(),
                None => true,
            };
            if is_closed {
                life.let_be_open(false);
            }
            is_closed
        })
    }

    /// Refuses requests while the endpoint is closed.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Change<RefusalId> {
        self.change(|life| {
            life.refused += 1;
            let id = RefusalId(life.refused);
            life.refusals.push((id, refusal));
            id
        })
    }

    /// Ends a refusal, and leaves others as they are.
    pub(crate) fn end_refusal(&self, id: RefusalId) -> Change<()> {
        self.change(|life| life.refusals.retain(|(other, _)| *other != id))
    }

    /// Moves the time of the next try after a start that failed.
    pub(crate) fn put_off(&self, id: RefusalId, retry_at: Instant) {
        self.change(|life| {
            let mut refusals = life.refusals.iter_mut();
            if let Some((_, refusal)) = refusals.find(|(other, _)| *other == id) {
                *refusal = Refusal::StartFailed { retry_at };
            }
        });
    }

    /// Forgets the suspicions that were not taken since the call before.
    pub(crate) fn forget_noticed(&self) {
        self.change_suspicions(|life| {
            let noticed = std::mem::replace(&mut life.noticed, life.suspicions);
            life.forget(noticed);
        });
    }

    /// Forgets all suspicions that were not taken.
    pub(crate) fn forget_suspicions(&self) {
        self.change_suspicions(|life| life.forget(life.suspicions));
    }

    /// Returns `true` if the next [`forget_noticed`](Self::forget_noticed) would forget a suspicion.
    pub(crate) fn has_noticed(&self) -> bool {
        let life = self.0.life.borrow();
        life.noticed > life.taken
    }

    /// Returns a suspicion if a request got no answer since the last one. The launcher drops it once it knows of an end, or that
    /// the server serves.
    pub(crate) fn take_suspicion(&self) -> Option<Suspicion> {
        let taken = self.change(|life| {
            let number = life.suspicions;
            let is_new = life.taken != number;
            is_new.then(|| {
                life.taken = number;
                life.held.push(number);
                number
            })
        });
        let (on_demand, number) = (self.clone(), taken.result?);
        Some(Suspicion { on_demand, number })
    }

    /// Changes the suspicions, and hands the endpoint's slots to waiters if that opens it.
    fn change_suspicions(&self, change: impl FnOnce(&mut EndpointLife)) {
        let opened = self.change(|life| {
            change(life);
            life.endpoint.upgrade()
        });
        if let Some(endpoint) = opened.result.filter(|_| opened.is_seen) {
            endpoint.tell_gate(); // without the lock of the states, which the gate's look at the slots takes
        }
    }

    /// Returns how the endpoint ended, until its next start.
    pub(crate) fn end(&self) -> Option<EndpointEnd> {
        self.0.life.borrow().end
    }

    /// Returns the load of the endpoint while it is being started.
    pub(crate) fn loading(&self) -> Option<Arc<Loading>> {
        self.0.life.borrow().loading().cloned()
    }
}

impl OnDemand {
    /// Makes an endpoint that enters service the one with these states.
    pub(in crate::endpoints) fn enter(&self, endpoint: &Arc<EndpointState>) {
        self.change(|life| life.endpoint = Arc::downgrade(endpoint));
    }

    /// Returns the number of starts of the endpoint.
    pub(crate) fn starts(&self) -> u64 {
        self.0.life.borrow().starts
    }

    /// Records a request without an answer, if the launcher takes suspicions.
    fn suspect(&self) {
        if self.change(|life| self.suspect_in(life)).result.is_some() {
            self.0.launcher.notify();
        }
    }

    /// Counts a suspicion if the launcher takes suspicions, and returns its number. The caller has the lock of the states, so
    /// that a launcher that ceases to take suspicions misses none when it forgets them.
    fn suspect_in(&self, life: &mut EndpointLife) -> Option<u64> {
        self.0.launcher.takes_suspicions().then(|| life.suspect())
    }

    /// Changes the states, and closes or opens the endpoint as they are then.
    fn change<T>(&self, change: impl FnOnce(&mut EndpointLife) -> T) -> Change<T> {
        let mut changed = None;
        self.0.life.send_modify(|life| {
            let before = life.seen();
            let result = change(life);
            let is_seen = life.seen() != before;
            changed = Some(Change { result, is_seen });
            if let Some(endpoint) = life.endpoint.upgrade() {
                endpoint.set_stopped(!life.is_open());
            }
        });
        changed.expect("the closure runs once")
    }
}

impl EndpointState {
    /// Sets the flag of a closed endpoint. The caller has the lock of its states.
    fn set_stopped(&self, is_stopped: bool) {
        // The load comes first, because most changes leave the flag as it is.
        if self.word.load().is_stopped() != is_stopped {
            let change = self.word.set(HealthFlags::STOPPED, is_stopped);
            self.cold.health.on_change(change);
        }
    }

    /// Sets the flag unless the endpoint serves a request. Returns `true` if it is set.
    fn close_if_idle(&self) -> bool {
        let was_stopped = self.word.load().is_stopped();
        let is_stopped = self.word.stop_if_idle();
        if is_stopped && !was_stopped {
            self.cold.health.restart();
        }
        is_stopped
    }

    /// Forgets the failures of an earlier server, and lets the endpoint back in if they had ejected it.
    fn forget_failures(&self) {
        self.ejection.reset_failures();
        self.cold.health.on_change(self.word.close());
    }
}

/// A suspicion that a server has ended, which keeps its endpoint closed. Dropping it settles the suspicion and all earlier ones,
/// and hands the endpoint's slots to waiters if it is open then.
// That takes the gate's lock.
#[derive(Debug)]
#[must_use = "a suspicion that is dropped is settled"]
pub struct Suspicion {
    on_demand: OnDemand,
    number: u64,
}

impl Drop for Suspicion {
    fn drop(&mut self) {
        self.on_demand
            .change_suspicions(|life| life.settle(self.number));
    }
}

impl EndpointRef {
    /// Records a request without an answer. An endpoint on demand may have ended then, and is closed until that is known.
    pub(crate) fn suspect(&self) {
        if let Some(on_demand) = self.on_demand() {
            on_demand.suspect();
        }
    }

    /// Waits until it is known whether the endpoint has ended since its start number `starts`, because a request got no
    /// answer. Returns how it ended, or `None` if an end did not become known. The launcher settles the suspicion even if
    /// this future is dropped.
    pub(crate) async fn end_since(&self, starts: u64) -> Option<EndpointEnd> {
        let on_demand = self.on_demand()?;
        let mut life = on_demand.0.life.subscribe();
        // In one step, so that a server that has started meanwhile does not become suspect. The endpoint is closed before the
        // slot of the request comes back.
        let suspected = on_demand.change(|life| match life.end_since(starts) {
            None => on_demand.suspect_in(life).ok_or(None),
            end => Err(end),
        });
        let nth = match suspected.result {
            Ok(nth) => nth,
            Err(end) => return end,
        };
        on_demand.0.launcher.notify();
        let settled = life.wait_for(|it| it.end_since(starts).is_some() || it.settled >= nth);
        _ = timeout(SETTLED_WITHIN, settled).await;
        on_demand.0.life.borrow().end_since(starts)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::Uri;

    use super::*;
    use crate::endpoints::on_demand::endpoint;
    use crate::endpoints::{Endpoints, Model, Registry};

    fn started() -> (OnDemand, Endpoints) {
        let on_demand = OnDemand::default();
        let mut endpoint = endpoint("m", &Model::new("m"), 1, on_demand.clone());
        endpoint.url = Uri::from_static("http://127.0.0.1:1");
        let endpoints = Endpoints::new(Registry::new(vec![endpoint]).unwrap());
        on_demand.started();
        on_demand.open();
        (on_demand, endpoints)
    }

    #[tokio::test]
    async fn a_suspicion_waits_for_an_end_or_for_the_launcher() {
        let (on_demand, endpoints) = started();
        let endpoint = endpoints.endpoints()[0].clone();
        let mut first = Box::pin(endpoint.end_since(1));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(endpoint.is_stopped());
        let suspicion = on_demand.take_suspicion().unwrap();
        assert!(on_demand.take_suspicion().is_none());
        let mut second = Box::pin(endpoint.end_since(1));
        assert!(second.as_mut().now_or_never().is_none());
        drop(suspicion);
        assert!(endpoint.is_stopped(), "the second is not settled");
        assert_eq!(first.now_or_never(), Some(None));
        assert!(second.as_mut().now_or_never().is_none());
        on_demand.ended(EndpointEnd::Crashed);
        assert_eq!(second.now_or_never(), Some(Some(EndpointEnd::Crashed)));
    }

    #[tokio::test]
    async fn an_end_is_known_after_the_next_start() {
        let (on_demand, endpoints) = started();
        let endpoint = endpoints.endpoints()[0].clone();
        on_demand.ended(EndpointEnd::Killed);
        on_demand.ended(EndpointEnd::Crashed);
        assert_eq!(endpoint.end_since(1).await, Some(EndpointEnd::Killed));
        on_demand.started();
        on_demand.open();
        assert_eq!(endpoint.end_since(1).await, Some(EndpointEnd::Crashed));
        assert!(!endpoint.is_stopped(), "the new process is not suspect");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspicion_without_a_launcher_ends() {
        let (_on_demand, endpoints) = started();
        let endpoint = endpoints.endpoints()[0].clone();
        assert_eq!(endpoint.end_since(1).await, None);
    }

    #[test]
    fn an_endpoint_that_comes_back_has_the_states_that_it_had() {
        use std::convert::Infallible;

        let (on_demand, endpoints) = started();
        let left = endpoints.endpoints()[0].clone();
        let registry = endpoints.registry();
        left.suspect();
        let suspicion = on_demand.take_suspicion();
        for registry in [
            Registry::default(),
            Registry::default(),
            (*registry).clone(),
        ] {
            let changed = endpoints.change(|_| Ok::<_, Infallible>((registry, None)));
            assert!(changed.is_ok());
        }
        let back = endpoints.endpoints()[0].clone();
        assert!(back != left && back.is_stopped());
        drop(suspicion);
        assert!(!back.is_stopped());
    }
}
