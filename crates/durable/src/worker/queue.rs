//! The task that starts the requests of one queue.

use std::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

use super::dispatch::{Heads, Refresh};
use super::guard::LeaseGuard;
use super::place::{NoPlace, Place, Start};
use super::{NoSlot, Shared, attempt};
use crate::{Fetched, Outcome, QueueHead, RequestId};
use tower_triage::rejection::Rejection;

/// The task of one queue, which starts the requests of the queue and waits for those that run.
///
/// At any time it is in one of three steps, while running attempts proceed beside it. It waits for a backlog, for a
/// place for the most urgent request, or for the store to hand that request out.
pub(super) struct Queue<S> {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) service: S,
    pub(super) heads: watch::Receiver<Heads>,
    pub(super) refresh: Refresh,
    pub(super) running: JoinSet<()>,
    /// The number of the reading up to which the head is outdated, because the worker has taken requests since.
    pub(super) outdated: u64,
    /// The head that the last fetch returned, which is valid until a reading shows a newer one.
    pub(super) next: Option<QueueHead>,
    /// The largest number of requests to take at once. It doubles while all requests that the store hands out are at
    /// least as urgent as the slots were granted for, and falls back to 1 otherwise.
    pub(super) batch: usize,
    /// The most urgent request at the time when slots were granted last.
    pub(super) last_head: Option<RequestId>,
    /// `true` while slots are refused and the log has told the reason.
    pub(super) is_refused: bool,
}

/// The request that the slots were granted for.
#[derive(Clone, Copy)]
struct HeadMark {
    id: RequestId,
    level: u8,
}

/// The result of a wait for a place.
enum Waited<S> {
    /// The slots are granted, so the requests can start.
    Started(Vec<Start<S>>, HeadMark),
    /// The backlog is gone, or the worker shuts down.
    NoBacklog,
    /// The slots were refused, so the queue pauses before it tries again.
    TryLater,
    /// The source of slots is closed, so the worker ends.
    Closed,
}

