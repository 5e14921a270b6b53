//! The adaptation of an endpoint's limit to its responses.

use std::time::Instant;

use http::{Response, StatusCode};

use super::response_class::ResponseClass;
use super::shared::RouterShared;
use crate::admit::{LimitOutcome, LimitSample};
use crate::endpoints::Endpoints;
use crate::gate::Permit;

impl RouterShared {
    /// Adapts the limit of the permit's endpoint to a response at `now`, if that limit is adaptive. The response teaches nothing
    /// if it `is_own` trouble of one tenant.
    pub(super) fn measure<R, E>(
        &self,
        permit: &Permit<Endpoints>,
        result: &Result<Response<R>, E>,
        class: ResponseClass,
        is_own: bool,
        now: Instant,
    ) {
        let lease = permit.lease();
        let endpoint = lease.endpoint();
        let (true, Some(called)) = (endpoint.is_adaptive(), lease.called) else {
            return; // nearly every endpoint has a fixed limit
        };
        let status = result.as_ref().ok().map(Response::status);
        let sample = LimitSample {
            latency: now.saturating_duration_since(called),
            in_flight: lease.in_flight as usize,
            // Waiters may wait for other endpoints, so the requests in flight alone show the load.
            waiting: false,
            outcome: if is_own {
                LimitOutcome::Ignored
            } else {
                outcome(status, class)
            },
        };
        if endpoint.observe(sample, now) {
            self.state.gate.capacity_changed();
        }
    }
}

fn outcome(status: Option<StatusCode>, class: ResponseClass) -> LimitOutcome {
    match class {
        ResponseClass::Unknown { .. } => LimitOutcome::Ignored,
        ResponseClass::Refused(_) => LimitOutcome::Overloaded,
        ResponseClass::Failure {
            answered: false, ..
        } => LimitOutcome::Overloaded,
        // An engine that has too much to do may say so without a `Retry-After`.
        _ if status == Some(StatusCode::SERVICE_UNAVAILABLE) => LimitOutcome::Overloaded,
        ResponseClass::Success | ResponseClass::Rejected | ResponseClass::Failure { .. } => {
            LimitOutcome::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::response_class::{Refusal, Retry};

    #[test]
    fn refusals_and_missing_responses_are_overload_and_errors_are_not() {
        let failure = |answered| ResponseClass::Failure {
            answered,
            retry: Retry::No,
        };
        let unknown = ResponseClass::Unknown { retry: Retry::No };
        let refused = ResponseClass::Refused(Refusal {
            retry_after: None,
            is_final: false,
        });
        for (status, class, expected) in [
            (200, ResponseClass::Success, LimitOutcome::Ok),
            (404, ResponseClass::Rejected, LimitOutcome::Ok),
            (429, refused, LimitOutcome::Overloaded),
            (503, failure(true), LimitOutcome::Overloaded),
            (500, failure(true), LimitOutcome::Ok),
            (504, failure(false), LimitOutcome::Overloaded),
            (502, unknown, LimitOutcome::Ignored),
        ] {
            let found = outcome(StatusCode::from_u16(status).ok(), class);
            assert_eq!(found, expected, "{status}");
        }
        assert_eq!(outcome(None, failure(false)), LimitOutcome::Overloaded);
    }
}
