//! What a queue says of its levels.

use tower_triage::PriorityLevels;

use super::*;

/// A queue of one slot and one place, of which the slot is taken.
fn layer(config: QueueConfig) -> QueueLayer {
    QueueLayer::new(config.max_size(1))
}

/// Sends a request of this level, and says whether it waits.
async fn waits(layer: &QueueLayer, level: &'static str) -> bool {
    let forever = service_fn(|_: Request<Full<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, BoxError>>()
    });
    let request = request(&[("x-priority", level)]);
    let sent = tokio::spawn(layer.layer(forever).oneshot(request));
    !is_done(&sent).await
}

fn full(layer: &QueueLayer) -> Vec<(String, u64)> {
    let status = layer.handle().status();
    let rejected = status.levels.into_iter();
    rejected
        .map(|level| (level.name, level.stats.full))
        .collect()
}

fn counts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let counts = expected.iter();
    counts
        .map(|&(name, count)| (name.to_owned(), count))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_full_room_counts_by_level_what_it_rejects_without_its_lock() {
    let layer = layer(QueueConfig::new(1));
    assert!(waits(&layer, "normal").await && waits(&layer, "normal").await);
    for _ in 0..3 {
        assert!(!waits(&layer, "normal").await);
    }
    // In place of the one that waits: then no level may displace another.
    assert!(waits(&layer, "high").await);
    assert!(!waits(&layer, "high").await && !waits(&layer, "normal").await);
    assert_eq!(full(&layer), counts(&[("high", 1), ("normal", 4)]));
    let status = layer.handle().status();
    assert_eq!((status.stats.full, status.stats.displaced), (5, 1));
    let waiting = status.levels.iter().map(|level| level.waiting);
    assert_eq!(waiting.collect::<Vec<_>>(), [1, 0]);

    let levels = PriorityLevels::new(["normal", "new", "HIGH"], "new").unwrap();
    let config = QueueConfig::new(1).max_size(1).levels(levels);
    layer.handle().reconfigure(config).unwrap();
    assert!(!waits(&layer, "high").await);
    let expected = [("normal", 4), ("new", 0), ("HIGH", 2)];
    assert_eq!(full(&layer), counts(&expected));
    assert_eq!(layer.handle().status().stats.full, 6);
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_before_its_level_is_known_is_counted_for_all() {
    let config = QueueConfig::new(1).max_size(1).displace(false);
    let (queue, handle) = queue(config, TestService::new());
    let (_first, _second) = (
        send(&queue, normal("a")).await,
        send(&queue, normal("b")).await,
    );
    assert!(queue.oneshot(urgent("c")).await.is_err());
    let status = handle.status();
    assert_eq!(status.stats.full, 1);
    assert!(status.levels.iter().all(|level| level.stats.full == 0));
}
