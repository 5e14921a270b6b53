//! The requests that wait for endpoints on demand.

use std::time::Instant;

use super::guards::Target;
use crate::admit::Priority;
use crate::endpoints::{EndpointRef, Lane};
use crate::gate::LaneHead;

/// A lane with waiting requests that endpoints on demand can serve.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitingLane {
    /// The level of its first request.
    pub level: Priority,
    /// The arrival of its first request.
    pub arrival: Instant,
    /// The endpoints of this launcher that can serve the lane, in the router's order.
    pub endpoints: Vec<EndpointRef>,
    /// The endpoint to start next: the first stopped one, or `None` while another one is being started.
    pub to_start: Option<EndpointRef>,
}

impl WaitingLane {
    pub(super) fn new(head: &LaneHead<Lane>, targets: &[&Target]) -> Self {
        let is_starting = targets.iter().any(|it| it.link.loading().is_some());
        let mut stopped = targets.iter().filter(|it| it.link.is_startable());
        let to_start = stopped.find(|_| !is_starting);
        Self {
            level: head.level,
            arrival: head.arrival,
            endpoints: targets.iter().map(|it| it.endpoint.clone()).collect(),
            to_start: to_start.map(|it| it.endpoint.clone()),
        }
    }
}
