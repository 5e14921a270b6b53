//! The state of the gateway as the operator's page shows it. Rows have keys and are in objects, so that a patch of one row is
//! short, and `nth` is the place of a row.

mod requests;
mod room;
mod stored;
mod swap;

use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};
use tower_triage::endpoints::EndpointRef;

use super::history::{History, Reading, rounded};
use crate::durable::Durable;
use crate::live::Live;
use crate::reload::Reloads;
use crate::service::Handle;

/// The sources of the page.
pub(crate) struct Overview {
    pub(crate) handle: Handle,
    pub(crate) durable: Option<Durable>,
    pub(crate) live: Live,
    pub(crate) reloads: Reloads,
    pub(crate) started: Instant,
}

impl Overview {
    /// Returns the stored requests, which are asked for ahead of [`state`](Self::state). `None` without `[durable]`.
    pub(super) async fn stored_requests(&self) -> Option<Value> {
        Some(stored::requests(self.durable.as_ref()?).await)
    }

    /// Returns the state now, and adds its sample to `history`.
    pub(super) fn state(&self, history: &mut History, stored: Option<Value>) -> Value {
        let (router, live) = (self.handle.router(), self.live.snapshot());
        let (status, refused) = (router.status(), router.rejected());
        let waiting = room::Waiting::of(router);
        let reading = Reading {
            served: status.served,
            cancelled: status.stats.cancelled,
            refused: refused.clone(),
            waiting: status.depth,
            in_flight: status.running,
            oldest: status.levels.iter().filter_map(|level| level.oldest).max(),
        };
        let sample = history.add(SystemTime::now(), reading, &live);
        let endpoints = router.endpoints();
        json!({
            "schema": 1,
            "gateway": self.gateway(status.closed),
            "sample": sample,
            "room": room::room(&status, room::slots(&endpoints)),
            "levels": room::levels(&status.levels),
            "models": waiting.models(),
            "tenants": waiting.tenants(),
            "refused": refused,
            "refused_minute": history.refused_lately(),
            "endpoints": rows(endpoints.iter().map(|it| (it.name().to_owned(), endpoint(it)))),
            "swap": swap::models(&self.handle),
            "durable": stored,
            "live": requests::live(live),
            "refusals": requests::refusals(self.live.refusals()),
        })
    }

    fn gateway(&self, is_closed: bool) -> Value {
        let state = if is_closed { "draining" } else { "serving" };
        json!({
            "state": state,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "has_file": self.reloads.has_file(),
            "reload": self.reloads.last(),
        })
    }
}

/// Returns rows by their keys, each with its place.
fn rows(rows: impl IntoIterator<Item = (String, Value)>) -> Value {
    let rows = rows.into_iter().enumerate().map(|(nth, (key, mut row))| {
        row["nth"] = nth.into();
        (key, row)
    });
    Value::Object(rows.collect::<Map<_, _>>())
}

fn endpoint(endpoint: &EndpointRef) -> Value {
    let health = endpoint.health();
    let ms = |latency: std::time::Duration| (!latency.is_zero()).then_some(latency.as_millis());
    let models = endpoint.config().models.iter();
    json!({
        "in_flight": endpoint.in_flight(),
        "limit": endpoint.limit(),
        "adaptive": endpoint.config().limit.map(|_| true),
        "health": health.state.as_str(),
        "since_seconds": health.since.as_secs(),
        "why": health.reason.as_deref(),
        "draining": endpoint.draining(),
        "priority": endpoint.priority(),
        "first_byte_ms": ms(endpoint.first_byte_latency()),
        "total_ms": ms(endpoint.total_latency()),
        "failures": endpoint.failures(),
        "retries": endpoint.retries(),
        "models": models.map(|model| &model.name).collect::<Vec<_>>(),
    })
}

fn seconds(duration: Option<std::time::Duration>) -> Option<f64> {
    duration.map(|duration| rounded(duration.as_secs_f64()))
}
