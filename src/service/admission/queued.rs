//! The instant in which a request is queued, when its handler may answer it before its wait is over.
//!
//! The rest of its admission is then driven by that answer, or by the future that it was in.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use tower_service::Service;

#[cfg(feature = "route")]
use super::StateProj;
use super::{Admission, AdmissionHandler, HoldPermit, Progress, RareState, State, WaitingForSlot};
use crate::admit::Capacity;
use crate::gate::QueuePlace;
use crate::service::PendingAnswer;

/// A request that has just been queued.
pub(crate) struct JustQueued<'a, C: Capacity, S, Req, H> {
    /// The waiting request. It is taken if the answer drives the wait.
    waiting: &'a mut Option<Box<WaitingForSlot<C, S, Req, H>>>,
}

impl<'a, C: Capacity, S, Req, H> JustQueued<'a, C, S, Req, H> {
    /// Returns the handler and the request.
    pub(crate) fn parts(&mut self) -> Option<(&H, &mut Req)> {
        let call = self.waiting.as_mut()?;
        Some((&call.handler, &mut call.request))
    }

    /// Takes the request out of its previous future, which must not be polled again.
    pub(crate) fn take<A>(self) -> Admission<C, S, Req, H, A>
    where
        S: Service<Req>,
        H: HoldPermit<C>,
    {
        Admission::queued(self.waiting.take())
    }
}

/// Returns `true` if the request has yet to be queued.
pub(super) fn is_arriving<C: Capacity, S, Req, H>(
    waiting: &Option<Box<WaitingForSlot<C, S, Req, H>>>,
) -> bool {
    let waiting = waiting.as_ref();
    waiting.is_some_and(|waiting| waiting.wait.acquire.is_arriving())
}

/// Lets the handler answer a request that was polled for the first time and now waits.
pub(super) fn announce<C, S, Req, H, A>(
    waiting: &mut Option<Box<WaitingForSlot<C, S, Req, H>>>,
) -> Poll<Option<A>>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = A>,
{
    // The task's cooperative budget may be used up, so that the request has its answer, but may not return it yet.
    if is_arriving(waiting) {
        return Poll::Pending;
    }
    if let Some(waiting) = waiting {
        waiting.wait.begin_span();
    }
    match H::on_queued(JustQueued { waiting }) {
        Some(answer) => Poll::Ready(Some(answer)),
        None => Poll::Pending,
    }
}

impl<C, S, Req, H, A> Admission<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req>,
    H: HoldPermit<C>,
{
    fn queued(waiting: Option<Box<WaitingForSlot<C, S, Req, H>>>) -> Self {
        Self {
            state: RareState::WaitingForSlot(waiting).into(),
        }
    }

    /// Returns the handler and the request while that waits for a slot.
    #[cfg(feature = "route")]
    pub(crate) fn queued_parts(&self) -> Option<(&H, &Req)> {
        match &self.state {
            State::Rare {
                state: RareState::WaitingForSlot(Some(waiting)),
            } => Some((&waiting.handler, &waiting.request)),
            _ => None,
        }
    }

    /// Takes out a request that waits for a slot. Its previous future must not be polled again.
    #[cfg(feature = "route")]
    pub(crate) fn take_queued(self: Pin<&mut Self>) -> Option<Self> {
        let this = self.project();
        match this.state.project() {
            StateProj::Rare {
                state: RareState::WaitingForSlot(waiting),
            } => Some(Self::queued(Some(waiting.take()?))),
            _ => None,
        }
    }

    /// Returns the position at which the request waits for a slot, or `None` if it does not wait.
    pub(crate) fn place(&self) -> Option<QueuePlace> {
        match &self.state {
            State::Rare {
                state: RareState::WaitingForSlot(Some(waiting)),
            } => waiting.wait.acquire.place(),
            _ => None,
        }
    }
}

impl<C, S, Req, H, T, E> PendingAnswer<T> for Admission<C, S, Req, H, Result<Response<T>, E>>
where
    C: Capacity,
    S: Service<Req> + Clone,
    H: AdmissionHandler<C, Req, S, Answer = Result<Response<T>, E>>,
{
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Response<T>>> {
        self.poll(cx).map(Result::ok)
    }

    fn place(&self) -> Option<QueuePlace> {
        Admission::place(self)
    }

    fn waited(&self) -> Option<Duration> {
        match self.progress() {
            Progress::Admitted { waited } => Some(waited),
            Progress::Waiting | Progress::Exempt => None,
        }
    }
}
