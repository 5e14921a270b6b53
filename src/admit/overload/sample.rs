//! A request that got a slot after it waited, until its answer begins.

use std::time::Instant;

use crate::admit::nanos::{Epoch, Nanos};

/// The beginning of a request's service, from which a waiting room learns how long requests of its lane are served. Made by
/// [`WaitingRoom::served`](crate::admit::WaitingRoom::served).
#[derive(Debug)]
pub struct ServiceSample {
    pub(crate) started: Nanos,
    /// Identifies its lane in the service times.
    pub(crate) lane_hash: u32,
}

impl ServiceSample {
    pub(crate) fn new(lane_hash: u32, epoch: Epoch, now: Instant) -> Self {
        let started = epoch.nanos(now);
        Self { started, lane_hash }
    }
}
