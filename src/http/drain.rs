//! The rest of a refused body, which is read and dropped behind the answer.
//!
//! Over HTTP/1, a client that is still sending when its connection is closed gets a reset in place of the answer.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf;
use http_body::Frame;
use tokio::runtime::Handle;

use super::IdleTimer;
use crate::clock;

/// The largest number of bytes of a refused body that are read and dropped. After them, the connection is cut.
pub(crate) const EXCESS_LIMIT: usize = 64 << 20;

/// The longest time between two pieces of a body that is drained, and the longest time for all of them. These are nginx's
/// defaults for closing a connection.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Reads and drops the rest of a body, whose frames `poll_frame` returns, in a task of its own. The task ends after 64 MiB,
/// after 30 s, or if nothing comes for 5 s.
pub(crate) fn drain<P, D, E>(poll_frame: P)
where
    P: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>> + Send + 'static,
    D: Buf + 'static,
    E: 'static,
{
    if clock::sleep_until(clock::now()).is_none() {
        return; // without a timer, the task might last for ever
    }
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(Drain::new(poll_frame).run());
    }
}

struct Drain<P> {
    poll_frame: P,
    since: Instant,
    idle: IdleTimer,
    drained: usize,
}

impl<P> Drain<P> {
    fn new(poll_frame: P) -> Self {
        Self {
            poll_frame,
            since: clock::now(),
            idle: IdleTimer::new(IDLE_LIMIT),
            drained: 0,
        }
    }

    async fn run<D, E>(mut self)
    where
        P: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>>,
        D: Buf,
    {
        while self.drained <= EXCESS_LIMIT && self.since.elapsed() < TIME_LIMIT {
            let piece = poll_fn(|cx| self.poll_piece(cx));
            match piece.await {
                Some(length) => self.drained = self.drained.saturating_add(length),
                None => return,
            }
        }
    }

    /// Waits for the next piece. Resolves to its length, or to `None` after the last one.
    fn poll_piece<D, E>(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>>
    where
        P: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>>,
        D: Buf,
    {
        let Poll::Ready(frame) = (self.poll_frame)(cx) else {
            ready!(self.idle.poll_expired(cx));
            return Poll::Ready(None);
        };
        self.idle.on_piece();
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(frame.data_ref().map_or(0, Buf::remaining)))
    }
}
