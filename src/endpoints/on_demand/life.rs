//! The end of an endpoint that is started on demand, as far as it is known.
//!
//! A request without an answer raises a doubt about its endpoint. The endpoint may have ended, or may only have closed
//! a connection. The driver settles the doubt, because it hears of an end a moment later than the connections do.

use std::time::Duration;

use tokio::time::timeout;

use super::OnDemand;
use crate::endpoints::EndpointRef;

/// The way in which an endpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The endpoint ended by itself, or counts as ended because it does not answer any more.
    Crashed,
    /// The operator ended the endpoint while it served requests.
    Killed,
}

/// The end of an endpoint as far as it is known. Its counts show requests and the driver if anything is new to them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Life {
    /// The number of times that the endpoint was started.
    starts: u64,
    /// The way in which the endpoint ended, until it is started again.
    end: Option<End>,
    /// The number of doubts, each raised by a request without an answer.
    doubts: u64,
    /// The number of doubts that the driver has begun to settle.
    taken: u64,
    /// The number of doubts that are settled. The endpoint has ended, or serves, or is not known to have ended.
    settled: u64,
}

impl Life {
    /// Returns the way in which the endpoint ended since it was started for the `starts`th time.
    fn end_since(&self, starts: u64) -> Option<End> {
        let is_other = self.starts != starts;
        self.end.or_else(|| is_other.then_some(End::Crashed))
    }
}

/// The extension of a response that replaces an endpoint's response, after the router has tried to find out if the
/// endpoint has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubtSettled;

/// The time within which every doubt is settled, unless the driver is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

impl OnDemand {
    /// Returns the number of times that the endpoint was started.
    pub(crate) fn starts(&self) -> u64 {
        self.0.life.borrow().starts
    }

    /// Records that the endpoint can serve requests, or sleeps.
    pub(crate) fn set_started(&self) {
        self.0.life.send_modify(|life| {
            life.starts += 1;
            life.end = None;
            (life.taken, life.settled) = (life.doubts, life.doubts); // they are about the process before
        });
    }

    /// Records the way in which the endpoint ended. Only the first end counts. Call this after the endpoint has
    /// stopped giving slots.
    pub(crate) fn set_end(&self, end: End) {
        let life = &self.0.life;
        life.send_modify(|life| _ = life.end.get_or_insert(end));
    }

    /// Returns the way in which the endpoint ended, until it is started again.
    pub(crate) fn end(&self) -> Option<End> {
        self.0.life.borrow().end
    }

    /// Returns `true` if there are new doubts since it last returned `true`. The caller has to settle them.
    pub(crate) fn take_doubt(&self) -> bool {
        let mut is_new = false;
        self.0.life.send_if_modified(|life| {
            is_new = life.taken != life.doubts;
            life.taken = life.doubts;
            false // requests have nothing to learn from this
        });
        is_new
    }

    /// Settles the doubts that were taken. Returns `true` if all doubts are settled now.
    pub(crate) fn settle_doubt(&self) -> bool {
        let life = &self.0.life;
        life.send_modify(|life| life.settled = life.taken);
        let life = life.borrow();
        life.settled == life.doubts
    }

    /// Raises a doubt because a request got no answer. Returns the number of the doubt.
    fn doubt(&self) -> u64 {
        let mut nth = 0;
        self.0.life.send_modify(|life| {
            life.doubts += 1;
            nth = life.doubts;
        });
        self.0.notify.notify_one();
        nth
    }
}

impl EndpointRef {
    /// Raises a doubt because a request got no answer. If the endpoint is started on demand, it may have ended, so it
    /// gives no slots until the doubt is settled.
    pub(crate) fn doubt(&self) {
        if let Some(on_demand) = self.on_demand() {
            self.state().word.stop();
            on_demand.doubt();
        }
    }

    /// Waits until it is known if the endpoint has ended since it was started for the `starts`th time, because a
    /// request got no answer. Returns the way in which it ended, or `None` if it is not known to have ended.
    ///
    /// # Cancel safety
    ///
    /// The driver settles the doubt even if the future is dropped.
    pub(crate) async fn end_since(&self, starts: u64) -> Option<End> {
        let on_demand = self.on_demand()?;
        let mut life = on_demand.0.life.subscribe();
        if let Some(end) = life.borrow().end_since(starts) {
            return Some(end);
        }
        self.state().word.stop(); // before the slot of the request comes back
        let doubt = on_demand.doubt();
        let settled = life.wait_for(|it| it.end_since(starts).is_some() || it.settled >= doubt);
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
        endpoint.state().word.start();
        (on_demand, endpoint)
    }

    #[tokio::test]
    async fn a_doubt_waits_for_the_end_or_for_what_settles_it() {
        let (on_demand, endpoint) = started();
        let mut first = Box::pin(endpoint.end_since(1));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(endpoint.is_stopped());
        assert!(on_demand.take_doubt() && !on_demand.take_doubt());
        let mut second = Box::pin(endpoint.end_since(1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(!on_demand.settle_doubt(), "the second is not settled");
        assert_eq!(first.now_or_never(), Some(None));
        assert!(second.as_mut().now_or_never().is_none());
        on_demand.set_end(End::Crashed);
        assert_eq!(second.now_or_never(), Some(Some(End::Crashed)));
    }

    #[tokio::test]
    async fn an_end_is_known_after_the_next_start() {
        let (on_demand, endpoint) = started();
        on_demand.set_end(End::Killed);
        on_demand.set_end(End::Crashed);
        assert_eq!(endpoint.end_since(1).await, Some(End::Killed));
        on_demand.set_started();
        assert_eq!(endpoint.end_since(1).await, Some(End::Crashed));
        assert!(!endpoint.is_stopped(), "what runs now is not doubted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_that_nobody_settles_ends() {
        let (_on_demand, endpoint) = started();
        assert_eq!(endpoint.end_since(1).await, None);
    }
}
