//! The records of live requests, as the router and the response's body tell them.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use http::HeaderValue;
use tower_triage::route::RouteObserver;
use tower_triage::{Priority, Ticket};

use super::*;

fn record(live: &Live, id: &'static str) -> (Arc<Record>, Place) {
    let record = Arc::new(Record::new(HeaderValue::from_static(id), false));
    let place = live.insert(&record);
    (record, place)
}

#[test]
fn a_request_is_listed_once_the_router_has_seen_it_and_until_its_end() {
    let live = Live::default();
    let (record, place) = record(&live, "a");
    assert!(live.snapshot().is_empty());
    assert_eq!(live.cancel_by_id("a"), Named::Nobody);
    record.on_reading(Instant::now());
    assert_eq!(live.snapshot()[0].phase, "reading");
    live.remove(place);
    assert!(live.snapshot().is_empty());
}

#[test]
fn a_waiting_request_shows_its_ticket_and_its_wait() {
    let live = Live::default();
    let (record, _) = record(&live, "a");
    let long = "é".repeat(LONGEST_NAME);
    record.on_asked(&long.as_str().into());
    record.on_ticket(&Ticket::from(Priority(1)).tenant("team-a".into()), "normal");
    let Some(since) = Instant::now().checked_sub(Duration::from_secs(5)) else {
        return; // the machine has just started
    };
    record.on_queued(since);
    let shown = &live.snapshot()[0];
    assert_eq!(shown.phase, "waiting");
    assert_eq!(shown.level.as_deref(), Some("normal"));
    assert_eq!(shown.tenant.as_deref(), Some("team-a"));
    assert_eq!(shown.model.as_ref().map(String::len), Some(LONGEST_NAME));
    assert!(shown.wait_ms >= 5_000 && shown.age_ms >= 5_000);
    assert_eq!((shown.endpoint.clone(), shown.first_byte_ms), (None, None));
}

#[test]
fn the_oldest_request_is_the_first() {
    let live = Live::default();
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    for (id, at) in [("b", later), ("a", now), ("c", later)] {
        record(&live, id).0.on_queued(at);
    }
    let listed = live.snapshot();
    assert_eq!(listed.len(), 3);
    assert_eq!(listed[0].id, "a");
}

#[test]
fn cancelling_names_one_request_whatever_id_clients_choose() {
    let live = Live::default();
    let records = [record(&live, "a").0, record(&live, "a").0];
    let other = record(&live, "b").0;
    for record in records.iter().chain([&other]) {
        record.on_queued(Instant::now());
        assert!(!record.poll_cancelled(&Context::from_waker(Waker::noop())));
    }
    let keys = records.each_ref().map(|record| record.key.to_string());
    let Named::Several { keys: told } = live.cancel_by_id("a") else {
        panic!("two requests have this id");
    };
    assert!(told.len() == 2 && keys.iter().all(|key| told.contains(key)));
    assert!(!records.iter().any(|record| record.is_cancelled()));
    let cancelled = |id: &str| Named::Cancelled { id: id.to_owned() };
    assert_eq!(live.cancel_by_key(&keys[0]), cancelled("a"));
    assert_eq!(live.cancel_by_id("b"), cancelled("b"));
    assert!(records[0].is_cancelled() && !records[1].is_cancelled());
    assert!(other.is_cancelled());
    for nobody in [live.cancel_by_id("c"), live.cancel_by_key("a")] {
        assert_eq!(nobody, Named::Nobody);
    }
}

#[test]
fn the_last_fifty_refusals_are_kept_newest_first() {
    let live = Live::default();
    for status in 0..60 {
        let (record, _) = record(&live, "a");
        live.refused(record, status, "queue_full");
    }
    let refusals = live.refusals();
    let statuses: Vec<u16> = refusals.iter().map(|refusal| refusal.status).collect();
    assert_eq!(statuses, (10..60).rev().collect::<Vec<u16>>());
    assert!(refusals[0].at > 1_700_000_000);
}
