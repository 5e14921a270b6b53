//! Waiting for a slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::chair::Chair;
use super::permit::Permit;
use super::shared::Shared;
use super::timer::Timer;
use crate::admit::{Capacity, Key, Outcome, Rejected, Ticket};
use crate::sync::Arc;

/// Waits for a slot. Made by [`Gate::acquire`](super::Gate::acquire).
///
/// A request arrives when this is first polled. The answer comes exactly once: a permit or a reason.
///
/// # Cancel safety
///
/// Dropping it at any time gives up the chair at once. A slot that had been handed over already goes on to
/// the next waiter.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Capacity> {
    shared: Arc<Shared<C>>,
    step: Step<C>,
}

enum Step<C: Capacity> {
    Arriving {
        ticket: Ticket,
        demand: C::Demand,
        chair: Option<Chair<C>>,
    },
    Waiting {
        key: Key,
        request: u64,
    },
    Done,
}

/// Nothing in it is ever pinned.
impl<C: Capacity> Unpin for Acquire<C> {}

impl<C: Capacity> Acquire<C> {
    pub(super) fn new(shared: Arc<Shared<C>>, ticket: Ticket, demand: C::Demand) -> Self {
        let chair = None;
        Self {
            shared,
            step: Step::Arriving {
                ticket,
                demand,
                chair,
            },
        }
    }

    /// Arrives on a chair that was reserved before.
    pub fn on_chair(mut self, reserved: Chair<C>) -> Self {
        if let Step::Arriving { chair, .. } = &mut self.step {
            *chair = Some(reserved);
        }
        self
    }

    /// Where it stands among those who compete for the same slots: 1 is next. `None` unless it waits.
    /// O(n log n) in the number of those who wait.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        match self.step {
            Step::Waiting { key, .. } => self.shared.lock().room.position(key),
            _ => None,
        }
    }

    /// How long it will probably wait still, from the measured drain rate. `None` unless it waits and the
    /// rate is known.
    #[must_use]
    pub fn estimated_wait(&self) -> Option<Duration> {
        match self.step {
            Step::Waiting { key, .. } => {
                let state = self.shared.lock();
                state.room.estimated_wait(state.room.position(key)?)
            }
            _ => None,
        }
    }

    /// Whether it waits, and nobody goes before it.
    pub(crate) fn is_next(&self) -> bool {
        match self.step {
            Step::Waiting { key, .. } => self.shared.lock().room.head() == Some(key),
            _ => false,
        }
    }

    fn arrive(
        &mut self,
        ticket: Ticket,
        demand: C::Demand,
        chair: Option<Chair<C>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit<C>, Rejected<C::Never>>> {
        let request = ticket.id;
        if let Some(lease) = self.shared.pass(&demand) {
            return Poll::Ready(Ok(self.permit(lease, request)));
        }
        let reserved = chair.map(Chair::hand_over).is_some();
        match self.shared.arrive(ticket, demand, cx.waker(), reserved) {
            Outcome::Leased(lease) => Poll::Ready(Ok(self.permit(lease, request))),
            Outcome::Rejected(why) => Poll::Ready(Err(why)),
            Outcome::Queued(key) => {
                self.step = Step::Waiting { key, request };
                Poll::Pending
            }
        }
    }

    fn look(
        &mut self,
        key: Key,
        request: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit<C>, Rejected<C::Never>>> {
        let mut waker = Some(cx.waker().clone());
        let mut state = self.shared.lock();
        let answer = state.room.collect(key);
        if answer.is_none()
            && !state
                .room
                .note(key)
                .is_some_and(|old| old.will_wake(cx.waker()))
        {
            waker = waker.and_then(|new| state.room.leave_note(key, new).unwrap_or_else(Some));
        }
        let call = state.call_timer();
        drop(state);
        drop(waker);
        if let Some(call) = call {
            Timer::take(&self.shared, call);
        }
        match answer {
            Some(answer) => Poll::Ready(answer.map(|lease| self.permit(lease, request))),
            None => {
                self.step = Step::Waiting { key, request };
                Poll::Pending
            }
        }
    }

    fn permit(&self, lease: C::Lease, request: u64) -> Permit<C> {
        Permit::new(Arc::clone(&self.shared), lease, request)
    }
}

impl<C: Capacity> Future for Acquire<C> {
    type Output = Result<Permit<C>, Rejected<C::Never>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::Arriving {
                ticket,
                demand,
                chair,
            } => self.arrive(ticket, demand, chair, cx),
            Step::Waiting { key, request } => self.look(key, request, cx),
            Step::Done => panic!("`Acquire` polled after it was answered"),
        }
    }
}

impl<C: Capacity> Drop for Acquire<C> {
    fn drop(&mut self) {
        let Step::Waiting { key, .. } = self.step else {
            return;
        };
        let (lease, waker) = self.shared.locked(|_, state, _| state.room.cancel(key));
        drop(waker);
        if let Some(lease) = lease {
            self.shared.release(lease);
        }
    }
}

impl<C: Capacity> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Arriving { .. } => "arriving",
            Step::Waiting { .. } => "waiting",
            Step::Done => "done",
        };
        f.debug_tuple("Acquire").field(&step).finish()
    }
}
