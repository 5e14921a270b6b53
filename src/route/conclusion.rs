//! What one try comes to: an answer for the client, or another try.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::front::Tried;
use super::future::{MaybeKept, Routed};
use super::meter::RequestOutcome;
use super::retry::Failed;
use super::router::Stamps;
use super::tally::Tally;
use super::unread::Unread;
use super::verdict::{Retry, Verdict};
use super::{Decision, Endpoints, Measured, RouteBody};
use crate::gate::{self, Permit};
use crate::http::PermitBody;
use crate::service::{hold_in_body, insert_waited};

/// What follows from one try.
pub(super) enum Conclusion<R, E> {
    Answer(Result<Routed<R>, E>),
    /// Another try, when the answer has been read.
    Again(Unread<R, E>, Tally),
}

pub(super) fn conclude<S, B, R>(
    tried: Tried<R, S::Error>,
    tally: Tally,
    kept: &mut MaybeKept<S, S::Error>,
) -> Conclusion<R, S::Error>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    match tried {
        Tried::Refused {
            headers,
            why,
            waited,
        } => {
            let failed = kept.as_mut().ok().and_then(|kept| kept.failed.take());
            if let Some(failed) = failed {
                // The slot that it had while it waited for the inner service may have been a trial's, and the
                // tally stays with the answer.
                tally.desk.pass_trial_on();
                return Conclusion::Answer(finish_kept(failed, tally));
            }
            let (response, code) = tally.desk.refuse(&headers, &why, waited);
            reject(Some(tally), code);
            Conclusion::Answer(Ok(response))
        }
        Tried::Answered {
            result,
            permit: None,
            ..
        } => {
            let mut tally = tally;
            tally.outcome = RequestOutcome::Failed;
            // Without a permit it was not even called: there is no answer, only an error.
            Conclusion::Answer(result.map(|response| response.map(|_| PermitBody::default())))
        }
        Tried::Answered {
            result,
            permit: Some(mut permit),
            waited,
            options,
        } => {
            let mut tally = tally;
            let verdict = Verdict::of(&result);
            tally.desk.learn(&mut permit, verdict, tally.has_failed);
            tally.has_failed |= verdict.is_failure();
            let lease = permit.lease();
            let called = lease.called;
            let came = called.and_then(|called| called.checked_sub(waited));
            let waited = match kept {
                Ok(kept) => kept.was_tried(came.unwrap_or_else(gate::now), waited),
                Err(_) => waited,
            };
            let failed = Failed {
                result,
                decision: lease.decision().clone(),
                waited,
                options,
            };
            let retry = verdict.retry();
            let again = match kept {
                _ if retry == Retry::No => false,
                Ok(kept) => kept.may_try_again(&failed.decision.endpoint, retry),
                Err(why) => {
                    why.tell(&failed.decision);
                    false
                }
            };
            if again {
                return Conclusion::Again(Unread::new(failed, permit), tally);
            }
            // How long it took says something of the endpoint only if the answer does.
            let called = called.filter(|_| !matches!(verdict, Verdict::Unknown { .. }));
            Conclusion::Answer(finish(failed, permit, called, tally))
        }
    }
}

/// Passes an answer on, with its slot.
fn finish<R, E>(
    answer: Failed<R, E>,
    permit: Permit<Endpoints>,
    called: Option<Instant>,
    mut tally: Tally,
) -> Result<Routed<R>, E>
where
    R: Body<Data = Bytes>,
{
    let response = count(answer.result, answer.decision, &mut tally)?;
    let response = response.map(|body| Measured::new(body, tally, called));
    Ok(hold_in_body(
        response,
        Some(permit),
        answer.waited,
        answer.options,
    ))
}

/// Answers with the failure that was kept.
fn finish_kept<R, E>(answer: Failed<Bytes, E>, mut tally: Tally) -> Result<Routed<R>, E> {
    let mut response = count(answer.result, answer.decision, &mut tally)?;
    insert_waited(&mut response, answer.waited, answer.options);
    Ok(response.map(PermitBody::rejection))
}

/// Says in the answer, and for the count, where it comes from.
fn count<R, E>(
    result: Result<Response<R>, E>,
    decision: Decision,
    tally: &mut Tally,
) -> Result<Response<R>, E> {
    let result = result.map(|mut response| {
        stamp(&mut response, &decision, tally.desk.stamps);
        response
    });
    tally.outcome = match &result {
        Ok(response) => RequestOutcome::Answered(response.status()),
        Err(_) => RequestOutcome::Failed,
    };
    tally.decision = Some(decision);
    result
}

const X_TRIAGE_ENDPOINT: HeaderName = HeaderName::from_static("x-triage-endpoint");
const X_TRIAGE_MODEL: HeaderName = HeaderName::from_static("x-triage-model");

/// Says who answered, and why that one.
fn stamp<R>(response: &mut Response<R>, decision: &Decision, stamps: Stamps) {
    let headers = response.headers_mut();
    if stamps.endpoint {
        let endpoint = decision.endpoint.header_value().clone();
        headers.insert(X_TRIAGE_ENDPOINT, endpoint);
    }
    let model = decision.endpoint.model_header(decision.nth_model);
    if let Some(model) = model.filter(|_| stamps.model) {
        headers.insert(X_TRIAGE_MODEL, model.clone());
    }
    response.extensions_mut().insert(decision.clone());
}

pub(super) fn reject(tally: Option<Tally>, code: &'static str) {
    if let Some(mut tally) = tally {
        tally.outcome = RequestOutcome::Rejected(code);
    }
}
