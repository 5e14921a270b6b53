//! Health checks and calls of a process over HTTP.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{Method, Uri};
use tokio::time::{sleep, timeout};

use super::engine::Engine;
use crate::upstream::{CheckError, Prober};

/// The upper bound of a health check's time limit, which is the interval of the checks.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The lower bound of the limit, for checks that are more frequent.
const LEAST_ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// The first pause between checks while the process starts, which doubles with each check.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The number of failed checks in a row after which a process counts as ended.
const FAILURES: u32 = 3;

/// A client of a process, which listens on a port or behind a proxy.
pub(super) struct HealthClient {
    prober: Prober,
    port: u16,
    proxy: ArcSwapOption<Uri>,
}

impl HealthClient {
    pub(super) fn new(prober: Prober, port: u16, proxy: Option<Uri>) -> Self {
        let proxy = ArcSwapOption::from_pointee(proxy);
        Self {
            prober,
            port,
            proxy,
        }
    }

    /// Sets the base URL of the calls from now on. `None` stands for the port of this machine.
    pub(super) fn set_proxy(&self, proxy: Option<Uri>) {
        self.proxy.store(proxy.map(Arc::new));
    }

    /// Sends a request without a body, and fails unless the answer is 2xx and comes within `limit`.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<(), CheckError> {
        let answer = self.prober.ask(method, self.target(path)?);
        match timeout(limit, answer).await {
            Ok(result) => result,
            Err(_) => Err(CheckError::Late(limit)),
        }
    }

    /// Sends a `GET` and reads its answer, piece by piece.
    pub(super) async fn stream(
        &self,
        path: &str,
        on_piece: impl FnMut(&[u8]),
    ) -> Result<(), CheckError> {
        self.prober.stream(self.target(path)?, on_piece).await
    }

    /// Checks the health until the answer is 2xx. Sets `last_error` to the error of the last check that failed.
    pub(super) async fn until_healthy(&self, path: &str, last_error: &mut Option<CheckError>) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.check(path, ANSWER_LIMIT).await {
            *last_error = Some(error);
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Checks the health for as long as the process is healthy. Resolves with the last error after [`FAILURES`] in a row.
    ///
    /// A missing answer does not count if `activity` has changed meanwhile, because the process is busy. The checks pause
    /// while the process `sleeps`.
    pub(super) async fn until_unhealthy(
        &self,
        path: &str,
        interval: Duration,
        activity: impl Fn() -> u32,
        sleeps: impl Fn() -> bool,
    ) -> CheckError {
        let limit = interval.clamp(LEAST_ANSWER_LIMIT, ANSWER_LIMIT);
        let mut failures = 0;
        loop {
            sleep(interval).await;
            if sleeps() {
                failures = 0;
                continue;
            }
            let activity_before = activity();
            match self.check(path, limit).await {
                Ok(()) => failures = 0,
                Err(error) if error.is_our_own() => {}
                Err(error) if error.is_late() && activity() != activity_before => {}
                Err(error) if failures + 1 == FAILURES => return error,
                Err(_) => failures += 1,
            }
        }
    }

    async fn check(&self, path: &str, limit: Duration) -> Result<(), CheckError> {
        self.ask(Method::GET, path, limit).await
    }

    /// Returns the URL of a path of the process.
    fn target(&self, path: &str) -> Result<Uri, http::Error> {
        let url = match &*self.proxy.load() {
            Some(proxy) => format!("{}{path}", proxy.to_string().trim_end_matches('/')),
            None => format!("http://127.0.0.1:{}{path}", self.port),
        };
        Ok(Uri::try_from(url)?)
    }
}

/// Checks the process at once. Returns `true` if it is healthy. A process that refuses connections has failed, because it
/// listened when it was ready.
pub(super) async fn check(engine: &Engine) -> bool {
    let Some(path) = &engine.launch.model.health_path else {
        return false;
    };
    let result = engine.client.check(path, LEAST_ANSWER_LIMIT).await;
    if matches!(&result, Err(error) if error.is_refused()) && !engine.is_asleep() {
        engine.refuses.notify_one();
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleeping_process_is_not_checked() {
        let client = HealthClient::new(Prober::local(), 0, None); // not even connected to
        let interval = Duration::from_secs(10);
        let check = |sleeps| {
            let failed = client.until_unhealthy("/health", interval, || 0, move || sleeps);
            timeout(interval * 10, failed)
        };
        assert!(check(true).await.is_err());
        assert!(check(false).await.is_ok());
    }
}
