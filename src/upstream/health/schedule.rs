//! The schedule of an endpoint's checks, which run at intervals with jitter and one at a time.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::probe::CheckError;
use super::threshold::Threshold;
use crate::endpoints::HealthCheck;

/// Checks an endpoint for ever. `probe` makes one check. `report` gets each result, and the new health of the endpoint
/// if the result changes it.
///
/// A check that times out is ignored if `activity` has changed meanwhile, because the endpoint is then only busy.
pub(super) async fn run_checks<F>(
    check: &HealthCheck,
    probe: impl Fn() -> F,
    activity: impl Fn() -> u32,
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
            Err(error) if error.is_late() => activity() == activity_before,
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
        _ = timeout(INTERVAL * 100, run_checks(&check, get, || 0, |_, _| {})).await;
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
        _ = timeout(INTERVAL * 10, run_checks(&check, get, || 0, tell)).await;
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
}
