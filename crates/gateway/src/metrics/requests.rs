//! The metrics of each request, under the names and with the buckets that OpenTelemetry recommends.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use metrics::{Histogram, Label, Unit, describe_histogram, histogram};
use metrics_exporter_prometheus::Matcher;

use super::kept::Kept;

const DURATION: &str = "http_server_request_duration_seconds";
const FIRST_TOKEN: &str = "gen_ai_server_time_to_first_token_seconds";
const PER_TOKEN: &str = "gen_ai_server_time_per_output_token_seconds";
const USAGE: &str = "gen_ai_client_token_usage";

const DURATION_BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const FIRST_TOKEN_BUCKETS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const PER_TOKEN_BUCKETS: [f64; 13] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
];
const USAGE_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Returns the names of the histograms and their buckets.
pub(super) fn buckets() -> [(Matcher, &'static [f64]); 4] {
    let of = |name: &str, buckets| (Matcher::Full(name.to_owned()), buckets);
    [
        of(DURATION, &DURATION_BUCKETS[..]),
        of(FIRST_TOKEN, &FIRST_TOKEN_BUCKETS),
        of(PER_TOKEN, &PER_TOKEN_BUCKETS),
        of(USAGE, &USAGE_BUCKETS),
    ]
}

pub(super) fn describe() {
    for (name, what) in [
        (
            DURATION,
            "Time from a request's head to the end of its response.",
        ),
        (
            FIRST_TOKEN,
            "Time from a request's head to the first token of a streamed answer.",
        ),
        (
            PER_TOKEN,
            "Time per token after the first one of a streamed answer.",
        ),
    ] {
        describe_histogram!(name, Unit::Seconds, what);
    }
    let usage = "Tokens of prompts and answers, as the answers have told them.";
    describe_histogram!(USAGE, Unit::Count, usage);
}

/// The series of requests, whose handles are kept.
#[derive(Default)]
pub(crate) struct RequestSeries {
    durations: Kept<Labels, Histogram>,
    models: Kept<Arc<str>, ModelSeries>,
}

/// The labels of a request. Clients cannot add any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    /// The path, if it is a known one.
    pub(crate) route: Option<&'static str>,
    pub(crate) method: &'static str,
    /// `None` if the client left before it had an answer.
    pub(crate) status: Option<u16>,
}

/// The measures of an answer that a model gave.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Generated {
    pub(crate) first_token: Option<Duration>,
    pub(crate) per_token: Option<Duration>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

#[derive(Clone)]
struct ModelSeries {
    first_token: Histogram,
    per_token: Histogram,
    prompt_tokens: Histogram,
    output_tokens: Histogram,
}

impl RequestSeries {
    /// Records the duration of a request.
    pub(crate) fn ended(&self, labels: Labels, took: Duration) {
        let find = || histogram!(DURATION, labels.list());
        self.durations
            .with(&labels, find, |histogram| histogram.record(took));
    }

    /// Records the measures of an answer. `model` is a configured name.
    pub(crate) fn generated(&self, model: &Arc<str>, answer: &Generated) {
        if *answer == Generated::default() {
            return;
        }
        let find = || ModelSeries::find(model);
        self.models.with(model, find, |series| {
            if let Some(time) = answer.first_token {
                series.first_token.record(time);
            }
            if let Some(time) = answer.per_token {
                series.per_token.record(time);
            }
            if let Some(tokens) = answer.prompt_tokens {
                series.prompt_tokens.record(tokens as f64);
            }
            if let Some(tokens) = answer.output_tokens {
                series.output_tokens.record(tokens as f64);
            }
        });
    }
}

impl Labels {
    fn list(self) -> Vec<Label> {
        let method = Label::from_static_parts("http_request_method", self.method);
        let status = self.status.map(|status| status.to_string());
        let status = status.map(|status| Label::new("http_response_status_code", status));
        let route = self
            .route
            .map(|route| Label::from_static_parts("http_route", route));
        [Some(method), status, route]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl ModelSeries {
    fn find(model: &Arc<str>) -> Self {
        let model = || Label::new("gen_ai_request_model", model.to_string());
        let usage = |kind| {
            let kind = Label::from_static_parts("gen_ai_token_type", kind);
            histogram!(USAGE, vec![model(), kind])
        };
        Self {
            first_token: histogram!(FIRST_TOKEN, vec![model()]),
            per_token: histogram!(PER_TOKEN, vec![model()]),
            prompt_tokens: usage("input"),
            output_tokens: usage("output"),
        }
    }
}

/// Returns the name of a method, or OpenTelemetry's name for all others.
pub(crate) fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "POST", "GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "CONNECT", "TRACE",
    ];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("_OTHER")
}
