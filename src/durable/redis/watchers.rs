//! The waits of this process: for the ends of requests, and for pieces of responses.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::durable::{Found, RequestId};

/// The requests that are watched in this process.
#[derive(Default)]
pub(super) struct Watchers {
    watched: Mutex<HashMap<RequestId, watch::Sender<News>>>,
}

/// The latest news of a watched request.
#[derive(Debug, Default)]
pub(super) struct News {
    /// `true` once Redis has been asked to tell of its end.
    pub(super) is_asked: bool,
    /// `true` once it has ended, or is not known.
    pub(super) has_ended: bool,
    /// The request as it has ended, if that was told.
    pub(super) found: Option<Found>,
    /// Grows with each hint that there may be a new piece of its response.
    pub(super) pieces: u64,
}

/// One who watches a request.
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

    /// Notes that Redis has been asked to tell of the end of a request.
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

    /// Notes the end of a request, and what it is now.
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

    /// Lets all look again for pieces, because hints may have been lost.
    pub(super) fn on_lost_hints(&self) {
        for sender in self.lock().values() {
            sender.send_modify(|news| news.pieces += 1);
        }
    }

    /// Returns the requests that have not ended as far as is known here.
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
    /// Returns `true` if Redis has been asked to tell of the end.
    pub(super) fn is_asked(&self) -> bool {
        self.news.borrow().is_asked
    }

    /// Waits until the request has ended, and returns it if that was told with its end.
    pub(super) async fn ended(&mut self) -> Option<Found> {
        let news = self.news.wait_for(|news| news.has_ended).await;
        // The sender lives as long as this receiver.
        news.ok()?.found.clone()
    }

    /// Returns what is known, and marks it as seen.
    pub(super) fn seen(&mut self) {
        self.news.mark_unchanged();
    }

    /// Waits until there is news since [`seen`](Self::seen).
    pub(super) async fn changed(&mut self) {
        let _ = self.news.changed().await;
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut watched = self.watchers.lock();
        // This receiver is still counted.
        if watched
            .get(&self.id)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            watched.remove(&self.id);
        }
    }
}
