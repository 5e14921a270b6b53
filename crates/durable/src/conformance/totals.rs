//! Counts of what has happened.

use crate::reason::{DEADLINE_EXCEEDED, ERROR_RESPONSE, REQUEST_CANCELED, WORKER_LOST};
use crate::{QueueEvent, RequestStatus, StoreConfig};

use super::*;

/// Returns the number of requests of a queue that ended so.
async fn ended(store: &dyn Store, queue: &str, status: RequestStatus, reason: Option<&str>) -> u64 {
    let reason = reason.map(str::to_owned);
    total(store, queue, QueueEvent::Ended { status, reason }).await
}

async fn total(store: &dyn Store, queue: &str, event: QueueEvent) -> u64 {
    let totals = store.totals().await.unwrap().into_iter();
    let totals = totals.filter(|total| total.queue == queue && total.event == event);
    totals.map(|total| total.count).sum()
}

/// Totals count each end once.
pub async fn totals_count_each_end_once<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    assert_eq!(store.totals().await.unwrap(), []);
    for outcome in [
        ok(""),
        ok(""),
        responded(500, ""),
        failed("attempt_timeout"),
        again(H::UNIT),
    ] {
        enqueue(&*store, request()).await;
        let fetched = fetch_next(&*store).await;
        let lease = fetched.lease.clone();
        assert!(finish(&*store, fetched, outcome.clone()).await);
        _ = store.finish(lease, outcome).await;
    }
    let of_other = request_with(|request| request.queue = "other queue".into());
    let waiting = enqueue(&*store, of_other).await;
    for _ in 0..2 {
        store.cancel(waiting.id).await.unwrap();
    }
    let late = request_with(|request| request.cancel_after = Some(H::UNIT));
    let late = enqueue(&*store, late).await;
    store.ended(late.id).await.unwrap();
    for (queue, status, reason, count) in [
        ("", RequestStatus::Succeeded, None, 2),
        ("", RequestStatus::Failed, Some(ERROR_RESPONSE), 1),
        ("", RequestStatus::Failed, Some("attempt_timeout"), 1),
        ("", RequestStatus::Aborted, Some(DEADLINE_EXCEEDED), 1),
        (
            "other queue",
            RequestStatus::Canceled,
            Some(REQUEST_CANCELED),
            1,
        ),
    ] {
        let counted = ended(&*store, queue, status, reason).await;
        assert_eq!(counted, count, "{queue} {status} {reason:?}");
    }
    assert_eq!(store.totals().await.unwrap().len(), 5);
}

/// Totals count what lost its worker.
pub async fn totals_count_what_lost_its_worker<H: Harness>() {
    for (config, failures) in [(StoreConfig::default(), 1), (retrying(), 0)] {
        let mut harness = H::open(config).await;
        let store = harness.store();
        enqueue(&*store, request()).await;
        fetch_one(&*store).await;
        drop(store);
        harness.crash().await;
        let store = harness.store();
        eventually::<H>(async || total(&*store, "", QueueEvent::WorkerLost).await == 1).await;
        let failed = ended(&*store, "", RequestStatus::Failed, Some(WORKER_LOST)).await;
        assert_eq!(failed, failures);
    }
}
