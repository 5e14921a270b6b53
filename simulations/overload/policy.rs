//! The contract of a policy: what decides which requests are served, refused, or wait.

use std::time::Duration;

/// The index of a request in its workload. Later arrivals have higher ones.
pub(crate) type RequestId = usize;

/// A request as a server sees it: how long its service will take is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) id: RequestId,
    /// 0 is the most urgent.
    pub(crate) level: u8,
    pub(crate) tenant: u8,
    pub(crate) input_tokens: u32,
    /// When its caller leaves, if the caller says so.
    pub(crate) deadline: Option<Duration>,
}

/// How the backend's work for a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Finished,
    /// Its caller left, and the backend noticed.
    Cancelled,
}

/// What a policy decides about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It goes to the backend, where it waits if every slot is busy.
    Admit(RequestId),
    /// Its caller is told that it will not be served.
    Refuse(RequestId),
    /// It had been admitted; the backend's work for it stops, and its caller is told.
    Abort(RequestId),
}

/// Decides which request goes to the backend, and when. All times are since the start of the run.
///
/// Each event may be answered by decisions about any request. An arrival without a decision waits in the policy.
pub(crate) trait Policy {
    fn arrive(&mut self, arrival: Arrival, now: Duration, decisions: &mut Vec<Decision>);

    /// The backend has done with an admitted request. Not called for one that the policy aborted.
    fn release(
        &mut self,
        id: RequestId,
        ended: Ended,
        now: Duration,
        decisions: &mut Vec<Decision>,
    );

    /// The caller of a request that waits in the policy left.
    fn leave(&mut self, id: RequestId, now: Duration, decisions: &mut Vec<Decision>);

    /// When to call [`advance`](Self::advance) next.
    fn next_timeout(&self) -> Option<Duration> {
        None
    }

    /// The time is that of [`next_timeout`](Self::next_timeout), which is later afterwards.
    fn advance(&mut self, _now: Duration, _decisions: &mut Vec<Decision>) {}
}
