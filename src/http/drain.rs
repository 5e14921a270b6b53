//! The rest of a refused body, which is read and dropped behind the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf;
use http_body::{Body, Frame};
use tokio::runtime::Handle;

use super::IdleTimer;
use crate::clock;

/// The largest number of bytes of a refused body that are read and dropped. After them, the connection is cut.
pub(crate) const EXCESS_LIMIT: usize = 64 << 20;

/// The longest time between two pieces of a body that is drained, and the longest time for all of them. These are nginx's
/// defaults for closing a connection.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Reads and drops the rest of the body of a refused request, in a task of its own.
///
/// This is for a layer that answers before it has read the body. Over HTTP/1, a client that is still sending when its
/// connection is closed gets a reset in place of the answer. A client that sent `Expect: 100-continue` needs no drain, because
/// it sends no body after the answer.
///
/// The task ends with the body, after 64 MiB, after 30 s, or if nothing comes for 5 s. Outside of a Tokio runtime, or in one
/// without a timer, the body is dropped.
pub fn drain<B>(mut body: B)
where
    B: Body + Unpin + Send + 'static,
{
    drain_frames(move |cx| Pin::new(&mut body).poll_frame(cx));
}

/// [Drains](drain) the body whose frames `poll_frame` returns.
pub(crate) fn drain_frames<P, D, E>(poll_frame: P)
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
