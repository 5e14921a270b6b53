//! The step after an attempt, which is a response to the client or another attempt.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderName, Response, StatusCode};
use http_body::Body;

use super::RouteResponseBody;
use super::attempt::AttemptOutcome;
use super::failed_response::ReadFailed;
use super::metrics::RequestOutcome;
use super::request_metrics::RequestMetrics;
use super::response_body::Routed;
use super::response_class::{ResponseClass, Retry};
use super::retry::{FailedResponse, Retryable};
use crate::admit::RejectReason;
#[cfg(feature = "swap")]
use crate::endpoints::on_demand::DoubtSettled;
use crate::endpoints::{Decision, NoResponse, RouteError};
use crate::gate;
use crate::http::PermitBody;
#[cfg(feature = "swap")]
use crate::service::ResponseOptions;
use crate::service::{hold_in_body, insert_waited};

/// The step after an attempt.
pub(super) enum NextStep<R, E> {
    Respond(Result<Routed<R>, E>),
    /// The request is attempted again, once the response of the failed attempt has been read.
    Retry(ReadFailed<R>, RequestMetrics),
}

/// Decides between a response to the client and another attempt, and records the outcome of the attempt that just
/// ended.
pub(super) fn next_step<S, R: Body<Data = Bytes>, E>(
    outcome: AttemptOutcome<R, E>,
    mut metrics: RequestMetrics,
    retry: &mut Retryable<S, E>,
) -> NextStep<R, E> {
    match outcome {
        AttemptOutcome::Refused {
            headers,
            why,
            waited,
        } => {
            let failed = retry.as_mut().ok();
            let failed = failed.and_then(|retry| retry.refused(waited));
            // These rejections are newer than an endpoint's failure to respond, because health has changed meanwhile.
            let failed = failed.filter(|failed| {
                let says_more = matches!(
                    why,
                    RejectReason::Unservable(
                        RouteError::FallbackChainExhausted { .. }
                            | RouteError::ModelStartFailed { .. }
                            | RouteError::ModelUnloaded { .. }
                    )
                );
                !(says_more && ResponseClass::of(&failed.result).is_unreachable())
            });
            let Some(failed) = failed else {
                return NextStep::Respond(Ok(metrics.reject(&headers, &why, waited)));
            };
            // The retry got no slot, so the client gets the earlier failure instead of the rejection. The attempt may
            // have held a slot as a probe, while the inner service was not ready.
            metrics.shared.pass_probe_on();
            let mut result = failed.result;
            record_decision(&mut result, failed.decision, &mut metrics);
            NextStep::Respond(result.map(|mut response| {
                insert_waited(&mut response, failed.waited, failed.options);
                response.map(PermitBody::rejection)
            }))
        }
        AttemptOutcome::Answered {
            result,
            permit: None,
            ..
        } => {
            // The inner service failed before it was called, so there is only an error to return.
            metrics.outcome = RequestOutcome::Failed;
            NextStep::Respond(result.map(|response| response.map(|_| PermitBody::default())))
        }
        AttemptOutcome::Answered {
            mut result,
            permit: Some(mut permit),
            waited,
            options,
        } => {
            let class = ResponseClass::of(&result);
            let is_refused_probe = metrics.shared.measure(&permit, &result, class);
            #[cfg(feature = "swap")]
            if class.is_unreachable() && !is_doubt_settled(&result) {
                permit.lease().endpoint().doubt(); // before the slot comes back
            }
            let is_on_demand = permit.lease().endpoint().config().is_on_demand();
            let may_have_ended = is_on_demand && has_no_connection(&result);
            let requeues = retry.as_mut().is_ok_and(|retry| {
                is_refused_probe && retry.may_requeue() || may_have_ended && retry.may_await_start()
            });
            // A limit that was probed and the end of an idle process do not count as failures of the endpoint.
            if !requeues {
                metrics.shared.learn(&mut permit, class, metrics.has_failed);
                metrics.has_failed |= class.is_failure();
            }
            if let Some(after) = result.as_ref().ok().and_then(asks_for_pause) {
                let endpoint = &permit.lease().decision().endpoint;
                metrics.shared.keep_off(endpoint, after);
            }
            let lease = permit.lease();
            let (decision, called) = (lease.decision().clone(), lease.called);
            let arrived = called.and_then(|called| called.checked_sub(waited)); // saves a look at the clock
            let (waited, again) = match retry {
                Ok(retry) => {
                    let arrived = arrived.unwrap_or_else(gate::now);
                    let waited = retry.attempted(&decision.model, arrived, waited);
                    let advice = match retry.is_at_most_once() {
                        true if ResponseClass::may_have_worked(&result) => Retry::No,
                        _ => class.retry(),
                    };
                    let again = requeues || retry.may_retry(&decision, advice);
                    (waited, again.then_some(retry))
                }
                Err(why) => {
                    if class.retry() != Retry::No {
                        why.log(&decision);
                    }
                    (waited, None)
                }
            };
            if let Some(retry) = again {
                let mut body = None;
                let result = result.map(|response| {
                    response.map(|unread| {
                        body = Some(unread);
                        Bytes::new()
                    })
                });
                retry.failed = Some(Box::new(FailedResponse {
                    result,
                    decision,
                    waited,
                    options,
                }));
                return NextStep::Retry(ReadFailed::new(body, permit), metrics);
            }
            if class.is_unreachable()
                && let Ok(retry) = retry
                && let Some(exhausted) = retry.exhausted_chain(&decision)
            {
                drop((result, permit)); // in this order, because the slot is free once the endpoint's work has ended
                let why = RejectReason::Unservable(exhausted);
                let response = metrics.reject(retry.headers(), &why, waited);
                return NextStep::Respond(Ok(response));
            }
            record_decision(&mut result, decision, &mut metrics);
            let response = match result {
                Ok(response) => response,
                Err(error) => return NextStep::Respond(Err(error)),
            };
            // The duration describes the endpoint only if the response does.
            let is_unknown = matches!(class, ResponseClass::Unknown { .. });
            let is_measured = !is_unknown && !response.status().is_server_error();
            let called = called.filter(|_| is_measured);
            #[cfg(feature = "swap")]
            {
                let holds_body = options.contains(ResponseOptions::HOLD_BODY);
                permit.lease_mut().is_end_noted = called.is_some() && holds_body;
            }
            let tokens = metrics.shared.token_meter(&permit, &response);
            let response =
                response.map(|body| RouteResponseBody::new(body, metrics, called, tokens));
            let permit = Some(permit);
            let response = hold_in_body(response, permit, waited, options);
            NextStep::Respond(Ok(response))
        }
    }
}

