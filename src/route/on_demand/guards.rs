//! The states of an endpoint that have to end, as values that a launcher owns.

use std::time::{Duration, Instant};

use http::Uri;

use super::{EndpointEnd, InvalidUrl, LoadProgress, Suspicion, WeakRouter};
use crate::endpoints::on_demand::{Change, OnDemand as Link, Refusal, RefusalId};
use crate::endpoints::{EndpointRef, Registry};

/// An endpoint on demand, with the way to its router.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) link: Link,
    pub(super) endpoint: EndpointRef,
    pub(super) router: WeakRouter,
}

impl Target {
    /// Begins a start, or returns `None` if the endpoint is not stopped.
    pub(super) fn start(self, usual: Option<Duration>) -> Option<Starting> {
        let loading = self.tell(self.link.start(usual))?;
        Some(Starting {
            progress: loading.reported.clone(),
            target: self,
            is_over: false,
        })
    }

    pub(super) fn refuse(self, retry_at: Instant) -> Refused {
        let id = self.tell(self.link.refuse(Refusal::StartFailed { retry_at }));
        Refused { target: self, id }
    }

    /// Tells the gate of a change that it sees. That takes its lock, and as long as its waiters are many.
    fn tell<T>(&self, change: Change<T>) -> T {
        if change.is_seen {
            self.endpoint.state().tell_gate();
        }
        change.result
    }

    /// Returns the endpoint as it is configured now.
    fn present(&self) -> EndpointRef {
        let router = self.router.upgrade();
        let endpoints = router.map(|router| router.endpoints());
        let mut endpoints = endpoints.iter().flat_map(|all| all.iter());
        let present = endpoints.find(|it| it.on_demand() == Some(&self.link));
        present.unwrap_or(&self.endpoint).clone()
    }

    /// Moves the endpoint to another URL.
    fn set_url(&self, url: Uri) -> Result<(), InvalidUrl> {
        let mut moved = self.endpoint.config().clone();
        moved.url = url.clone();
        Registry::new(vec![moved]).map_err(|_| InvalidUrl { url: url.clone() })?;
        if let Some(router) = self.router.upgrade() {
            router.change_on_demand(self.link.launcher(), |endpoints| {
                let mut endpoints = endpoints.iter_mut();
                let own = endpoints.find(|it| it.on_demand.as_ref() == Some(&self.link));
                if let Some(own) = own {
                    own.url = url;
                }
            });
        }
        Ok(())
    }
}

/// A start that is under way, for as long as it takes. Dropping it gives the start up.
#[derive(Debug)]
#[must_use = "a start that is dropped is given up"]
pub struct Starting {
    target: Target,
    progress: LoadProgress,
    /// `true` once the start has ended.
    is_over: bool,
}

impl Starting {
    /// Returns the endpoint that is being started.
    #[must_use]
    pub fn endpoint(&self) -> EndpointRef {
        self.target.present()
    }

    /// Returns the progress of the start, which the launcher sets and status streams show.
    #[must_use]
    pub fn progress(&self) -> LoadProgress {
        self.progress.clone()
    }

    /// Opens the endpoint at `url`, or at its present URL if that is `None`, and hands its slots to waiters.
    ///
    /// # Errors
    ///
    /// Returns an error if `url` is no URL of an endpoint. The start is given up then.
    pub fn ready(mut self, url: impl Into<Option<Uri>>) -> Result<Running, InvalidUrl> {
        if let Some(url) = url.into() {
            self.target.set_url(url)?;
        }
        self.is_over = true;
        let target = self.target.clone();
        target.link.started();
        target.link.open();
        target.endpoint.state().tell_gate();
        let is_over = false;
        Ok(Running { target, is_over })
    }

    /// Ends a start that has failed, and refuses requests until the result is dropped. They are told to come back at
    /// `retry_at`.
    pub fn failed(mut self, retry_at: Instant) -> Refused {
        self.is_over = true;
        let target = self.target.clone();
        let id = target.link.refuse(Refusal::StartFailed { retry_at }).result;
        target.tell(target.link.stopped()); // after the refusal, so that no request waits in between
        Refused { target, id }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.is_over {
            self.target.tell(self.target.link.stopped());
        }
    }
}

/// A server that runs. Dropping it records that the server has ended, and its requests get `model_crashed`.
#[derive(Debug)]
#[must_use = "a server whose `Running` is dropped counts as ended"]
pub struct Running {
    target: Target,
    /// `true` once the end of the server is recorded.
    is_over: bool,
}

impl Running {
    /// Returns the endpoint as it is configured now.
    #[must_use]
    pub fn endpoint(&self) -> EndpointRef {
        self.target.present()
    }

    /// Closes the endpoint, so that only requests that have a slot keep it. All others wait.
    pub fn close(&self) {
        self.target.tell(self.target.link.close());
    }

    /// Opens the endpoint again, as soon as no suspicion is open.
    pub fn reopen(&self) {
        self.target.tell(self.target.link.open());
    }

    /// Closes the endpoint in one atomic step unless it serves a request. Returns `true` if it is closed and idle.
    #[must_use = "an endpoint that serves a request stays open"]
    pub fn close_if_idle(&self) -> bool {
        self.target.tell(self.target.link.close_if_idle())
    }

    /// Returns a new suspicion that the server has ended, if a request got no answer since the last one.
    /// [`Watch::suspicions`](super::Watch::suspicions) asks for suspicions.
    #[must_use]
    pub fn suspicion(&self) -> Option<Suspicion> {
        self.target.link.take_suspicion()
    }

    /// Records how the server ended, which decides the answer to its requests.
    pub fn ended(mut self, how: EndpointEnd) {
        self.end(how);
    }

    fn end(&mut self, how: EndpointEnd) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.target.tell(self.target.link.ended(how));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(EndpointEnd::Crashed);
    }
}

/// A refusal of requests for one endpoint while it is closed. Dropping it lets requests wait again.
#[derive(Debug)]
#[must_use = "requests wait again once a refusal is dropped"]
pub struct Refused {
    target: Target,
    id: RefusalId,
}

impl Refused {
    /// Moves the time of the next try, which `Retry-After` names.
    pub fn put_off(&self, retry_at: Instant) {
        self.target.link.put_off(self.id, retry_at);
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.target.tell(self.target.link.end_refusal(self.id));
    }
}
