//! The counters of attempts: how many were started, how many of them again, and how they ended.

use http::{Request, Response};
use metrics::{Unit, counter, describe_counter};

const ATTEMPTS: &str = "triage_durable_attempts_total";
const REDELIVERIES: &str = "triage_durable_redeliveries_total";
const OUTCOMES: &str = "triage_durable_outcomes_total";

pub(super) fn describe() {
    for (name, help) in [
        (ATTEMPTS, "Starts of stored requests."),
        (
            REDELIVERIES,
            "Starts of stored requests that had been started before.",
        ),
        (
            OUTCOMES,
            "Responses to stored requests, by whether the request has succeeded or failed.",
        ),
    ] {
        describe_counter!(name, Unit::Count, help);
    }
}

/// Counts the start of an attempt.
pub(super) fn count_start<B>(request: Request<B>) -> Request<B> {
    counter!(ATTEMPTS).increment(1);
    let attempt = request.headers().get("x-triage-attempt");
    if attempt.is_some_and(|attempt| attempt != "1") {
        counter!(REDELIVERIES).increment(1);
    }
    request
}

/// Counts the response of an attempt.
pub(super) fn count_outcome<B>(response: Response<B>) -> Response<B> {
    let outcome = match response.status().as_u16() {
        ..400 => "succeeded",
        _ => "failed",
    };
    counter!(OUTCOMES, "outcome" => outcome).increment(1);
    response
}
