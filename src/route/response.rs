//! The step after an attempt: a response to the client, or another attempt.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::attempt::AttemptOutcome;
use super::builder::ResponseHeaders;
use super::failed_response::ReadFailed;
use super::metrics::RequestOutcome;
use super::request_metrics::RequestMetrics;
use super::response_body::Routed;
use super::response_class::{ResponseClass, Retry};
use super::retry::{FailedResponse, Retryable};
use super::{RouteBody, RouteResponseBody};
use crate::endpoints::{Decision, Endpoints};
use crate::gate::{self, Permit};
use crate::http::PermitBody;
use crate::service::{hold_in_body, insert_waited};

/// The step after an attempt.
pub(super) enum NextStep<R, E> {
    Respond(Result<Routed<R>, E>),
    /// Another attempt, once the response of the failed one has been read.
    Retry(ReadFailed<R, E>, RequestMetrics),
}

pub(super) fn next_step<S, B, R>(
    outcome: AttemptOutcome<R, S::Error>,
    mut metrics: RequestMetrics,
    retry: &mut Retryable<S, S::Error>,
) -> NextStep<R, S::Error>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    match outcome {
        AttemptOutcome::Refused {
            headers,
            why,
            waited,
        } => {
            let failed = retry.as_mut().ok().and_then(|retry| retry.failed.take());
            if let Some(failed) = failed {
                // A retry that got no slot: the client gets the failure, not the rejection.
                // The attempt may have had a slot, as a probe, while the inner service was not ready.
                metrics.shared.pass_probe_on();
                return NextStep::Respond(respond_with_kept(failed, metrics));
            }
            let (response, code) = metrics.shared.refuse(&headers, &why, waited);
            reject(Some(metrics), code);
            NextStep::Respond(Ok(response))
        }
        AttemptOutcome::Answered {
            result,
            permit: None,
            ..
        } => {
            // The inner service failed before it was called: there is an error and no response.
            metrics.outcome = RequestOutcome::Failed;
            NextStep::Respond(result.map(|response| response.map(|_| PermitBody::default())))
        }
        AttemptOutcome::Answered {
            result,
            permit: Some(mut permit),
            waited,
            options,
        } => {
            let class = ResponseClass::of(&result);
            metrics.shared.learn(&mut permit, class, metrics.has_failed);
            metrics.has_failed |= class.is_failure();
            let lease = permit.lease();
            let called = lease.called;
            let arrived = called.and_then(|called| called.checked_sub(waited)); // saves a look at the clock
            let waited = match retry {
                Ok(retry) => retry.attempted(arrived.unwrap_or_else(gate::now), waited),
                Err(_) => waited,
            };
            let response = FailedResponse {
                result,
                decision: lease.decision().clone(),
                waited,
                options,
            };
            let again = match (class.retry(), retry) {
                (Retry::No, _) => false, // a success, or no other endpoint would do better
                (advice, Ok(retry)) => retry.may_retry(&response.decision.endpoint, advice),
                (_, Err(why)) => {
                    why.log(&response.decision);
                    false
                }
            };
            if again {
                return NextStep::Retry(ReadFailed::new(response, permit), metrics);
            }
            // Its duration says something of the endpoint only if the response does.
            let called = called.filter(|_| !matches!(class, ResponseClass::Unknown { .. }));
            NextStep::Respond(respond(response, permit, called, metrics))
        }
    }
}

/// Passes a response on, with its slot.
fn respond<R, E>(
    response: FailedResponse<R, E>,
    permit: Permit<Endpoints>,
    called: Option<Instant>,
    mut metrics: RequestMetrics,
) -> Result<Routed<R>, E>
where
    R: Body<Data = Bytes>,
{
    let (waited, options) = (response.waited, response.options);
    let response = record_decision(response.result, response.decision, &mut metrics)?;
    let response = response.map(|body| RouteResponseBody::new(body, metrics, called));
    Ok(hold_in_body(response, Some(permit), waited, options))
}

/// Responds with the failure that was kept, because no other endpoint could serve the request.
fn respond_with_kept<R, E>(
    failed: FailedResponse<Bytes, E>,
    mut metrics: RequestMetrics,
) -> Result<Routed<R>, E> {
    let mut response = record_decision(failed.result, failed.decision, &mut metrics)?;
    insert_waited(&mut response, failed.waited, failed.options);
    Ok(response.map(PermitBody::rejection))
}

/// Records in the response and the metrics which endpoint it is from.
fn record_decision<R, E>(
    result: Result<Response<R>, E>,
    decision: Decision,
    metrics: &mut RequestMetrics,
) -> Result<Response<R>, E> {
    let result = result.map(|mut response| {
        insert_headers(&mut response, &decision, metrics.shared.response_headers);
        response
    });
    metrics.outcome = match &result {
        Ok(response) => RequestOutcome::Answered(response.status()),
        Err(_) => RequestOutcome::Failed,
    };
    metrics.decision = Some(decision);
    result
}

const X_TRIAGE_ENDPOINT: HeaderName = HeaderName::from_static("x-triage-endpoint");
const X_TRIAGE_MODEL: HeaderName = HeaderName::from_static("x-triage-model");

fn insert_headers<R>(response: &mut Response<R>, decision: &Decision, shown: ResponseHeaders) {
    let headers = response.headers_mut();
    if shown.endpoint {
        let endpoint = decision.endpoint.header_value().clone();
        headers.insert(X_TRIAGE_ENDPOINT, endpoint);
    }
    let model = decision.endpoint.model_header(decision.nth_model);
    if let Some(model) = model.filter(|_| shown.model) {
        headers.insert(X_TRIAGE_MODEL, model.clone());
    }
    response.extensions_mut().insert(decision.clone());
}

/// Counts a request as rejected with `code`.
pub(super) fn reject(metrics: Option<RequestMetrics>, code: &'static str) {
    if let Some(mut metrics) = metrics {
        metrics.outcome = RequestOutcome::Rejected(code);
    }
}
