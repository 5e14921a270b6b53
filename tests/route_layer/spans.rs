//! Tests of the spans of waits and tries.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer as _, ServiceExt, service_fn};
use tower_triage::RouteLayer;
use tower_triage::endpoints::Registry;
use tower_triage::route::{RouteBody, RoutingConfig};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Span, Subscriber, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry as Spans};

use crate::support::{TestRouter, endpoint, settle, status, two};

/// A span that was made, with its fields.
#[derive(Debug, Default, Clone)]
struct Made {
    name: &'static str,
    parent: Option<&'static str>,
    fields: HashMap<&'static str, String>,
    is_closed: bool,
}

/// Keeps the spans of the crate and of the tests.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<(Id, Made)>>>);

impl Kept {
    /// Keeps the spans of this thread until the guard is dropped.
    fn start() -> (Self, DefaultGuard) {
        // While a process has one subscriber alone, a thread without it turns the spans off that it is the first to meet.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Spans::default()));
        let kept = Self::default();
        let spans = Spans::default().with(kept.clone());
        (kept, tracing::subscriber::set_default(spans))
    }

    fn named(&self, name: &str) -> Vec<Made> {
        let made = self.0.lock().unwrap();
        let made = made.iter().filter(|(_, made)| made.name == name);
        made.map(|(_, made)| made.clone()).collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Made)) {
        let mut made = self.0.lock().unwrap();
        // The last one, because the numbers of spans that have ended are used again.
        let found = made.iter_mut().rev().find(|(known, _)| known == id);
        change(&mut found.unwrap().1);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Kept {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut made = Made {
            name: span.name(),
            parent: span.parent().map(|parent| parent.name()),
            ..Made::default()
        };
        attributes.record(&mut made);
        self.0.lock().unwrap().push((id.clone(), made));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |made| record.record(made));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |made| made.is_closed = true);
    }
}

impl Visit for Made {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn each_try_has_a_span_with_its_endpoint_and_status() {
    let (kept, _guard) = Kept::start();
    let mut router = two();
    let sent = router.ask("m");
    let failed = router.call().await;
    let first = failed.endpoint().to_owned();
    assert!(!kept.named("triage.try")[0].is_closed);
    failed.answer(status(503));
    let second = router.call().await;
    let second_name = second.endpoint().to_owned();
    second.ok();
    sent.await.unwrap();
    let tries = kept.named("triage.try");
    assert_eq!(tries.len(), 2, "{tries:#?}");
    for (made, endpoint, status) in [(&tries[0], &first, "503"), (&tries[1], &second_name, "200")] {
        assert_eq!(&made.fields["endpoint"], endpoint);
        assert_eq!(
            (&*made.fields["model"], &*made.fields["via"]),
            ("m", "direct")
        );
        assert_eq!((&*made.fields["status"], made.is_closed), (status, true));
    }
    assert_eq!(kept.named("triage.queue").len(), 0, "no request waited");
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_a_span_from_the_queue_to_the_slot() {
    let (kept, _guard) = Kept::start();
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    let first = router.ask("m");
    let running = router.call().await;
    let (second, abandoned) = (router.ask("m"), router.ask("m"));
    settle().await;
    let waits = kept.named("triage.queue");
    assert_eq!(waits.len(), 2, "{waits:#?}");
    assert!(
        waits
            .iter()
            .all(|made| made.fields["priority"] == "1" && !made.is_closed)
    );
    abandoned.abort();
    running.ok();
    first.await.unwrap().into_body().collect().await.unwrap();
    router.call().await.ok();
    second.await.unwrap();
    settle().await;
    let mut ends: Vec<_> = kept.named("triage.queue").into_iter().collect();
    ends.sort_by_key(|made| made.fields.get("outcome").cloned());
    let outcomes: Vec<_> = ends.iter().map(|made| made.fields.get("outcome")).collect();
    assert_eq!(outcomes, [None, Some(&"slot".to_owned())]);
    assert!(ends.iter().all(|made| made.is_closed));
}

#[tokio::test]
async fn the_inner_service_runs_inside_of_the_span_of_its_try() {
    let (kept, _guard) = Kept::start();
    let registry = Registry::new(vec![endpoint("a", 1, &["m"])]).unwrap();
    let layer = RouteLayer::builder(registry).build();
    let service = layer.layer(service_fn(|_: Request<RouteBody<Full<Bytes>>>| {
        assert_eq!(Span::current().metadata().unwrap().name(), "triage.try");
        async {
            tokio::task::yield_now().await;
            info_span!("inner work");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("fine")))
        }
    }));
    let request = Request::new(Full::from(r#"{"model": "m"}"#));
    service.oneshot(request).await.unwrap();
    assert_eq!(kept.named("inner work")[0].parent, Some("triage.try"));
}
