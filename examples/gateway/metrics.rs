//! The page `/metrics`: Prometheus text of the router's metrics and of the gateway's own counters.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::durable::Durable;
use crate::log::dropped_lines;
use crate::service::Handle;

/// Histogram buckets of the time in the queue, in seconds.
const WAIT_BUCKETS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// How often recorded waits are summed into buckets; without it they pile up between scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Installs the recorder and starts its upkeep task.
pub(crate) fn start() {
    let recorder = recorder();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            recorder.run_upkeep();
        }
    });
}

/// The recorder of this process, installed at the first call.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let waits = Matcher::Full("triage_queue_wait_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(waits, &WAIT_BUCKETS);
        let builder = builder.expect("the list of buckets is not empty");
        let recorder = builder
            .install_recorder()
            .expect("no other recorder is installed");
        for (name, help) in [
            (SERVED, "Requests that got a slot."),
            (
                CANCELLED,
                "Requests cancelled because the client disconnected before they got a slot.",
            ),
            (REJECTED, "Requests that were rejected, by error code."),
            (RESPONSES, "Responses, by status."),
            (
                LOG_LINES_DROPPED,
                "Log lines that were dropped because standard error did not take them.",
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

/// Renders the page. `statuses` is the number of responses by status.
pub(crate) async fn page(
    handle: &Handle,
    durable: Option<&Durable>,
    statuses: &BTreeMap<u16, u64>,
) -> String {
    let recorder = recorder();
    if let Some(durable) = durable {
        durable.record_gauges().await;
    }
    handle.record_gauges();
    let queue = handle.snapshot().queue;
    counter!(SERVED).absolute(queue.served);
    counter!(CANCELLED).absolute(queue.cancelled);
    for (code, count) in queue.rejected {
        counter!(REJECTED, "code" => code).absolute(count);
    }
    for (status, count) in statuses {
        counter!(RESPONSES, "status" => status.to_string()).absolute(*count);
    }
    counter!(LOG_LINES_DROPPED).absolute(dropped_lines());
    recorder.render()
}
