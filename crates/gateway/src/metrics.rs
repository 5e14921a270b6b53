//! The page `/metrics`: Prometheus text of the router's metrics and of the gateway's own counters.

mod kept;
mod requests;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::durable::Durable;
use crate::log::dropped_lines;
use crate::service::Handle;
pub(crate) use requests::{Generated, Labels, RequestSeries, method_name};

/// Histogram buckets of the time in the queue, in seconds.
const WAIT_BUCKETS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// Histogram buckets of the loads of models, in seconds.
const LOAD_BUCKETS: [f64; 11] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
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
        let recorder = builder()
            .install_recorder()
            .expect("no other recorder is installed");
        requests::describe();
        describe_gauge!(
            BUILD_INFO,
            "Always 1. The label is the version of the gateway."
        );
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
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

fn builder() -> PrometheusBuilder {
    let full = |name: &str| Matcher::Full(name.to_owned());
    let own = [
        (full("triage_queue_wait_seconds"), &WAIT_BUCKETS[..]),
        (full("triage_model_load_seconds"), &LOAD_BUCKETS),
    ];
    let all = own.into_iter().chain(requests::buckets());
    all.fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
        let builder = builder.set_buckets_for_metric(name, buckets);
        builder.expect("the list of buckets is not empty")
    })
}

const BUILD_INFO: &str = "triage_build_info";
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
