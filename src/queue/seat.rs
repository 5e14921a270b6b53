//! What a service's `poll_ready` reserves.

use std::task::{Context, Poll, ready};

use super::common::Common;
use crate::admit::Capacity;
use crate::gate::{Reservation, Reserve};

/// A clone's chair, if it asked for one. Not carried over to its clones.
pub(crate) enum Seat<C: Capacity> {
    None,
    Wanted(Reserve<C>),
    /// Without a chair if there will be none: then the call says why.
    Reserved(Option<Reservation<C>>),
}

impl<C: Capacity> Seat<C> {
    /// Ready at once, so that a full room can answer; with `overflow = "backpressure"`, once a chair is
    /// reserved.
    pub(crate) fn poll_ready(&mut self, common: &Common<C>, cx: &mut Context<'_>) -> Poll<()> {
        if !common.backpressure() {
            return Poll::Ready(());
        }
        loop {
            match self {
                Self::Reserved(_) => return Poll::Ready(()),
                Self::None => *self = Self::Wanted(common.gate.reserve()),
                Self::Wanted(standing) => {
                    let chair = ready!(standing.poll_reserve(cx));
                    *self = Self::Reserved(chair);
                }
            }
        }
    }

    /// The chair for the call that is made now.
    pub(crate) fn take(&mut self) -> Option<Reservation<C>> {
        match std::mem::replace(self, Self::None) {
            Self::Reserved(chair) => chair,
            Self::None | Self::Wanted(_) => None,
        }
    }
}
