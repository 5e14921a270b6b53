//! What a service's `poll_ready` reserves: a chair for the request that follows.

use std::task::{Context, Poll, ready};

use super::RequestQueue;

/// A clone's chair, if it asked for one. Not carried over to its clones.
pub(super) struct Seat<T> {
    queue: RequestQueue<T>,
    state: State,
}

enum State {
    None,
    /// With its number, once it had to wait.
    Wanted(Option<u64>),
    /// Without a chair if there will be none: then the call says why.
    Reserved {
        chair: bool,
    },
}

impl<T> Seat<T> {
    pub(super) fn new(queue: RequestQueue<T>) -> Self {
        let state = State::None;
        Self { queue, state }
    }

    /// Ready once a chair is reserved, or there will be none.
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut wish = match self.state {
            State::Reserved { .. } => return Poll::Ready(()),
            State::Wanted(wish) => wish,
            State::None => None,
        };
        let found = self.queue.shared.poll_reserve(cx, &mut wish);
        self.state = State::Wanted(wish);
        let chair = ready!(found).is_some();
        self.give_up();
        self.state = State::Reserved { chair };
        Poll::Ready(())
    }

    /// Whether there is a chair for the call that is made now.
    pub(super) fn has_chair(&self) -> bool {
        matches!(self.state, State::Reserved { chair: true })
    }

    /// The chair is the call's from here on.
    pub(super) fn hand_over(&mut self) {
        self.state = State::None;
    }

    fn give_up(&mut self) {
        match std::mem::replace(&mut self.state, State::None) {
            State::Wanted(Some(wish)) => self.queue.shared.withdraw(wish),
            State::Reserved { chair: true } => self.queue.shared.unreserve(),
            State::None | State::Wanted(None) | State::Reserved { chair: false } => {}
        }
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}
