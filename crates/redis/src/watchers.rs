//! The waits of this process for the ends of requests and for pieces of responses.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use tower_triage_durable::{Found, RequestId};

/// The requests that this process watches.
#[derive(Default)]
pub(super) struct Watchers {
    watched: Mutex<HashMap<RequestId, watch::Sender<News>>>,
}

/// The latest news of a watched request.
#[derive(Debug, Default)]
pub(super) struct News {
    /// `true` once Redis was asked to announce the end of the request.
    pub(super) is_asked: bool,
    /// `true` once the request has ended, or is found to be unknown.
    pub(super) has_ended: bool,
    /// The request after its end, if the notification included it.
    pub(super) found: Option<Found>,
    /// A counter that grows with each hint of a new piece of the response.
    pub(super) pieces: u64,
}

/// A registered watcher of a request.
pub(super) struct Watcher<'a> {
    watchers: &'a Watchers,
    id: RequestId,
    news: watch::Receiver<News>,
}

impl Watchers {
    pub(super) fn watch(&self, id: RequestId) -> Watcher<'_> {
        let mut watched = self.lock();
        let sender = watched.entry(id).or_default();
        Watcher {
            watchers: self,
            id,
            news: sender.subscribe(),
        }
    }

    pub(super) fn is_watched(&self, id: RequestId) -> bool {
        self.lock().contains_key(&id)
    }

    /// Records that Redis was asked to announce the end of a request.
    pub(super) fn on_asked(&self, id: RequestId) {
        if let Some(sender) = self.lock().get(&id) {
            sender.send_modify(|news| news.is_asked = true);
        }
    }

    pub(super) fn on_end(&self, id: RequestId) {
        if let Some(sender) = self.lock().get(&id) {
            sender.send_modify(|news| news.has_ended = true);
        }
    }

    /// Records the end of a request, and its final state.
    pub(super) fn on_found(&self, found: Found) {
        if let Some(sender) = self.lock().get(&found.info.id) {
            sender.send_modify(|news| {
                news.has_ended = true;
                news.found = Some(found);
            });
        }
    }

    pub(super) fn on_piece(&self, id: RequestId) {
        if let Some(sender) = self.lock().get(&id) {
            sender.send_modify(|news| news.pieces += 1);
        }
    }

    /// Wakes all readers of pieces, because hints may have been lost.
    pub(super) fn on_lost_hints(&self) {
        for sender in self.lock().values() {
            sender.send_modify(|news| news.pieces += 1);
        }
    }

    /// Returns the watched requests that have not ended as far as this process knows.
    pub(super) fn unfinished(&self) -> Vec<RequestId> {
        self.lock()
            .iter()
            .filter(|(_, sender)| !sender.borrow().has_ended)
            .map(|(id, _)| *id)
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, watch::Sender<News>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher<'_> {
    /// Returns `true` if Redis was asked to announce the end of the request.
    pub(super) fn is_asked(&self) -> bool {
        self.news.borrow().is_asked
    }

    /// Waits until the request has ended. Returns its final state if the notification included it.
    pub(super) async fn ended(&mut self) -> Option<Found> {
        let news = self.news.wait_for(|news| news.has_ended).await;
        // The sender lives as long as this receiver.
        news.ok()?.found.clone()
    }

    /// Marks the current news as seen.
    pub(super) fn seen(&mut self) {
        self.news.mark_unchanged();
    }

    /// Waits for news after the last call of [`seen`](Self::seen).
    pub(super) async fn changed(&mut self) {
        let _ = self.news.changed().await;
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut watched = self.watchers.lock();
        // This receiver is still counted, so 1 means that it is the last one.
        if watched
            .get(&self.id)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            watched.remove(&self.id);
        }
    }
}
