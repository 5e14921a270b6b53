//! The cost of a limit for a request that finds a slot free.

use bytes::Bytes;
use http_body_util::Empty;
use support::{Bench, Echo, Handle, LimitToBodyEnd, SmallBody, calls};
use tower::Layer;
use tower::limit::ConcurrencyLimitLayer;
use tower_triage::{QueueConfig, QueueLayer};

const SLOTS: usize = 64;
const TO_BODY_END: &str = "ConcurrencyLimit, permit in its body";
const TO_HEADERS: &str = "ConcurrencyLimit as it is";

fn compare(title: &str, handle: Handle, goals: [&'static str; 3]) {
    let queue = |config| calls::<_, Empty<Bytes>, _>(handle, QueueLayer::new(config).layer(Echo));
    let config = || QueueConfig::new(SLOTS);
    let [to_body_end, to_headers, released_at_headers] = goals;
    Bench::new(format!("A slot is free: {title}"), 1_001, 1_000)
        .base(
            "the inner service alone",
            calls::<_, Empty<Bytes>, _>(handle, Echo),
        )
        .subject(
            TO_BODY_END,
            calls::<_, Empty<Bytes>, _>(handle, LimitToBodyEnd::new(Echo, SLOTS)),
        )
        .subject(
            TO_HEADERS,
            calls::<_, Empty<Bytes>, _>(handle, ConcurrencyLimitLayer::new(SLOTS).layer(Echo)),
        )
        .subject("QueueLayer, default configuration", queue(config()))
        .against(TO_BODY_END, to_body_end)
        .against(TO_HEADERS, to_headers)
        .subject(
            "QueueLayer, no server-timing",
            queue(config().server_timing(false)),
        )
        .against(TO_BODY_END, to_body_end)
        .against(TO_HEADERS, to_headers)
        .subject(
            "QueueLayer::until_headers",
            calls::<_, SmallBody, _>(handle, QueueLayer::until_headers(config()).layer(Echo)),
        )
        .against(TO_HEADERS, released_at_headers)
        .run();
}

fn main() {
    compare(
        "a kept handle",
        Handle::Kept,
        ["≤ 0.85×", "≤ 1.2×", "≤ 0.55×"],
    );
    compare(
        "clone + oneshot",
        Handle::Cloned,
        ["≤ 0.65×", "≤ 1.0×", "≤ 0.85×"],
    );
}
