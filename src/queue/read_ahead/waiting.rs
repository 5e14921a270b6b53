//! The body of a request on its way through the queue.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body;

use super::Limits;
use super::body::ReadAheadBody;
use crate::http::RoomWait;

/// The body of a request that passes the queue of a [`ReadAheadLayer`](super::ReadAheadLayer). Classifiers and other closures of
/// the queue see requests with such a body, which can't be read there.
pub struct WaitingBody<B: Body>(Content<B>);

enum Content<B: Body> {
    /// A body that is not read before its request has a slot.
    Whole(B),
    Shared(Shared<B>),
}

/// A body that its future reads while the request waits.
pub(super) struct Shared<B: Body>(Arc<Mutex<State<B>>>);

enum State<B: Body> {
    Waiting {
        body: ReadAheadBody<B>,
        /// The wait for memory, if there is none.
        blocked: Option<RoomWait>,
    },
    /// The inner service has the body.
    Taken,
}

impl<B: Body> WaitingBody<B> {
    pub(super) fn whole(body: B) -> Self {
        Self(Content::Whole(body))
    }

    /// Returns a body with the handle by which it is read.
    pub(super) fn shared(body: B) -> (Self, Shared<B>) {
        let state = State::Waiting {
            body: ReadAheadBody::new(body),
            blocked: None,
        };
        let shared = Shared(Arc::new(Mutex::new(state)));
        (Self(Content::Shared(shared.clone())), shared)
    }

    /// Returns the body for the inner service, because the wait is over.
    pub(super) fn into_inner(self) -> ReadAheadBody<B> {
        let shared = match self.0 {
            Content::Whole(body) => return ReadAheadBody::new(body),
            Content::Shared(shared) => shared,
        };
        match shared.replace(State::Taken) {
            State::Waiting { body, .. } => body,
            State::Taken => unreachable!("the request has its body once"),
        }
    }
}

impl<B: Body> Shared<B> {
    fn replace(&self, new: State<B>) -> State<B> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut state, new)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Shared<B> {
    /// Reads the body while its request waits. Resolves once there is nothing more to do before the request has a slot, or after
    /// it got one.
    pub(super) fn poll_ahead(&self, limits: &Limits, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Waiting { body, blocked } => body.poll_ahead(limits, blocked, cx),
            State::Taken => Poll::Ready(()),
        }
    }
}

impl<B: Body> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Body> fmt::Debug for WaitingBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingBody").finish_non_exhaustive()
    }
}
