//! A measurement of the time from the grant of a slot to the beginning of the answer.

use std::time::Instant;

use crate::admit::nanos::{Epoch, Nanos};

/// The beginning of a request's service, from which a waiting room learns the service times of the request's lane.
/// Created by [`WaitingRoom::served`](crate::admit::WaitingRoom::served).
#[derive(Debug)]
pub struct ServiceSample {
    pub(crate) started: Nanos,
    /// The hash that identifies the request's lane in the service times.
    pub(crate) lane_hash: u32,
}

impl ServiceSample {
    pub(crate) fn new(lane_hash: u32, epoch: Epoch, now: Instant) -> Self {
        let started = epoch.nanos(now);
        Self { started, lane_hash }
    }
}
