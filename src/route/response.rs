//! The step after an attempt, which is a response to the client or another attempt.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed; // a counter that guards no other memory

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode};
use http_body::Body;

use super::RouteResponseBody;
use super::attempt::{Answer, AttemptOutcome};
use super::failed_response::ReadFailed;
use super::head_at::HeadAt;
use super::metrics::RequestOutcome;
use super::request_metrics::RequestMetrics;
use super::response_body::{BoxError, Routed};
use super::response_class::{Refusal, ResponseClass, Retry};
use super::retry::{FailedResponse, RetryState, Retryable};
use crate::admit::{RejectReason, Tenant};
use crate::endpoints::on_demand::SuspicionSettled;
use crate::endpoints::{Decision, ErrorInBody, NoResponse, RouteError};
use crate::gate;
use crate::http::{LimitedHold, PermitBody};
use crate::openai::{ErrorForm, ErrorReader};
use crate::service::{hold_in_body, insert_waited};

/// The step after an attempt: the response to the client, or another attempt once the response of the failed one has been
/// read.
pub(super) type NextStep<R, E> = ControlFlow<Result<Routed<R>, E>, (ReadFailed<R>, RequestMetrics)>;

/// Decides between a response to the client and another attempt, and records the outcome of the attempt that just
/// ended.
pub(super) fn next_step<S, R: Body<Data = Bytes, Error: Into<BoxError>>, E>(
    outcome: AttemptOutcome<R, E>,
    mut metrics: RequestMetrics,
    retry: &mut Retryable<S, E>,
) -> NextStep<R, E> {
    match outcome {
        AttemptOutcome::Answered(answer) => answered(answer, metrics, retry),
        AttemptOutcome::Refused {
            headers,
            why,
            waited,
        } => {
            let failed = retry.as_mut().ok().and_then(|retry| retry.refused(waited));
            ControlFlow::Break(match failed.filter(|failed| !says_more(&why, failed)) {
                Some(failed) => earlier_failure(*failed, metrics),
                None => Ok(metrics.reject(&headers, &why, waited)),
            })
        }
        AttemptOutcome::NotCalled(result) => {
            metrics.outcome = RequestOutcome::Failed;
            ControlFlow::Break(result.map(|response| response.map(|_| PermitBody::default())))
        }
    }
}

/// Returns `true` if the rejection of a retry says more than the failure before it. Some rejections are newer than an
/// endpoint's failure to respond, because health has changed meanwhile.
fn says_more<E>(why: &RejectReason<RouteError>, failed: &FailedResponse<E>) -> bool {
    let is_newer = matches!(
        why,
        RejectReason::Unservable(
            RouteError::FallbackChainExhausted { .. }
                | RouteError::ModelStartFailed { .. }
                | RouteError::ModelUnloaded { .. }
        )
    );
    is_newer && ResponseClass::of(&failed.result).is_unreachable()
}

/// Returns the earlier failure of a request whose retry got no slot.
fn earlier_failure<R, E>(
    failed: FailedResponse<E>,
    mut metrics: RequestMetrics,
) -> Result<Routed<R>, E> {
    // The attempt may have held a slot as a probe, while the inner service was not ready.
    metrics.shared.pass_probe_on();
    let mut result = failed.result;
    record_decision(&mut result, failed.decision, &mut metrics);
    let mut response = result?;
    insert_waited(&mut response, failed.waited, failed.options);
    Ok(response.map(PermitBody::rejection))
}

/// Learns from an endpoint's answer, and decides whether the client gets it.
fn answered<S, R: Body<Data = Bytes, Error: Into<BoxError>>, E>(
    mut answer: Answer<R, E>,
    mut metrics: RequestMetrics,
    retry: &mut Retryable<S, E>,
) -> NextStep<R, E> {
    let class = ResponseClass::of(&answer.result);
    let class = match may_be_too_many(&answer) {
        true => ResponseClass::Refused(Refusal::default()),
        false => class,
    };
    let (awaits_start, is_own) = learn(&mut answer, class, &mut metrics, retry);
    if attempts_again(&mut answer, class, (awaits_start, is_own), retry)
        && let Ok(retry) = retry
    {
        return ControlFlow::Continue((keep_failed(answer, retry), metrics));
    }
    if class.is_unreachable()
        && let Ok(retry) = retry
        && let Some(exhausted) = retry.exhausted_chain(answer.permit.lease().decision())
    {
        let waited = answer.waited;
        drop(answer); // the slot is free once the endpoint's work has ended
        let why = RejectReason::Unservable(exhausted);
        return ControlFlow::Break(Ok(metrics.reject(retry.headers(), &why, waited)));
    }
    // A body that breaks off later may be the trouble of the request's tenant alone.
    if let (Ok(response), Ok(retry)) = (&answer.result, retry)
        && !response.body().is_end_stream()
    {
        metrics.tenant = retry.tenant();
    }
    ControlFlow::Break(pass_on(answer, class, metrics))
}

