//! What tells an engine that works from one that hangs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use tokio::time::sleep;

/// How many requests a process has, and whether something comes of them.
#[derive(Debug, Default)]
pub(super) struct Activity {
    busy: AtomicU32,
    /// How often it was told of. It wraps.
    count: AtomicU32,
    /// How often something came from it or went to it. It wraps.
    moved: AtomicU32,
}

impl Activity {
    pub(super) fn record(&self, busy: u32) {
        // Clients alone can make it busy or idle.
        let was_busy = self.busy.load(Relaxed) > 0;
        if was_busy == (busy > 0) {
            self.moved.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        // After the count: a thread that sees that the process is busy sees why.
        self.busy.store(busy, Release);
    }

    /// A number that changes when something comes from it or goes to it.
    pub(super) fn moved(&self) -> u32 {
        self.moved.load(Relaxed)
    }

    fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Resolves when there were requests and no activity for at least `limit`, and less than twice as long.
    pub(super) async fn hangs(&self, limit: Duration) {
        loop {
            let before = self.count();
            sleep(limit).await;
            // Without activity, it was as busy all the time.
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
    fn what_only_becomes_busy_or_idle_does_not_move() {
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
