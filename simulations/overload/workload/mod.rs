//! Workloads: requests, slots, and callers.

mod arrivals;
pub(crate) mod scenarios;
mod sizes;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

use std::sync::Arc;
use std::time::Duration;

use crate::policy::RequestId;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    /// Since the start of the run.
    pub(crate) arrival: Duration,
    /// How long a slot works for it.
    pub(crate) service: Duration,
    /// 0 where the workload has no tokens.
    pub(crate) input_tokens: u32,
    /// 0 is the most urgent.
    pub(crate) level: u8,
    pub(crate) tenant: u8,
    /// The time after which its caller hangs up, if that is not as patient as the others.
    pub(crate) hangs_up: Option<Duration>,
}

/// What callers are patient until.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// A slot works for them: the first token of a stream is then near.
    Started,
    /// The whole answer is there.
    Answered,
}

/// What callers do when their patience is over. An answer is of no use to any of them then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// They stay, and get an answer that is too late.
    Stay,
    /// They leave. Nothing has told the server when.
    Leave,
    /// They leave, and each request says when: it has an `x-request-timeout`.
    LeaveAndSaySo,
}

impl Callers {
    pub(crate) const ALL: [Self; 3] = [Self::Stay, Self::Leave, Self::LeaveAndSaySo];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stay => "stay",
            Self::Leave => "leave",
            Self::LeaveAndSaySo => "header",
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Stay => "stay, and say nothing",
            Self::Leave => "leave, and say nothing",
            Self::LeaveAndSaySo => "leave, and say when: x-request-timeout",
        }
    }
}

/// A part of the requests with figures of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) contains: fn(&Request) -> bool,
}

/// Everything that is the same for all policies.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// In the order of arrival.
    pub(crate) requests: Arc<[Request]>,
    /// Slots are counted until then: about the last arrival.
    pub(crate) duration: Duration,
    pub(crate) slots: usize,
    pub(crate) patience: Duration,
    pub(crate) until: Until,
    pub(crate) callers: Callers,
    /// Whether the backend stops working for callers that have left.
    pub(crate) backend_notices: bool,
    /// Whether tenants are to get equal shares.
    pub(crate) is_fair: bool,
    pub(crate) groups: &'static [Group],
}

impl Workload {
    /// When the caller of a request loses patience.
    pub(crate) fn patience_ends(&self, id: RequestId) -> Duration {
        let request = &self.requests[id];
        request.arrival + self.patience_of(request)
    }

    /// How long the caller of a request is patient.
    pub(crate) fn patience_of(&self, request: &Request) -> Duration {
        request.hangs_up.unwrap_or(self.patience)
    }

    /// The slot-seconds that all requests ask for, over those that there are.
    pub(crate) fn load(&self) -> f64 {
        let asked: f64 = self.requests.iter().map(|r| r.service.as_secs_f64()).sum();
        asked / self.slot_seconds()
    }

    pub(crate) fn slot_seconds(&self) -> f64 {
        self.slots as f64 * self.duration.as_secs_f64()
    }

    pub(crate) fn mean_service(&self) -> Duration {
        let asked: Duration = self.requests.iter().map(|r| r.service).sum();
        asked / self.requests.len().max(1) as u32
    }
}
