//! The activity of a process, which tells one that works from one that hangs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use tokio::time::sleep;

/// The requests of a process, and the traffic to and from it.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The number of requests that wait for the process.
    busy: AtomicU32,
    /// The number of reports, which wraps around.
    count: AtomicU32,
    /// The number of reports of traffic, which wraps around.
    moved: AtomicU32,
}

impl Activity {
    pub(super) fn record(&self, busy: u32) {
        // A report that changes between busy and idle is of clients that come or go, and not of traffic.
        let was_busy = self.busy.load(Relaxed) > 0;
        if was_busy == (busy > 0) {
            self.moved.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        // Release, so that a thread that reads this number also reads the count above.
        self.busy.store(busy, Release);
    }

    /// Returns a number that changes with each report of traffic.
    pub(super) fn moved(&self) -> u32 {
        self.moved.load(Relaxed)
    }

    fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Resolves when requests have waited without a report for at least `limit`, and less than twice as long.
    pub(super) async fn hangs(&self, limit: Duration) {
        loop {
            let before = self.count();
            sleep(limit).await;
            // Without a report, it was as busy all the time.
            if self.busy.load(Acquire) > 0 && self.count() == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_change_between_busy_and_idle_is_no_traffic() {
        let activity = Activity::default();
        let moves = [1, 0, 2, 1, 0, 0, 3].map(|busy| {
            let before = activity.moved();
            activity.record(busy);
            activity.moved() != before
        });
        assert_eq!(moves, [false, false, false, true, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_busy_process_without_activity_hangs() {
        let activity = Activity::default();
        let hangs = async |activity: &Activity| timeout(LIMIT * 3, activity.hangs(LIMIT)).await;
        assert!(hangs(&activity).await.is_err(), "it is idle");

        let streams = async {
            loop {
                activity.record(1);
                sleep(LIMIT / 2).await;
            }
        };
        tokio::select! {
            () = streams => {}
            result = hangs(&activity) => assert!(result.is_err(), "it streams"),
        }

        activity.record(2);
        let since = Instant::now();
        activity.hangs(LIMIT).await;
        assert!((LIMIT..LIMIT * 2).contains(&since.elapsed()));
        activity.record(0);
        assert!(hangs(&activity).await.is_err(), "it has ended");
    }
}
