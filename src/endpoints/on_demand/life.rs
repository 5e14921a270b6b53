//! The end of an endpoint that is started on demand, as far as it is known. A request without an answer makes its endpoint
//! suspect, because it may have ended. The launcher settles the suspicion: it learns of an end a moment after the clients.

use std::time::Duration;

use tokio::time::timeout;

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The way in which an endpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointEnd {
    /// The endpoint ended by itself, or counts as ended because it has ceased to answer.
    Crashed,
    /// The operator ended the endpoint while it served requests.
    Killed,
}

/// The starts, the end and the suspicions of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EndpointLife {
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
}

impl EndpointLife {
    /// Returns how the endpoint ended since its start number `starts`.
    fn end_since(&self, starts: u64) -> Option<EndpointEnd> {
        let is_other = self.starts != starts;
        self.end
            .or_else(|| is_other.then_some(EndpointEnd::Crashed))
    }
}

/// An extension of a response, set if the suspicion that it stands for is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SuspicionSettled;

/// The time within which the launcher settles a suspicion, unless the launcher is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

impl OnDemand {
    /// Returns the number of starts of the endpoint.
    pub(crate) fn starts(&self) -> u64 {
        self.0.life.borrow().starts
    }

    /// Records that the endpoint can serve requests, or sleeps.
    pub(crate) fn set_started(&self) {
        self.0.life.send_modify(|life| {
            life.starts += 1;
            life.end = None;
            // Suspicions are of the process that ran before.
            (life.taken, life.settled) = (life.suspicions, life.suspicions);
        });
    }

    /// Records how the endpoint ended, of which the first end counts. The caller has closed the endpoint before.
    pub(crate) fn set_end(&self, end: EndpointEnd) {
        let life = &self.0.life;
        life.send_modify(|life| _ = life.end.get_or_insert(end));
    }

    /// Returns how the endpoint ended, until its next start.
    pub(crate) fn end(&self) -> Option<EndpointEnd> {
        self.0.life.borrow().end
    }

    /// Returns `true` if there is a suspicion since this last returned `true`, which the caller then has to settle.
    pub(crate) fn take_suspicion(&self) -> bool {
        let mut is_new = false;
        self.0.life.send_if_modified(|life| {
            is_new = life.taken != life.suspicions;
            life.taken = life.suspicions;
            false // requests do not wait for this
        });
        is_new
    }

    /// Settles the suspicions that were taken. Returns `true` if all are settled now.
    pub(crate) fn settle_suspicion(&self) -> bool {
        let life = &self.0.life;
        life.send_modify(|life| life.settled = life.taken);
        let life = life.borrow();
        life.settled == life.suspicions
    }

    /// Records a request without an answer, and returns the number of the suspicion.
    fn suspect(&self) -> u64 {
        let mut nth = 0;
        self.0.life.send_modify(|life| {
            life.suspicions += 1;
            nth = life.suspicions;
        });
        self.0.notify.notify_one();
        nth
    }
}

impl EndpointRef {
    /// Records a request without an answer. An endpoint on demand may have ended then, and is closed until that is known.
    pub(crate) fn suspect(&self) {
        if let Some(on_demand) = self.on_demand() {
            self.close_slots();
            on_demand.suspect();
        }
    }

    /// Waits until it is known whether the endpoint has ended since its start number `starts`, because a request got no
    /// answer. Returns how it ended, or `None` if an end did not become known. The launcher settles the suspicion even if
    /// this future is dropped.
    pub(crate) async fn end_since(&self, starts: u64) -> Option<EndpointEnd> {
        let on_demand = self.on_demand()?;
        let mut life = on_demand.0.life.subscribe();
        if let Some(end) = life.borrow().end_since(starts) {
            return Some(end);
        }
        self.close_slots(); // before the slot of the request comes back
        let nth = on_demand.suspect();
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

    fn started() -> (OnDemand, EndpointRef) {
        let on_demand = OnDemand::default();
        let mut endpoint = endpoint("m", &Model::new("m"), 1, on_demand.clone());
        endpoint.url = Uri::from_static("http://127.0.0.1:1");
        let endpoints = Endpoints::new(Registry::new(vec![endpoint]).unwrap());
        on_demand.set_started();
        let endpoint = endpoints.endpoints()[0].clone();
        endpoint.open_slots();
        (on_demand, endpoint)
    }

    #[tokio::test]
    async fn a_suspicion_waits_for_an_end_or_for_the_launcher() {
        let (on_demand, endpoint) = started();
        let mut first = Box::pin(endpoint.end_since(1));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(endpoint.is_stopped());
        assert!(on_demand.take_suspicion() && !on_demand.take_suspicion());
        let mut second = Box::pin(endpoint.end_since(1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(!on_demand.settle_suspicion(), "the second is not settled");
        assert_eq!(first.now_or_never(), Some(None));
        assert!(second.as_mut().now_or_never().is_none());
        on_demand.set_end(EndpointEnd::Crashed);
        assert_eq!(second.now_or_never(), Some(Some(EndpointEnd::Crashed)));
    }

    #[tokio::test]
    async fn an_end_is_known_after_the_next_start() {
        let (on_demand, endpoint) = started();
        on_demand.set_end(EndpointEnd::Killed);
        on_demand.set_end(EndpointEnd::Crashed);
        assert_eq!(endpoint.end_since(1).await, Some(EndpointEnd::Killed));
        on_demand.set_started();
        assert_eq!(endpoint.end_since(1).await, Some(EndpointEnd::Crashed));
        assert!(!endpoint.is_stopped(), "the new process is not suspect");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspicion_without_a_launcher_ends() {
        let (_on_demand, endpoint) = started();
        assert_eq!(endpoint.end_since(1).await, None);
    }
}
