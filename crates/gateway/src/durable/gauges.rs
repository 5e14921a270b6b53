//! The gauges of a store: the requests of each queue and level, and the age of the oldest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Unit, describe_gauge, gauge};
use tokio::time::timeout;
use tower_triage::{Priority, PriorityLevels, RouteHandle};
use tower_triage_durable::{QueueDepth, Store};

use super::counters::record_totals;

const DEPTH: &str = "triage_durable_depth";
const RUNNING: &str = "triage_durable_running";
const OLDEST: &str = "triage_durable_oldest_seconds";
const STORE_UP: &str = "triage_durable_store_up";

/// The longest time that a page waits for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Gauges {
    store: Arc<dyn Store>,
    router: RouteHandle,
    levels: PriorityLevels,
    /// The values of the page before.
    shown: Mutex<Depths>,
}

/// The values of each queue and level.
type Depths = BTreeMap<(String, String), Values>;

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Values {
    queued: u64,
    running: u64,
    oldest: Duration,
}

impl Gauges {
    pub(super) fn new(store: Arc<dyn Store>, router: RouteHandle, levels: PriorityLevels) -> Self {
        describe_gauge!(DEPTH, Unit::Count, "Stored requests that wait.");
        describe_gauge!(RUNNING, Unit::Count, "Stored requests that workers have.");
        describe_gauge!(
            OLDEST,
            Unit::Seconds,
            "The age of the oldest stored request that waits."
        );
        describe_gauge!(
            STORE_UP,
            Unit::Count,
            "1 if the store of requests answers, else 0."
        );
        Self {
            store,
            router,
            levels,
            shown: Mutex::default(),
        }
    }

    /// Sets all gauges and the counters of the store to the present values; of a store that does not answer, all but one
    /// stay as they are.
    pub(super) async fn record(&self) {
        let values = async { tokio::try_join!(self.store.depths(), self.store.totals()) };
        let Ok(Ok((depths, totals))) = timeout(STORE_TIMEOUT, values).await else {
            return gauge!(STORE_UP).set(0.0);
        };
        gauge!(STORE_UP).set(1.0);
        let registry = self.router.registry();
        // Without backends of its own, a gateway stores requests for any name: no label is a client's.
        let is_known = |queue: &str| registry.models().any(|model| model == queue);
        record_totals(totals, is_known);
        let now = by_label(depths, &self.levels, is_known);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *shown, now);
        for labels in before.into_keys() {
            shown.entry(labels).or_default(); // empty now
        }
        for ((queue, level), values) in &*shown {
            let labels = [("queue", queue.clone()), ("priority", level.clone())];
            gauge!(DEPTH, &labels).set(values.queued as f64);
            gauge!(RUNNING, &labels).set(values.running as f64);
            gauge!(OLDEST, &labels).set(values.oldest.as_secs_f64());
        }
    }
}

/// Returns the label of a queue.
pub(super) fn label_of_queue(queue: String, is_known: impl Fn(&str) -> bool) -> String {
    match is_known(&queue) {
        true => queue,
        false => "other".to_owned(),
    }
}

/// Returns the values by the names of queues and levels. Those of unknown queues are together those of `other`.
fn by_label(
    depths: Vec<QueueDepth>,
    levels: &PriorityLevels,
    is_known: impl Fn(&str) -> bool,
) -> Depths {
    let mut by_label = Depths::new();
    for depth in depths {
        let queue = label_of_queue(depth.queue, &is_known);
        let level = levels.name(Priority(depth.level)).to_owned();
        let values = by_label.entry((queue, level)).or_default();
        values.queued += depth.queued;
        values.running += depth.running;
        values.oldest = values.oldest.max(depth.oldest.unwrap_or_default());
    }
    by_label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_queues_are_counted_together() {
        let depth = |queue: &str, level, queued, oldest| {
            let mut depth = QueueDepth::empty(queue.to_owned(), level);
            (depth.queued, depth.running) = (queued, 1);
            depth.oldest = Some(Duration::from_secs(oldest));
            depth
        };
        let depths = vec![
            depth("m", 0, 1, 5),
            depth("x", 1, 2, 7),
            depth("y", 1, 3, 6),
        ];
        let values = |queued, running, oldest| Values {
            queued,
            running,
            oldest: Duration::from_secs(oldest),
        };
        let label = |queue: &str, level: &str| (queue.to_owned(), level.to_owned());
        let expected = [
            (label("m", "high"), values(1, 1, 5)),
            (label("other", "normal"), values(5, 2, 7)),
        ];
        let by_label = by_label(depths, &PriorityLevels::default(), |queue| queue == "m");
        assert_eq!(by_label, Depths::from(expected));
    }
}
