//! The progress of a request, for observers.

use std::time::Duration;

use tower_service::Service;

use super::{Admission, HoldPermit, RareState, State};
use crate::admit::Capacity;

/// The progress of a request towards its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The request waits, or ended before it had both a slot and a ready inner service.
    Waiting,
    /// The request was passed to the inner service with a slot, after it had waited for `waited`.
    Admitted { waited: Duration },
    /// The request takes no slot.
    Exempt,
}

impl<C, S, Req, H, A> Admission<C, S, Req, H, A>
where
    C: Capacity,
    S: Service<Req>,
    H: HoldPermit<C>,
{
    /// Returns the progress of the request. After the answer, it stays the progress at the request's end.
    pub(crate) fn progress(&self) -> Progress {
        match &self.state {
            State::Calling { .. } => Progress::Admitted {
                waited: Duration::ZERO,
            },
            State::Rare { state } => match state {
                RareState::CallingWatched(call) => Progress::Admitted {
                    waited: call.waited(),
                },
                RareState::Exempt(_) => Progress::Exempt,
                RareState::Rejected(_)
                | RareState::Failed(_)
                | RareState::WaitingForSlot(_)
                | RareState::WaitingForInner(_) => Progress::Waiting,
            },
        }
    }
}
