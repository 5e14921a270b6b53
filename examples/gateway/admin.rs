//! What an operator sees: `/admin/state` as JSON, `/metrics` as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

/// The gateway at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) queue: QueueState,
    pub(crate) endpoints: Vec<EndpointState>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueueState {
    /// How many requests wait.
    pub(crate) depth: usize,
    /// How many are being served.
    pub(crate) running: usize,
    /// How many were given a slot since the start.
    pub(crate) served: u64,
    /// How many left before they were answered since the start.
    pub(crate) cancelled: u64,
    /// How many were turned away since the start, by the `code` they were told.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct EndpointState {
    pub(crate) name: String,
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    pub(crate) healthy: bool,
    pub(crate) draining: bool,
    pub(crate) priority: u32,
    /// How long the heads of its answers took of late, on average; 0 before the first.
    pub(crate) first_byte_ms: f64,
    /// The same for whole answers.
    pub(crate) total_ms: f64,
    pub(crate) models: Vec<String>,
}

/// The Prometheus text of a snapshot and of the answers given so far, by status.
pub(crate) fn metrics(snapshot: &Snapshot, answers: &BTreeMap<u16, u64>) -> String {
    let Snapshot { queue, endpoints } = snapshot;
    let mut text = Text::default();
    text.family("triage_queue_depth", "gauge", "Requests that wait.");
    text.sample("triage_queue_depth", None, queue.depth);
    text.family("triage_running", "gauge", "Requests that are being served.");
    text.sample("triage_running", None, queue.running);
    text.family(
        "triage_served_total",
        "counter",
        "Requests that were given a slot.",
    );
    text.sample("triage_served_total", None, queue.served);
    text.family(
        "triage_cancelled_total",
        "counter",
        "Requests whose clients left before they were answered.",
    );
    text.sample("triage_cancelled_total", None, queue.cancelled);
    text.family(
        "triage_rejected_total",
        "counter",
        "Requests that were turned away, by reason.",
    );
    for (code, count) in &queue.rejected {
        text.sample("triage_rejected_total", Some(("code", code)), count);
    }
    text.family(
        "triage_requests_total",
        "counter",
        "Requests that were answered, by status.",
    );
    for (status, count) in answers {
        text.sample(
            "triage_requests_total",
            Some(("status", &status.to_string())),
            count,
        );
    }
    text.family(
        "triage_endpoint_in_flight",
        "gauge",
        "Requests that an endpoint serves.",
    );
    for endpoint in endpoints {
        text.sample(
            "triage_endpoint_in_flight",
            Some(("endpoint", &endpoint.name)),
            endpoint.in_flight,
        );
    }
    text.family(
        "triage_endpoint_limit",
        "gauge",
        "Requests that an endpoint may serve at a time.",
    );
    for endpoint in endpoints {
        text.sample(
            "triage_endpoint_limit",
            Some(("endpoint", &endpoint.name)),
            endpoint.limit,
        );
    }
    text.family(
        "triage_endpoint_healthy",
        "gauge",
        "Whether an endpoint is given requests: 1 or 0.",
    );
    for endpoint in endpoints {
        text.sample(
            "triage_endpoint_healthy",
            Some(("endpoint", &endpoint.name)),
            u8::from(endpoint.healthy),
        );
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}"); // a String takes everything
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: impl std::fmt::Display) {
        _ = match label {
            Some((label, of)) => {
                let of = of
                    .replace('\\', r"\\")
                    .replace('"', "\\\"")
                    .replace('\n', r"\n");
                writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}")
            }
            None => writeln!(self.0, "{name} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_prometheus_text() {
        let endpoint = EndpointState {
            name: "a\"\\".to_owned(),
            in_flight: 3,
            limit: 4,
            healthy: true,
            draining: false,
            priority: 1,
            first_byte_ms: 0.0,
            total_ms: 0.0,
            models: Vec::new(),
        };
        let snapshot = Snapshot {
            queue: QueueState {
                depth: 1,
                running: 3,
                served: 9,
                cancelled: 0,
                rejected: [("queue_full", 2)].into(),
            },
            endpoints: vec![endpoint],
        };
        let text = metrics(&snapshot, &[(200, 7)].into());
        for line in [
            "# TYPE triage_queue_depth gauge",
            "triage_queue_depth 1",
            "triage_rejected_total{code=\"queue_full\"} 2",
            "triage_requests_total{status=\"200\"} 7",
            r#"triage_endpoint_in_flight{endpoint="a\"\\"} 3"#,
            r#"triage_endpoint_limit{endpoint="a\"\\"} 4"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
