//! A slot whose time is limited: it comes back when its body ends, or when a limit is over, whichever is first.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::IdleTimer;
use crate::clock;
use crate::gate::ClientStall;
use crate::on_cancel::OnCancel;

/// An error that ends a response's body because a limit of its queue is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The request has held its slot for as long as [`max_hold`](crate::QueueConfig::max_hold) allows.
    #[error("the request held its slot for more than {s} s", s = .0.as_secs_f64())]
    TooLong(Duration),
    /// The body was silent for as long as [`idle_timeout`](crate::QueueConfig::idle_timeout) allows.
    #[error("the response's body was silent for more than {s} s", s = .0.as_secs_f64())]
    Silent(Duration),
    /// The client did not read the response, or was silent on a websocket, while another tenant below its share waited
    /// for the slot (see [`Discipline::Fair`](crate::Discipline::Fair)).
    #[error("the client kept its slot waiting while others needed it")]
    Stalled,
}

/// The limits on the time for which a request may hold its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HoldLimits {
    /// The longest time from the call of the inner service to the end of its body.
    pub(crate) max_hold: Option<Duration>,
    /// The longest time between two pieces of the body.
    pub(crate) idle: Option<Duration>,
}

/// The limits of a call, and the time at which it began.
#[derive(Debug, Clone)]
pub(crate) struct CallHold {
    pub(crate) limits: HoldLimits,
    pub(crate) since: Instant,
    /// The stalls of the client, for which the slot may be recalled. `None` if tenants do not share slots.
    pub(crate) stall: Option<Arc<ClientStall>>,
}

impl CallHold {
    /// Returns the limits without the one on silence.
    #[cfg(feature = "route")]
    pub(crate) fn without_idle(mut self) -> Self {
        self.limits.idle = None;
        self
    }

    /// Returns the time at which the slot comes back, unless it has no limit.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.since.checked_add(self.limits.max_hold?)
    }
}

/// A slot that a body holds, with its limits.
///
/// A task gives the slot back at its end, and a recall does so itself, because the body may not be polled: its client may
/// have stopped reading.
pub(crate) struct LimitedHold<G> {
    slot: Arc<Mutex<Slot<G>>>,
    idle: Option<IdleTimer>,
    max_hold: Duration,
    /// The task that gives the slot back. `None` if there is no such limit.
    end: Option<AbortHandle>,
    /// The recall that gives the slot back, which is without an action if it came before the response. `None` if the slot is
    /// not recalled.
    recall: Option<(Option<OnCancel>, Arc<ClientStall>)>,
}

struct Slot<G> {
    /// `None` once the slot was given back.
    guard: Option<G>,
    /// The task that reads the body, which is woken when the slot was given back.
    reader: Option<Waker>,
}

impl<G: Send + 'static> LimitedHold<G> {
    pub(crate) fn new(guard: G, hold: &CallHold) -> Self {
        let slot = Arc::new(Mutex::new(Slot {
            guard: Some(guard),
            reader: None,
        }));
        let recall = hold.stall.as_ref().map(|stall| {
            let weak = Arc::downgrade(&slot);
            let action = move || Weak::upgrade(&weak).iter().for_each(give_back);
            let on_recall = OnCancel::new(stall.recalled().clone(), action);
            if on_recall.is_none() {
                give_back(&slot); // it was recalled already
            }
            (on_recall, Arc::clone(stall))
        });
        Self {
            end: hold.end().and_then(|end| give_back_at(end, &slot)),
            recall,
            slot,
            idle: hold.limits.idle.map(IdleTimer::new),
            max_hold: hold.limits.max_hold.unwrap_or(Duration::MAX),
        }
    }

    /// Passes on what the body returned, unless a limit is over.
    pub(crate) fn check<T>(
        &mut self,
        polled: Poll<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, HoldError>> {
        if self.end.is_some() || self.recall.is_some() {
            let mut slot = lock(&self.slot);
            // A recall ends the work first, so the slot may be here still.
            if slot.guard.is_none() || self.is_recalled() {
                return Poll::Ready(Err(self.error()));
            }
            match &mut slot.reader {
                Some(reader) => reader.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        let Some(idle) = &mut self.idle else {
            return polled.map(Ok);
        };
        if let Poll::Ready(piece) = polled {
            idle.on_piece();
            return Poll::Ready(Ok(piece));
        }
        let limit = idle.limit();
        idle.poll_expired(cx)
            .map(|()| Err(HoldError::Silent(limit)))
    }

    fn is_recalled(&self) -> bool {
        let recall = self.recall.as_ref();
        recall.is_some_and(|(_, stall)| stall.recalled().is_cancelled())
    }

    /// Returns the reason for which the slot was given back.
    fn error(&self) -> HoldError {
        match self.is_recalled() {
            true => HoldError::Stalled,
            false => HoldError::TooLong(self.max_hold),
        }
    }
}

/// Gives the slot back, and wakes the task that reads the body.
fn give_back<G>(slot: &Arc<Mutex<Slot<G>>>) {
    let (guard, reader) = {
        let mut slot = lock(slot);
        (slot.guard.take(), slot.reader.take())
    };
    drop(guard); // outside the lock, because it hands the slot to a waiter
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Starts a task that gives the slot back at `end`. Returns `None` without Tokio's clock.
fn give_back_at<G: Send + 'static>(
    end: Instant,
    slot: &Arc<Mutex<Slot<G>>>,
) -> Option<AbortHandle> {
    let sleep = clock::sleep_until(end)?;
    let slot = Arc::clone(slot);
    let task = Handle::try_current().ok()?.spawn(async move {
        sleep.await;
        give_back(&slot);
    });
    Some(task.abort_handle())
}

impl<G> Drop for LimitedHold<G> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.abort();
        }
        let guard = lock(&self.slot).guard.take();
        drop(guard); // outside the lock, because it hands the slot to a waiter
    }
}

impl<G> fmt::Debug for LimitedHold<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedHold").finish_non_exhaustive()
    }
}

fn lock<G>(slot: &Mutex<Slot<G>>) -> MutexGuard<'_, Slot<G>> {
    // Nothing panics while the lock is held, so a poisoned lock is whole.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_recalled_before_the_response_ends_its_body() {
        let (slot, stall) = (Arc::new(()), Arc::new(ClientStall::new()));
        let hold = CallHold {
            limits: HoldLimits::default(),
            since: clock::now(),
            stall: Some(Arc::clone(&stall)),
        };
        stall.recalled().cancel();
        let mut limited = LimitedHold::new(Arc::clone(&slot), &hold);
        assert_eq!(Arc::strong_count(&slot), 1, "the slot came back");
        let polled = limited.check(Poll::Ready(()), &mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err(HoldError::Stalled)));
    }
}
