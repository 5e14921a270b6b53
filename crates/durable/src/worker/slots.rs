//! Slots that a worker acquires ahead of a request, and that then travel with the request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Extensions;

use tower_triage::admit::{Capacity, SlotPool};
use tower_triage::endpoints::{Endpoints, Requirements};
use tower_triage::gate::{Acquire, Gate, PermitExtension};
use tower_triage::rejection::{Rejection, ToRejection};
use tower_triage::{RejectReason, Ticket};

/// A source of slots for a worker.
///
/// Two kinds of [`Gate`] implement it. In the gate of a queue, all requests ask for the same slots. In the gate of a
/// router, the name of a request's queue is the model that the request asks for.
pub trait Slots: Send + Sync + 'static {
    /// Begins a wait for a slot, on behalf of a request of this queue.
    fn wait(&self, queue: &str, ticket: Ticket) -> Box<dyn SlotWait>;

    /// Returns a slot for a request of this queue if one is free and no request waits. The default returns `None`, so
    /// each request [waits](Self::wait) for its slot.
    fn try_slot(&self, _queue: &str) -> Option<Slot> {
        None
    }
}

/// A wait for a slot. Dropping it ends the wait, and gives back a slot that was granted meanwhile.
pub trait SlotWait: Send {
    /// Continues the wait with another ticket of the same queue. Returns `false` if the wait has ended already, so the
    /// change comes too late.
    fn set_ticket(&mut self, ticket: Ticket) -> bool;

    /// Polls for the slot, and returns the reason if the wait ends without one.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, NoSlot>>;
}

/// A slot that was acquired ahead of its request. Dropping it gives the slot back.
#[must_use = "a slot that is dropped is given back"]
pub struct Slot(Extensions);

impl Slot {
    /// Creates a slot from a value that travels in the extensions of the request, such as a [`PermitExtension`].
    pub fn new<T: Clone + Send + Sync + 'static>(extension: T) -> Self {
        let mut extensions = Extensions::new();
        extensions.insert(extension);
        Self(extensions)
    }

    /// Creates an empty slot for a service whose readiness already stands for a slot.
    pub(super) fn of_ready_service() -> Self {
        Self(Extensions::new())
    }

    pub(super) fn into_extensions(self) -> Extensions {
        self.0
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// The reason why a wait ended without a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSlot {
    /// The source of slots is closed for good, so the worker ends.
    Closed,
    /// The source refused the wait for now, so the worker tries again a little later.
    NotNow(Rejection),
}

impl Slots for Gate<SlotPool> {
    fn wait(&self, _queue: &str, ticket: Ticket) -> Box<dyn SlotWait> {
        Box::new(GateWait {
            acquire: self.acquire(ticket.patient(), ()),
            demand: || (),
        })
    }

    fn try_slot(&self, _queue: &str) -> Option<Slot> {
        let permit = self.try_acquire(&())?;
        Some(Slot::new(permit.into_extension()))
    }
}

impl Slots for Gate<Endpoints> {
    fn wait(&self, queue: &str, ticket: Ticket) -> Box<dyn SlotWait> {
        let (gate, model) = (self.clone(), queue.to_owned());
        // The demand is computed anew each time, because the endpoints may have changed.
        let demand = move || {
            let requirements = Requirements::new(model.clone());
            gate.capacity().demand(&requirements)
        };
        Box::new(GateWait {
            acquire: self.acquire(ticket.patient(), demand()),
            demand,
        })
    }

    fn try_slot(&self, queue: &str) -> Option<Slot> {
        let demand = self.capacity().demand(&Requirements::new(queue));
        let permit = self.try_acquire(&demand)?;
        Some(Slot::new(permit.into_extension()))
    }
}

/// A wait for a slot in the waiting room of a gate.
struct GateWait<C: Capacity, F> {
    acquire: Acquire<C>,
    /// A function that returns the demand of the queue's requests at the time of the call.
    demand: F,
}

impl<C, F> SlotWait for GateWait<C, F>
where
    C: Capacity<Unservable: ToRejection>,
    Acquire<C>: Send,
    PermitExtension<C>: Clone + Send + Sync + 'static,
    F: Fn() -> C::Demand + Send,
{
    fn set_ticket(&mut self, ticket: Ticket) -> bool {
        self.acquire.set_ticket(ticket.patient(), (self.demand)())
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, NoSlot>> {
        Pin::new(&mut self.acquire)
            .poll(cx)
            .map(|answer| match answer {
                Ok(permit) => Ok(Slot::new(permit.into_extension())),
                Err(RejectReason::ShuttingDown) => Err(NoSlot::Closed),
                Err(reason) => Err(NoSlot::NotNow(reason.to_rejection())),
            })
    }
}