impl<S, B> Queue<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// Runs until both the backlog and the last running request are gone, or until the worker shuts down.
    pub(super) async fn run(mut self) {
        while let Some(head) = self.next_head().await {
            match self.wait_for_place(head).await {
                Waited::Started(starts, head) => self.start(starts, head).await,
                Waited::NoBacklog => {}
                Waited::TryLater => {
                    let again = tokio::time::sleep(TRY_AGAIN);
                    tokio::select! {
                        () = again => {}
                        () = self.shared.shutdown.cancelled() => {}
                    }
                }
                Waited::Closed => self.shared.shutdown.cancel(),
            }
        }
        while self.running.join_next().await.is_some() {}
    }

    /// Waits for a backlog. Returns `None` once both the backlog and the last running request are gone, or when the
    /// worker shuts down.
    async fn next_head(&mut self) -> Option<QueueHead> {
        loop {
            if self.shared.shutdown.is_cancelled() {
                return None;
            }
            if let Some(head) = self.head() {
                return Some(head);
            }
            if self.running.is_empty() && self.is_up_to_date() {
                return None;
            }
            tokio::select! {
                changed = self.heads.changed() => changed.ok()?,
                Some(_) = self.running.join_next() => {}
                () = self.shared.shutdown.cancelled() => {}
            }
        }
    }

    /// Waits for a ready service and for slots. Meanwhile it follows the changes of the queue's most urgent request.
    async fn wait_for_place(&mut self, head: QueueHead) -> Waited<S> {
        let shared = Arc::clone(&self.shared);
        let mut head = head;
        let mut place = Place::new(Arc::clone(&self.name), self.service.clone(), &head);
        loop {
            let start = tokio::select! {
                start = poll_fn(|cx| place.poll(&shared, cx)) => start,
                changed = self.heads.changed() => match self.head() {
                    _ if changed.is_err() => return Waited::NoBacklog,
                    Some(new) => {
                        // If `set_head` returns `false`, the slot is already granted on behalf of the former head.
                        if new.info == head.info || place.set_head(&new) {
                            head = new;
                        }
                        continue;
                    }
                    None => return Waited::NoBacklog,
                },
                Some(_) = self.running.join_next() => continue,
                () = shared.shutdown.cancelled() => return Waited::NoBacklog,
            };
            let first = match start {
                Ok(start) => start,
                Err(reason) => return self.on_no_place(reason),
            };
            self.is_refused = false;
            let more = self.batch.min(usize::try_from(head.runnable).unwrap_or(1));
            let mut starts = vec![first];
            while starts.len() < more {
                // Each further place has to be available at once, so this polls only a single time.
                let mut place = Place::new(Arc::clone(&self.name), self.service.clone(), &head);
                let start = poll_fn(|cx| Poll::Ready(place.poll(&shared, cx))).await;
                let Poll::Ready(Ok(start)) = start else {
                    break;
                };
                starts.push(start);
            }
            let (id, level) = (head.info.id, head.info.level);
            return Waited::Started(starts, HeadMark { id, level });
        }
    }

    /// Takes the requests that are the most urgent by now, one for each place, and starts them.
    async fn start(&mut self, starts: Vec<Start<S>>, head: HeadMark) {
        let shared = Arc::clone(&self.shared);
        // The number is read before the fetch, because a reading that begins from now on may already show the requests
        // that follow the taken ones.
        let begun = self.refresh.begun();
        self.next = None;
        let mut fetched = match shared.store.fetch(&self.name, starts.len()).await {
            Ok(fetched) => fetched,
            Err(error) => {
                drop(starts); // other requests may use the slots meanwhile
                shared.health.on_error(&error);
                self.outdated = self.refresh.ask();
                return tokio::time::sleep(TRY_AGAIN).await;
            }
        };
        shared.health.on_success();
        let is_of_level = fetched
            .iter()
            .all(|fetched| fetched.info.level <= head.level);
        self.batch = match is_of_level {
            true => (2 * self.batch).min(LARGEST_BATCH),
            false => 1,
        };
        let is_drained = fetched.last().is_some_and(|fetched| fetched.is_last);
        self.next = fetched
            .last_mut()
            .and_then(|last| last.next.take())
            .map(|next| *next);
        let may_give_back = self.last_head.replace(head.id) != Some(head.id);
        for (fetched, start) in fetched.into_iter().zip(starts) {
            // Another worker took the request that the slot was granted for. A less urgent request must not use a slot
            // that is reserved for that level. This happens only once for each head, so that a store with other levels
            // can't cause an endless loop.
            if fetched.info.level > head.level && may_give_back {
                drop(start);
                self.running.spawn(give_back(Arc::clone(&shared), fetched));
                // The request that is given back goes before the one that followed it.
                self.next = None;
                continue;
            }
            let Start { service, slot } = start;
            let run = attempt::run(Arc::clone(&shared), service, slot, fetched);
            self.running.spawn(run);
        }
        self.outdated = match is_drained || self.next.is_some() {
            // The next head is known, or the store itself reports it, so another reading is unnecessary.
            true => begun,
            false => self.refresh.ask(),
        };
    }

    /// Decides how to continue after a refusal, and logs the first one of a series.
    fn on_no_place(&mut self, reason: NoPlace) -> Waited<S> {
        let reason = match reason {
            NoPlace::NoSlot(NoSlot::Closed) => return Waited::Closed,
            // The deadline of the head has passed, and the store ends such a request by itself.
            NoPlace::NoSlot(NoSlot::NotNow(rejection)) if is_late(&rejection) => {
                return Waited::TryLater;
            }
            NoPlace::NoSlot(NoSlot::NotNow(rejection)) => rejection.message().to_owned(),
            NoPlace::Service(error) => error.to_string(),
        };
        if !std::mem::replace(&mut self.is_refused, true) {
            let queue = &*self.name;
            tracing::warn!(queue, reason, "no slot for stored requests; they wait");
        }
        Waited::TryLater
    }

    /// Returns the most urgent request of the queue, or `None` while the known one is outdated.
    fn head(&mut self) -> Option<QueueHead> {
        let heads = self.heads.borrow_and_update();
        if heads.round <= self.outdated {
            return self.next.clone();
        }
        self.next = None;
        heads.head.clone()
    }

    /// Returns `true` if the latest reading began after the worker last took requests.
    fn is_up_to_date(&self) -> bool {
        self.heads.borrow().round > self.outdated
    }
}

/// Returns `true` if the rejection says that the deadline of the most urgent request has passed.
fn is_late(rejection: &Rejection) -> bool {
    rejection.status() == StatusCode::GATEWAY_TIMEOUT
}

/// Puts a request that was taken but not started back into its queue.
pub(super) async fn give_back(shared: Arc<Shared>, fetched: Fetched) {
    let again = Outcome::Retry {
        after: Duration::ZERO,
        counts: false,
    };
    let guard = LeaseGuard::new(&shared, fetched.lease);
    guard.finish(again).await;
}

/// The time before the next try, after slots were refused or the store has failed.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// The largest number of slots that one fetch fills, so that many requests share a single round trip to the store.
const LARGEST_BATCH: usize = 32;
