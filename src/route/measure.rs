//! The adaptation of an endpoint's limit to its responses.

use std::time::Instant;

use http::{Response, StatusCode};

use super::response_class::ResponseClass;
use super::shared::RouterShared;
use crate::admit::{LimitOutcome, LimitSample};
use crate::endpoints::Endpoints;
use crate::gate::Permit;
use crate::http::is_overload;

impl RouterShared {
    /// Adapts the limit of the permit's endpoint to a response at `now`, if that limit is adaptive. Returns `true` if the endpoint refused the
    /// request because it had too many, and a lower limit helps.
    pub(super) fn measure<R, E>(
        &self,
        permit: &Permit<Endpoints>,
        result: &Result<Response<R>, E>,
        class: ResponseClass,
        now: Instant,
    ) -> bool {
        let lease = permit.lease();
        let endpoint = lease.endpoint();
        let (true, Some(called)) = (endpoint.is_adaptive(), lease.called) else {
            return false; // nearly every endpoint has a fixed limit
        };
        let sample = LimitSample {
            latency: now.saturating_duration_since(called),
            in_flight: lease.in_flight as usize,
            // Waiters may wait for other endpoints, so the requests in flight alone show the load.
            waiting: false,
            outcome: outcome(result.as_ref().ok().map(Response::status), class),
        };
        if endpoint.observe(sample, now) {
            self.state.gate.capacity_changed();
        }
        let is_refused = result.as_ref().is_ok_and(|it| is_overload(it.status()))
            && !matches!(class, ResponseClass::Unknown { .. });
        let limit = endpoint.limit();
        let lowest = endpoint.config().limit.map_or(limit, |it| it.min as u32);
        let in_flight = lease.in_flight.max(endpoint.in_flight());
        // Requests overtake each other on their way, so the endpoint may refuse a request other than the last. Each
        // refusal lowers the limit, so a request that is refused again and again finds the limit at its lowest in the
        // end.
        is_refused && (in_flight > limit || limit > lowest && in_flight.saturating_mul(2) > limit)
    }
}

fn outcome(status: Option<StatusCode>, class: ResponseClass) -> LimitOutcome {
    match class {
        ResponseClass::Unknown { .. } => LimitOutcome::Ignored,
        ResponseClass::Failure {
            answered: false, ..
        } => LimitOutcome::Overloaded,
        _ if status.is_some_and(is_overload) => LimitOutcome::Overloaded,
        _ => LimitOutcome::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::response_class::Retry;

    #[test]
    fn refusals_and_missing_responses_are_overload_and_errors_are_not() {
        let failure = |answered| ResponseClass::Failure {
            answered,
            retry: Retry::No,
        };
        let unknown = ResponseClass::Unknown { retry: Retry::No };
        let cases = [
            (200, ResponseClass::Success, LimitOutcome::Ok),
            (404, ResponseClass::Success, LimitOutcome::Ok),
            (429, ResponseClass::Success, LimitOutcome::Overloaded),
            (503, failure(true), LimitOutcome::Overloaded),
            (500, failure(true), LimitOutcome::Ok),
            (504, failure(false), LimitOutcome::Overloaded),
            (502, unknown, LimitOutcome::Ignored),
        ];
        for (status, class, expected) in cases {
            let found = outcome(StatusCode::from_u16(status).ok(), class);
            assert_eq!(found, expected, "{status}");
        }
        assert_eq!(outcome(None, failure(false)), LimitOutcome::Overloaded);
    }
}
