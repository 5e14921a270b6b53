//! The activity of a connection: marks of its reads, its writes and its requests, for the timeouts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Version;
use slab::Slab;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::exchange::Exchange;
use super::wait::{Lasting, WaitMark};

/// The marks of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The number of reads that gave bytes. Relaxed, because it only shows that something came.
    reads: AtomicUsize,
    /// Waits for the socket to take bytes.
    pub(super) writes: WaitMark,
    requests: Mutex<Requests>,
    /// `true` while the client would take the end of the connection for the end of a response that goes on.
    ends_response: AtomicBool,
    /// The connection's place among the open ones. The socket holds it, too, so a websocket has a place until it ends.
    _place: Option<OwnedSemaphorePermit>,
}

/// The requests of a connection that are being served, and what is remembered of those before.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) running: Slab<Running>,
    /// The number of requests so far.
    pub(super) begun: usize,
    pub(super) is_http2: bool,
    /// The number of reads at the time at which the last request ended.
    pub(super) reads_at_end: usize,
    /// The request whose stream gets its task next; HTTP/2 only.
    newest: Option<Arc<Exchange>>,
}

/// A request that is being served, with its waits as they were last seen.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) exchange: Arc<Exchange>,
    /// `None` until the timeouts were checked.
    pub(super) seen: Option<Seen>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) upload: Lasting,
    pub(super) download: Lasting,
}

/// The guard of a request in the marks of its connection.
#[derive(Debug)]
pub(super) struct Served {
    activity: Arc<Activity>,
    pub(super) exchange: Arc<Exchange>,
    key: usize,
}

impl Activity {
    pub(super) fn new(place: OwnedSemaphorePermit) -> Self {
        Self {
            _place: Some(place),
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn read_some(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the arrival of a request's head.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> Served {
        let exchange = Arc::<Exchange>::default();
        let mut requests = self.requests();
        requests.begun = requests.begun.wrapping_add(1);
        if version == Version::HTTP_2 {
            requests.is_http2 = true;
            requests.newest = Some(Arc::clone(&exchange));
        }
        let key = requests.running.insert(Running {
            exchange: Arc::clone(&exchange),
            seen: None,
        });
        drop(requests);
        let activity = Arc::clone(self);
        Served {
            activity,
            exchange,
            key,
        }
    }

    /// Returns `true` if the end of the connection cuts a response off whose client can tell it by a reset alone.
    pub(super) fn needs_reset(&self) -> bool {
        self.ends_response.load(Ordering::Relaxed)
    }

    /// Sets the task of the stream whose request has begun last.
    pub(super) fn set_stream(&self, task: AbortHandle) {
        let newest = self.requests().newest.take();
        if let Some(exchange) = newest {
            exchange.set_stream(task);
        }
    }
}

impl Served {
    /// Marks whether the response goes on until the connection ends. Relaxed, because one task serves an HTTP/1 connection.
    pub(super) fn ends_with_connection(&self, goes_on: bool) {
        let ends_response = &self.activity.ends_response;
        ends_response.store(goes_on, Ordering::Relaxed);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut requests = self.activity.requests();
        requests.reads_at_end = self.activity.reads();
        let ended = requests.running.try_remove(self.key);
        drop(requests); // before the exchange, which may hold the last reference to a task
        drop(ended);
    }
}
