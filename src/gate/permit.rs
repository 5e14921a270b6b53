//! A lease that gives itself back: `Permit`.

use std::fmt;

use super::origin::Origin;
use crate::admit::{Capacity, Slot, SlotPool};
use crate::sync::Arc;

/// A slot that a request holds. Dropping it hands the slot to the best waiter, if there is one.
///
/// # Memory ordering
///
/// All writes from before a permit was dropped are visible to the request that gets the slot next.
#[must_use = "a permit that is dropped gives its slot back"]
pub struct Permit<C: Capacity> {
    /// `None` once the permit was taken apart or dropped.
    held: Option<Held<C>>,
    /// The ticket's id, or 0 if there was no ticket.
    request: u64,
}

/// The slot that the permit gives back, and the gate that gets it.
struct Held<C: Capacity> {
    origin: Arc<Origin<C>>,
    lease: C::Lease,
}

impl<C: Capacity> Held<C> {
    /// Gives the slot back. Never unwinds.
    #[inline(never)]
    fn release(self) {
        self.origin.release(self.lease);
    }
}

impl<C: Capacity> Permit<C> {
    #[inline]
    pub(super) fn new(origin: Arc<Origin<C>>, lease: C::Lease, request: u64) -> Self {
        Self {
            held: Some(Held { origin, lease }),
            request,
        }
    }

    /// Returns the lease that was taken. For endpoints, it names the endpoint.
    #[must_use]
    pub fn lease(&self) -> &C::Lease {
        match &self.held {
            Some(held) => &held.lease,
            None => unreachable!("a permit is emptied only when it is consumed"),
        }
    }

    #[cfg(feature = "route")]
    pub(crate) fn lease_mut(&mut self) -> &mut C::Lease {
        match &mut self.held {
            Some(held) => &mut held.lease,
            None => unreachable!("a permit is emptied only when it is consumed"),
        }
    }

    pub(super) fn origin(&self) -> &Arc<Origin<C>> {
        match &self.held {
            Some(held) => &held.origin,
            None => unreachable!("a permit is emptied only when it is consumed"),
        }
    }

    pub(super) fn set_origin(&mut self, origin: Arc<Origin<C>>) {
        if let Some(held) = &mut self.held {
            held.origin = origin;
        }
    }

    /// Returns the id of the ticket for which the permit was given, or 0 if there was no ticket.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Returns the bits of the layer in front of the gate.
    #[cfg(feature = "route")]
    #[inline]
    pub(crate) fn layer_bits(&self) -> u64 {
        self.origin().layer_bits()
    }

    /// Returns the origin, the slot and the request's id. The caller has to give the slot back from now on.
    #[inline]
    pub(super) fn into_parts(mut self) -> (Arc<Origin<C>>, C::Lease, u64) {
        // The destructor that follows finds an empty permit.
        match self.held.take() {
            Some(held) => (held.origin, held.lease, self.request),
            None => unreachable!("a permit is emptied only when it is consumed"),
        }
    }
}

impl<C: Capacity> Drop for Permit<C> {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }
}

impl<C: Capacity> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// The permit of a [`SlotPool`] in a response body. It is 8 bytes long, because it omits the request's id. Dropping it
/// gives the slot back.
#[must_use = "a permit that is dropped gives its slot back"]
pub struct BodyPermit {
    origin: Arc<Origin<SlotPool>>,
    slot: Slot,
}

impl BodyPermit {
    /// Returns the bits of the layer in front of the gate.
    #[inline]
    pub(crate) fn layer_bits(&self) -> u64 {
        self.origin.layer_bits()
    }
}

impl From<Permit<SlotPool>> for BodyPermit {
    #[inline]
    fn from(permit: Permit<SlotPool>) -> Self {
        let (origin, slot, _) = permit.into_parts();
        Self { origin, slot }
    }
}

impl Drop for BodyPermit {
    #[inline]
    fn drop(&mut self) {
        self.origin.release(self.slot.take()); // never unwinds
    }
}

impl fmt::Debug for BodyPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyPermit").finish_non_exhaustive()
    }
}

/// A slot that is held for a request that is not known yet.
///
/// Dropping it gives the slot back, as with a [`Permit`].
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its slot back"]
pub struct UnassignedPermit<C: Capacity>(pub(super) Permit<C>);

impl<C: Capacity> UnassignedPermit<C> {
    /// Returns the lease that was taken.
    #[must_use]
    pub fn lease(&self) -> &C::Lease {
        self.0.lease()
    }

    /// Assigns the slot to the request with the id `request`.
    pub fn assign(mut self, request: u64) -> Permit<C> {
        self.0.request = request;
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_body_permit_is_one_word() {
        assert_eq!(size_of::<Option<BodyPermit>>(), size_of::<usize>());
    }
}
