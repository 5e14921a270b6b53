//! The rest of a refused body, which is read and dropped behind the answer.
//!
//! Over HTTP/1, a client that is still sending when its connection is closed gets a reset in place of the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tokio::runtime::Handle;

use super::ReadBody;
use super::read_body::EXCESS_LIMIT;
use crate::clock;
use crate::http::IdleTimer;

/// The longest time between two pieces of a body that is drained, and the longest time for all of them. These are nginx's
/// defaults for closing a connection.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
const TIME_LIMIT: Duration = Duration::from_secs(30);

impl<B: Body<Data = Bytes> + Send + 'static> ReadBody<B> {
    /// Reads and drops the rest of the body in a task of its own. The task ends after 64 MiB, after 30 s, or if nothing
    /// comes for 5 s. A client that waits for the answer before it sends the body has nothing to drain.
    pub(crate) fn drain(self: Pin<Box<Self>>) {
        if self.excess_limit == 0 || clock::sleep_until(clock::now()).is_none() {
            return; // without a timer, the task might last for ever
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Drain::new(self).run());
        }
    }
}

struct Drain<B> {
    read: Pin<Box<ReadBody<B>>>,
    since: Instant,
    idle: IdleTimer,
    drained: usize,
}

impl<B: Body<Data = Bytes>> Drain<B> {
    fn new(read: Pin<Box<ReadBody<B>>>) -> Self {
        Self {
            read,
            since: clock::now(),
            idle: IdleTimer::new(IDLE_LIMIT),
            drained: 0,
        }
    }

    async fn run(mut self) {
        while self.drained <= EXCESS_LIMIT && self.since.elapsed() < TIME_LIMIT {
            let piece = poll_fn(|cx| self.poll_piece(cx));
            match piece.await {
                Some(length) => self.drained = self.drained.saturating_add(length),
                None => return,
            }
        }
    }

    /// Waits for the next piece. Resolves to its length, or to `None` after the last one.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let body = self.read.as_mut().project().body;
        let Poll::Ready(frame) = body.poll_frame(cx) else {
            ready!(self.idle.poll_expired(cx));
            return Poll::Ready(None);
        };
        self.idle.on_piece();
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(frame.data_ref().map_or(0, Bytes::len)))
    }
}