/// Returns `true` if an endpoint whose limit adapts answers 503 to one of many requests. It may not say that it is full, but a
/// lower limit helps.
fn may_be_too_many<R, E>(answer: &Answer<R, E>) -> bool {
    let is_503 = |it: &Response<R>| {
        it.status() == StatusCode::SERVICE_UNAVAILABLE
            && it.extensions().get::<NoResponse>().is_none()
    };
    if !answer.result.as_ref().is_ok_and(is_503) {
        return false;
    }
    let lease = answer.permit.lease();
    let endpoint = lease.endpoint();
    let in_flight = lease.in_flight.max(endpoint.in_flight());
    endpoint.config().limit.is_some_and(|limit| {
        in_flight as usize > limit.min && in_flight.saturating_mul(2) > endpoint.limit()
    })
}

/// Updates the endpoint's limit and health by its answer. Returns `true` if the request may wait for a slot again because the
/// endpoint may be started again, and `true` if the trouble may be that of the request's tenant alone.
fn learn<S, R, E>(
    answer: &mut Answer<R, E>,
    class: ResponseClass,
    metrics: &mut RequestMetrics,
    retry: &mut Retryable<S, E>,
) -> (bool, bool) {
    let Answer { result, permit, .. } = answer;
    let now = HeadAt::of(result).unwrap_or_else(gate::now);
    let tenant = || retry.as_ref().map_or(Tenant::NONE, |it| it.tenant());
    let endpoint = permit.lease().endpoint();
    let mut is_own = false;
    // Later failures of a request do not count, but its refusals do.
    let counts = !metrics.has_failed || matches!(class, ResponseClass::Refused(_));
    if class.may_be_a_tenants_own() && counts {
        is_own = metrics.shared.is_own_trouble(endpoint, tenant(), now);
    } else if class == ResponseClass::Success {
        endpoint.state().cold.tenants.served(tenant, now);
    }
    metrics.shared.measure(permit, result, class, is_own, now);
    if let ResponseClass::Refused(refusal) = class {
        endpoint.state().cold.refused.fetch_add(1, Relaxed);
        metrics.shared.metrics.refused(endpoint);
        if !is_own {
            metrics.shared.refused(endpoint, refusal.retry_after);
        }
    }
    if class.is_unreachable() && !is_suspicion_settled(result) {
        endpoint.suspect(); // before the slot comes back
    }
    let may_have_ended = endpoint.is_on_demand() && has_no_connection(result);
    let awaits_start = retry
        .as_mut()
        .is_ok_and(|retry| may_have_ended && retry.may_await_start());
    // The end of an idle process does not count as a failure of the endpoint.
    if !awaits_start {
        let counts = !metrics.has_failed && !is_own;
        metrics.shared.learn(permit, class, counts, now);
        if let Some(observer) = &metrics.observer
            && class.is_answered()
        {
            observer.on_answered(now);
        }
        metrics.has_failed |= class.is_failure();
    }
    (awaits_start, is_own)
}

/// Returns `true` if the request is attempted again, and sets the total wait of its attempts.
fn attempts_again<S, R, E>(
    answer: &mut Answer<R, E>,
    class: ResponseClass,
    (awaits_start, is_own): (bool, bool),
    retry: &mut Retryable<S, E>,
) -> bool {
    let lease = answer.permit.lease();
    let decision = lease.decision();
    match retry {
        Ok(retry) => {
            let arrived = lease
                .called
                .and_then(|called| called.checked_sub(answer.waited));
            let arrived = arrived.unwrap_or_else(gate::now); // rarely, because a look at the clock costs time
            answer.waited = retry.attempted(&decision.model, arrived, answer.waited);
            let may_run_twice = retry.is_at_most_once() && class.may_have_worked(&answer.result);
            if let ResponseClass::Refused(refusal) = class {
                return !may_run_twice && retry.may_wait_again(decision, refusal, is_own);
            }
            let advice = match may_run_twice {
                true => Retry::No,
                false => class.retry(),
            };
            awaits_start || retry.may_retry(decision, advice)
        }
        Err(why) => {
            if class.retry() != Retry::No || matches!(class, ResponseClass::Refused(_)) {
                why.log(decision);
            }
            false
        }
    }
}

