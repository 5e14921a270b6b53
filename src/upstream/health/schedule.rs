//! The schedule of an endpoint's checks, which run at intervals with jitter and one at a time.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::probe::CheckError;
use crate::endpoints::HealthCheck;

/// Checks an endpoint for ever. `probe` makes one check. `report` gets each result, and the new health of the endpoint
/// if the result changes it.
///
/// A check that times out is ignored if `activity` has changed meanwhile, because the endpoint is then only busy. It is also
/// ignored while the endpoint `is_needed`, because its waiters lose nothing by waiting.
pub(super) async fn run_checks<F>(
    check: &HealthCheck,
    probe: impl Fn() -> F,
    activity: impl Fn() -> u32,
    is_needed: impl Fn() -> bool,
    mut report: impl FnMut(Option<bool>, Result<(), CheckError>),
) where
    F: Future<Output = Result<(), CheckError>>,
{
    let mut threshold = Threshold::default();
    loop {
        let pause = sleep(jittered(check.interval, fastrand::f64())); // the interval counts from here
        let activity_before = activity();
        let result = match timeout(check.timeout, probe()).await {
            Ok(result) => result,
            Err(_) => Err(CheckError::Late(check.timeout)),
        };
        let counts = match &result {
            Err(error) if error.is_late() => activity() == activity_before && !is_needed(),
            Err(error) => !error.is_our_own(),
            Ok(()) => true,
        };
        let up = counts
            .then(|| threshold.record(result.is_ok(), check))
            .flatten();
        report(up, result);
        pause.await;
    }
}

/// Returns `interval` plus or minus up to a tenth of it. `chance` is from 0 to 1 and selects the value in between.
pub(in crate::upstream) fn jittered(interval: Duration, chance: f64) -> Duration {
    let seconds = interval.as_secs_f64() * (0.9 + 0.2 * chance);
    Duration::try_from_secs_f64(seconds).unwrap_or(interval)
}

/// The health of an endpoint by its checks, and the number of results in a row that contradict it.
#[derive(Debug, Default)]
struct Threshold {
    /// `true` while the endpoint counts as up. `None` before the first result.
    up: Option<bool>,
    contradicting: u32,
}

impl Threshold {
    /// Records the result of a check. Returns `Some` with the new health if the result changes it.
    fn record(&mut self, well: bool, check: &HealthCheck) -> Option<bool> {
        if self.up == Some(well) {
            self.contradicting = 0;
            return None;
        }
        self.contradicting += 1;
        let needed = match self.up {
            None => 1,
            Some(true) => check.unhealthy_after,
            Some(false) => check.healthy_after,
        };
        if self.contradicting < needed {
            return None;
        }
        self.up = Some(well);
        self.contradicting = 0;
        self.up
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// A guard that counts up while it lives.
    struct AtOnce<'a>(&'a Cell<u32>);

    impl<'a> AtOnce<'a> {
        fn one_more(count: &'a Cell<u32>) -> Self {
            count.set(count.get() + 1);
            Self(count)
        }
    }

    impl Drop for AtOnce<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checks_start_at_once_and_an_interval_apart() {
        let (check, starts) = (HealthCheck::default(), RefCell::new(vec![]));
        let get = || {
            starts.borrow_mut().push(Instant::now());
            async {
                sleep(INTERVAL / 4).await;
                Ok(())
            }
        };
        let begun = Instant::now();
        _ = timeout(
            INTERVAL * 100,
            run_checks(&check, get, || 0, || false, |_, _| {}),
        )
        .await;
        let starts = starts.into_inner();
        assert_eq!(starts[0], begun);
        assert!((90..=112).contains(&starts.len()), "{}", starts.len());
        let ms = Duration::from_millis(1); // the granularity of the timer
        for pair in starts.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(apart >= INTERVAL * 9 / 10 - ms && apart <= INTERVAL * 11 / 10 + ms);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_check_ends_before_the_next_starts() {
        let check = HealthCheck::default().timeout(INTERVAL * 3);
        let (at_once, told) = (Cell::new(0), RefCell::new(vec![]));
        let get = || {
            let one = AtOnce::one_more(&at_once);
            assert_eq!(at_once.get(), 1);
            async move {
                let _one = one;
                pending().await
            }
        };
        let tell = |up, result: Result<(), _>| {
            assert!(matches!(result, Err(CheckError::Late(_))));
            told.borrow_mut().push(up);
        };
        let begun = Instant::now();
        _ = timeout(INTERVAL * 10, run_checks(&check, get, || 0, || false, tell)).await;
        assert_eq!(begun.elapsed(), INTERVAL * 10);
        assert_eq!(*told.borrow(), [Some(false), None, None]);
    }

    #[test]
    fn the_jitter_is_a_tenth_either_way() {
        for (chance, seconds) in [(0.0, 9.0), (0.5, 10.0), (1.0, 11.0)] {
            let jittered = jittered(INTERVAL, chance).as_secs_f64();
            assert!((jittered - seconds).abs() < 1e-6, "{chance}: {jittered}");
        }
        assert_eq!(jittered(Duration::MAX, 1.0), Duration::MAX);
    }

    /// Returns one character for each of `results`, where `+` is a passed check and `-` a failed one. `U` means that
    /// the endpoint came up, `D` that it went down, and `.` that it stayed the same.
    fn told(results: &str, unhealthy_after: u32, healthy_after: u32) -> String {
        let check = HealthCheck::default()
            .unhealthy_after(unhealthy_after)
            .healthy_after(healthy_after);
        let mut threshold = Threshold::default();
        let tell = |result| match threshold.record(result == '+', &check) {
            Some(true) => 'U',
            Some(false) => 'D',
            None => '.',
        };
        results.chars().map(tell).collect()
    }

    #[test]
    fn the_first_result_decides_then_results_in_a_row() {
        for (results, unhealthy_after, healthy_after, changes) in [
            ("+++", 3, 2, "U.."),
            ("---", 3, 2, "D.."),
            ("+---", 3, 2, "U..D"),
            ("+--+--+---", 3, 2, "U........D"),
            ("-++", 3, 2, "D.U"),
            ("-+-+-++", 3, 2, "D.....U"),
            ("+---++---", 3, 2, "U..D.U..D"),
            ("+-+-", 1, 1, "UDUD"),
            ("-+++-", 1, 3, "D..UD"),
        ] {
            let told = told(results, unhealthy_after, healthy_after);
            assert_eq!(
                told, changes,
                "{results}, {unhealthy_after}, {healthy_after}"
            );
        }
    }
}
