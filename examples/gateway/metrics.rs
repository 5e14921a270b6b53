//! `/metrics`: what the router tells the `metrics` facade, and what the gateway adds, as Prometheus text.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::log::dropped_lines;
use crate::service::Handle;

/// In seconds: a wait that nobody notices, up to one that few have the patience for.
const WAITS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// What is recorded of waits and not scraped is summed up this often, lest it pile up.
const UPKEEP: Duration = Duration::from_secs(5);

/// Begins to record.
pub(crate) fn start() {
    let recorder = recorder();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            recorder.run_upkeep();
        }
    });
}

/// A process has one recorder.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let waits = Matcher::Full("triage_queue_wait_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(waits, &WAITS);
        let builder = builder.expect("there are buckets");
        let recorder = builder.install_recorder().expect("nobody else has one");
        for (name, help) in [
            (SERVED, "Requests that were given a slot."),
            (
                CANCELLED,
                "Requests whose clients left before they got a slot.",
            ),
            (REJECTED, "Requests that were turned away, by reason."),
            (RESPONSES, "Requests that were answered, by status."),
            (
                LOG_LINES_DROPPED,
                "Lines of the log that standard error did not take.",
            ),
        ] {
            describe_counter!(name, Unit::Count, help);
        }
        recorder
    })
}

const SERVED: &str = "triage_served_total";
const CANCELLED: &str = "triage_cancelled_total";
const REJECTED: &str = "triage_rejected_total";
const RESPONSES: &str = "triage_responses_total";
const LOG_LINES_DROPPED: &str = "triage_log_lines_dropped_total";

/// The page, with the answers given so far by status.
pub(crate) fn page(handle: &Handle, answers: &BTreeMap<u16, u64>) -> String {
    let recorder = recorder();
    handle.record_gauges();
    let queue = handle.snapshot().queue;
    counter!(SERVED).absolute(queue.served);
    counter!(CANCELLED).absolute(queue.cancelled);
    for (code, count) in queue.rejected {
        counter!(REJECTED, "code" => code).absolute(count);
    }
    for (status, count) in answers {
        counter!(RESPONSES, "status" => status.to_string()).absolute(*count);
    }
    counter!(LOG_LINES_DROPPED).absolute(dropped_lines());
    recorder.render()
}
