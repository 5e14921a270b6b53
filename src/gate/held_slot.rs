//! Slots that outlive their requests, because the work that a request began goes on.

use std::fmt;

use super::origin::Origin;
use super::permit::Permit;
use crate::admit::{Capacity, SlotPool};
use crate::sync::{Arc, Mutex};

/// A hold on the slot of a request, for work that goes on after the request has ended.
///
/// A handler's future is dropped when the client hangs up, and its slot is free at once. Work in
/// `tokio::task::spawn_blocking` or in a task of its own goes on meanwhile, outside of the limit. Such work takes a
/// clone of the hold along: the slot is free once the response's body has ended and all clones are dropped. It is an
/// extension of requests with [`held_slot_extension`](crate::QueueLayer::held_slot_extension). The request has one
/// clone, so a handler that keeps the whole request keeps the slot, too.
#[derive(Clone)]
pub struct HeldSlot {
    _keeper: Arc<Keeper<SlotPool>>,
    /// The hold on the slot of a queue around this one.
    _outer: Option<Arc<HeldSlot>>,
}

impl fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot").finish_non_exhaustive()
    }
}

/// The keeper of a slot that several holders share. It gives the slot back when it is dropped.
pub(super) struct Keeper<C: Capacity> {
    /// The origin to which the slot goes back.
    origin: Arc<Origin<C>>,
    /// The slot, once the request has ended.
    lease: Mutex<Option<C::Lease>>,
}

impl<C: Capacity> Keeper<C> {
    /// Keeps the slot of a request that has ended, while others hold it.
    pub(super) fn keep(&self, lease: C::Lease) {
        let mut kept = self.lease.lock().unwrap_or_else(|it| it.into_inner());
        *kept = Some(lease);
    }
}

impl<C: Capacity> Drop for Keeper<C> {
    fn drop(&mut self) {
        let lease = self.lease.get_mut().unwrap_or_else(|it| it.into_inner());
        if let Some(lease) = lease.take() {
            self.origin.release(lease); // never unwinds
        }
    }
}

impl Permit<SlotPool> {
    /// Returns a hold on the slot, which the permit shares from now on, and on the slots of `outer`.
    pub(crate) fn hold(&mut self, outer: Option<HeldSlot>) -> HeldSlot {
        let keeper = Arc::new(Keeper {
            origin: Arc::clone(self.origin()),
            lease: Mutex::new(None),
        });
        let origin = Origin::kept_by(Arc::clone(&keeper), self.origin());
        self.set_origin(origin);
        HeldSlot {
            _keeper: keeper,
            _outer: outer.map(Arc::new),
        }
    }
}
