//! The counters of stored requests: their starts here, and of the whole store how they ended and which lost their workers.

use std::collections::BTreeMap;

use http::Request;
use metrics::{Unit, counter, describe_counter};
use tower_triage_durable::{QueueEvent, QueueTotal};

use super::gauges::label_of_queue;

const ATTEMPTS: &str = "triage_durable_attempts_total";
const REDELIVERIES: &str = "triage_durable_redeliveries_total";
const OUTCOMES: &str = "triage_durable_outcomes_total";
const SWEEPS: &str = "triage_durable_sweeps_total";

pub(super) fn describe() {
    for (name, help) in [
        (ATTEMPTS, "Starts of stored requests."),
        (
            REDELIVERIES,
            "Starts of stored requests that had been started before.",
        ),
        (
            OUTCOMES,
            "Ends of stored requests, of all gateways on one store, by status and reason.",
        ),
        (
            SWEEPS,
            "Stored requests that were taken from silent or dead workers, of all gateways on one store.",
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

/// Sets the counters of the whole store. Those of unknown queues are together those of `other`.
pub(super) fn record_totals(totals: Vec<QueueTotal>, is_known: impl Fn(&str) -> bool) {
    for (series, count) in by_series(totals, is_known) {
        let Series { queue, outcome } = series;
        match outcome {
            Some((outcome, Some(reason))) => {
                counter!(OUTCOMES, "queue" => queue, "outcome" => outcome, "reason" => reason)
                    .absolute(count);
            }
            Some((outcome, None)) => {
                counter!(OUTCOMES, "queue" => queue, "outcome" => outcome).absolute(count);
            }
            None => counter!(SWEEPS, "queue" => queue).absolute(count),
        }
    }
}

/// The labels of a counter.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    queue: String,
    /// A status, and its reason; `None` for what was taken from a worker.
    outcome: Option<(&'static str, Option<String>)>,
}

fn by_series(totals: Vec<QueueTotal>, is_known: impl Fn(&str) -> bool) -> BTreeMap<Series, u64> {
    let mut by_series = BTreeMap::new();
    for total in totals {
        let outcome = match total.event {
            QueueEvent::Ended { status, reason } => Some((status.as_str(), reason)),
            QueueEvent::WorkerLost => None,
            _ => continue, // of a later version
        };
        let queue = label_of_queue(total.queue, &is_known);
        *by_series.entry(Series { queue, outcome }).or_default() += total.count;
    }
    by_series
}

#[cfg(test)]
mod tests {
    use tower_triage_durable::RequestStatus;

    use super::*;

    #[test]
    fn unknown_queues_are_counted_together() {
        let canceled = || QueueEvent::Ended {
            status: RequestStatus::Canceled,
            reason: Some("deadline_exceeded".to_owned()),
        };
        let totals = vec![
            QueueTotal::new("m".to_owned(), canceled(), 1),
            QueueTotal::new("x".to_owned(), canceled(), 2),
            QueueTotal::new("y".to_owned(), canceled(), 3),
            QueueTotal::new("y".to_owned(), QueueEvent::WorkerLost, 4),
        ];
        let series = |queue: &str, outcome| Series {
            queue: queue.to_owned(),
            outcome,
        };
        let late = || Some(("canceled", Some("deadline_exceeded".to_owned())));
        let expected = [
            (series("m", late()), 1),
            (series("other", late()), 5),
            (series("other", None), 4),
        ];
        let by_series = by_series(totals, |queue| queue == "m");
        assert_eq!(by_series, BTreeMap::from(expected));
    }
}
