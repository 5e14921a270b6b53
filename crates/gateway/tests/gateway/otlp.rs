//! Tests of the traces that the gateway exports by OTLP, with a backend in the place of the collector.

use std::collections::HashMap;

use prost::Message;

use crate::backend::{Backend, status};
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup};

/// The parts of OTLP's messages that the tests read.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Export {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) span_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Value>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Value {
        #[prost(string, optional, tag = "1")]
        pub(super) string: Option<String>,
        #[prost(int64, optional, tag = "3")]
        pub(super) int: Option<i64>,
    }
}

use message::{Export, KeyValue, Span};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(all: &[KeyValue]) -> HashMap<&str, String> {
    let text = |one: &KeyValue| {
        let value = one.value.clone().unwrap_or_default();
        let number = value.int.map(|int| int.to_string());
        value.string.or(number).unwrap_or_default()
    };
    all.iter().map(|one| (&*one.key, text(one))).collect()
}

/// Collects exports until `count` spans have come. Returns them with the name of their service.
async fn exported(collector: &Backend, count: usize) -> (String, Vec<Span>) {
    let (mut service, mut spans) = (String::new(), Vec::new());
    while spans.len() < count {
        let export = collector.next().await;
        assert_eq!(export.head.uri.path(), "/v1/traces");
        for resource in Export::decode(export.body.clone()).unwrap().resources {
            let all = resource.resource.unwrap_or_default().attributes;
            service = attributes(&all)["service.name"].clone();
            spans.extend(resource.scopes.into_iter().flat_map(|scope| scope.spans));
        }
        export.answer("");
    }
    (service, spans)
}

fn exporting(collector: &Backend) -> Setup {
    Setup::new()
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
        .environment("OTEL_BSP_SCHEDULE_DELAY", "50")
}

fn ask_in_trace(gateway: &Gateway) -> PendingResponse {
    let parent = format!("00-{TRACE}-{CALLER}-01");
    gateway.ask("m").header("traceparent", parent).send()
}

#[tokio::test]
async fn a_request_its_wait_and_its_tries_are_spans_of_the_clients_trace() {
    let (collector, one, two) = (
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    );
    let setup = exporting(&collector).backend("gpu-1", &one, 1, &["m"]);
    let gateway = setup.backend("gpu-2", &two, 1, &["m"]).start().await;
    let busy = [gateway.ask("m").send(), gateway.ask("m").send()];
    let running = [one.next().await, two.next().await];
    let sent = ask_in_trace(&gateway);
    gateway.depth(1).await;
    let [first, second] = running;
    first.answer("done");
    let failed = one.next().await;
    let handed_on = failed.header("traceparent").unwrap().to_owned();
    second.answer("done");
    gateway
        .until("the second is free", |state| state.in_flight() == [1, 0])
        .await;
    failed.respond(status(503));
    two.next().await.answer("fine");
    sent.answer().await.assert_ok("fine");
    for sent in busy {
        sent.answer().await.assert_ok("done");
    }
    // Two requests with a try each, and one with a wait and two tries.
    let (service, spans) = exported(&collector, 8).await;
    assert_eq!(service, "tower-triage-gateway");
    let spans: Vec<_> = spans
        .iter()
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    let named = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name == name)
            .collect::<Vec<_>>()
    };
    let requests = named("POST /v1/chat/completions");
    let request = requests[0];
    assert_eq!(hex(&request.parent), CALLER);
    assert_eq!(
        attributes(&request.attributes)["http.response.status_code"],
        "200"
    );
    assert_eq!(
        handed_on,
        format!("00-{TRACE}-{}-01", hex(&request.span_id))
    );
    let queue = named("triage.queue");
    assert_eq!(attributes(&queue[0].attributes)["outcome"], "slot");
    let tries = named("triage.try");
    let mut tried: Vec<_> = tries
        .iter()
        .map(|span| attributes(&span.attributes))
        .collect();
    tried.sort_by_key(|one| one["endpoint"].clone());
    assert_eq!((&*tried[0]["status"], &*tried[1]["status"]), ("503", "200"));
    let children = queue.iter().chain(&tries);
    assert!(
        children.clone().count() == 3 && children.clone().all(|it| it.parent == request.span_id),
        "{spans:#?}"
    );
}

#[tokio::test]
async fn the_last_spans_are_exported_at_the_end() {
    let (collector, backend) = (Backend::start().await, Backend::replying("fine").await);
    let setup = exporting(&collector).environment("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let mut gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.signal("TERM");
    let (_, spans) = exported(&collector, 2).await;
    assert_eq!(spans.len(), 2, "{spans:#?}");
    assert!(gateway.exit().await.success());
}

#[tokio::test]
async fn a_collector_that_does_not_answer_is_logged_once() {
    let (collector, backend) = (Backend::unreachable(), Backend::replying("fine").await);
    let setup = Setup::new()
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
        .environment("OTEL_BSP_SCHEDULE_DELAY", "50");
    let gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.logs(&["WARN", "traces cannot be exported"]).await;
}

#[tokio::test]
async fn the_export_can_be_turned_off() {
    for (name, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        let (collector, backend) = (Backend::start().await, Backend::start().await);
        let setup = exporting(&collector).environment(name, value);
        let mut gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
        let sent = ask_in_trace(&gateway);
        backend.next().await.answer("fine");
        sent.answer().await.assert_ok("fine");
        gateway.signal("TERM");
        assert!(gateway.exit().await.success());
        assert_eq!(collector.counts().arrived, 0, "{name}");
    }
}