/// Keeps a failed answer in case that no other endpoint can serve the request. Returns the reader of its body.
fn keep_failed<S, R: Body<Data = Bytes, Error: Into<BoxError>>, E>(
    answer: Answer<R, E>,
    retry: &mut RetryState<S, E>,
) -> ReadFailed<R> {
    let decision = answer.permit.lease().decision().clone();
    let mut body = None;
    let result = answer.result.map(|response| {
        response.map(|unread| {
            body = Some(unread);
            Bytes::new()
        })
    });
    retry.failed = Some(Box::new(FailedResponse {
        result,
        decision,
        waited: answer.waited,
        options: answer.options,
    }));
    ReadFailed::new(body, answer.permit)
}

/// Returns the answer as the response to the client. Its body holds the slot.
fn pass_on<R: Body<Data = Bytes, Error: Into<BoxError>>, E>(
    mut answer: Answer<R, E>,
    class: ResponseClass,
    mut metrics: RequestMetrics,
) -> Result<Routed<R>, E> {
    let decision = answer.permit.lease().decision().clone();
    record_decision(&mut answer.result, decision, &mut metrics);
    let response = answer.result?;
    // The duration describes the endpoint only if the response does.
    let is_measured = class == ResponseClass::Success;
    let called = answer.permit.lease().called.filter(|_| is_measured);
    if answer.permit.lease().endpoint().is_on_demand() {
        let holds_body = answer.options.hold_body(response.headers());
        // A slot with a limit may come back before the body is over.
        let is_noted = called.is_some() && holds_body && answer.hold.is_none();
        answer.permit.lease_mut().is_end_noted = is_noted;
    }
    let tokens = metrics
        .shared
        .token_meter(&answer.permit, &response, metrics.observer.as_ref());
    let (waited, options) = (answer.waited, answer.options);
    let frees_slot = response.status() == StatusCode::SWITCHING_PROTOCOLS
        && (answer.permit.lease().endpoint().config()).ignores_websockets;
    let mut permit = Some(answer.permit).filter(|_| !frees_slot);
    let hold = answer
        .hold
        .filter(|_| options.hold_body(response.headers()));
    // The traffic of an upgraded connection is none of the body's.
    let hold = hold.map(|hold| match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => hold.without_idle(),
        _ => hold,
    });
    if response.status().is_success() && response.extensions().get::<ErrorInBody>().is_some() {
        metrics.outcome = RequestOutcome::ErrorInStream;
        if let Some(observer) = &metrics.observer {
            observer.on_error_in_stream();
        }
    }
    let form = ErrorForm::of(response.headers()).filter(|form| form.is_stream());
    let errors = form
        .filter(|_| response.status().is_success())
        .map(ErrorReader::new);
    let response = response.map(|body| {
        let stall = hold.as_ref().and_then(|hold| hold.stall.clone());
        let body = RouteResponseBody::new(body, metrics, called, tokens, errors, stall);
        let permit = permit.take_if(|_| hold.is_some());
        match hold.zip(permit) {
            None => body,
            Some((hold, permit)) => body.limited(LimitedHold::new(permit, &hold)),
        }
    });
    Ok(hold_in_body(response, permit, waited, options))
}

/// Returns `true` if the connection to the endpoint could not be made.
fn has_no_connection<R, E>(result: &Result<Response<R>, E>) -> bool {
    let extensions = result.as_ref().map(Response::extensions);
    extensions.is_ok_and(|it| it.get() == Some(&NoResponse::Unreachable))
}

/// Returns `true` if the response says that the end of the endpoint was checked as far as possible.
fn is_suspicion_settled<R, E>(result: &Result<Response<R>, E>) -> bool {
    let extensions = result.as_ref().map(Response::extensions);
    extensions.is_ok_and(|it| it.get::<SuspicionSettled>().is_some())
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
            if metrics.shared.options.endpoint_header {
                let endpoint = decision.endpoint.header_value().clone();
                headers.insert(X_TRIAGE_ENDPOINT, endpoint);
            }
            let model = decision.endpoint.model_header(decision.nth_model);
            if let Some(model) = model.filter(|_| metrics.shared.options.model_header) {
                headers.insert(X_TRIAGE_MODEL, model.clone());
            }
            response.extensions_mut().insert(decision.clone());
            RequestOutcome::Answered(response.status())
        }
        Err(_) => RequestOutcome::Failed,
    };
    metrics.decision = Some(decision);
}