/// Returns `true` if the connection to the endpoint could not be made.
fn has_no_connection<R, E>(result: &Result<Response<R>, E>) -> bool {
    let extensions = result.as_ref().map(Response::extensions);
    extensions.is_ok_and(|it| it.get() == Some(&NoResponse::Unreachable))
}

/// Returns `true` if the response says that the end of the endpoint was checked as far as possible.
#[cfg(feature = "swap")]
fn is_doubt_settled<R, E>(result: &Result<Response<R>, E>) -> bool {
    let extensions = result.as_ref().map(Response::extensions);
    extensions.is_ok_and(|it| it.get::<DoubtSettled>().is_some())
}

/// Returns the `Retry-After` of a 429 if it is given in seconds. Dates are ignored.
fn asks_for_pause<R>(response: &Response<R>) -> Option<Duration> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds: u64 = seconds.trim().parse().ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

const X_TRIAGE_ENDPOINT: HeaderName = HeaderName::from_static("x-triage-endpoint");
const X_TRIAGE_MODEL: HeaderName = HeaderName::from_static("x-triage-model");

/// Records the endpoint and the model in the response and in the metrics.
#[inline]
fn record_decision<R, E>(
    result: &mut Result<Response<R>, E>,
    decision: Decision,
    metrics: &mut RequestMetrics,
) {
    metrics.outcome = match result {
        Ok(response) => {
            let headers = response.headers_mut();
            if metrics.shared.endpoint_header {
                let endpoint = decision.endpoint.header_value().clone();
                headers.insert(X_TRIAGE_ENDPOINT, endpoint);
            }
            let model = decision.endpoint.model_header(decision.nth_model);
            if let Some(model) = model.filter(|_| metrics.shared.model_header) {
                headers.insert(X_TRIAGE_MODEL, model.clone());
            }
            response.extensions_mut().insert(decision.clone());
            RequestOutcome::Answered(response.status())
        }
        Err(_) => RequestOutcome::Failed,
    };
    metrics.decision = Some(decision);
}
