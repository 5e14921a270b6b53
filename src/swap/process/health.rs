//! Asks a process over HTTP.

use std::time::Duration;

use http::{Method, Uri};
use tokio::time::{sleep, timeout};

use crate::upstream::{CheckError, Prober};

/// How long an answer about its health may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The pauses between questions while it starts: the first one, which doubles, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];
/// So many checks have to fail one after the other.
const FAILURES: u32 = 3;

/// Asks the process that listens on a port.
#[derive(Clone)]
pub(super) struct Client {
    prober: Prober,
    port: u16,
}

impl Client {
    pub(super) fn new(prober: Prober, port: u16) -> Self {
        Self { prober, port }
    }

    /// Where requests go.
    pub(super) fn url(&self) -> Result<Uri, http::Error> {
        self.target("/")
    }

    /// Sends a `POST` without a body. A 2xx answer is success.
    pub(super) async fn post(&self, path: &str) -> Result<(), CheckError> {
        self.prober.ask(Method::POST, self.target(path)?).await
    }

    /// Asks for its health until the answer is 2xx. Keeps why the last question failed in `last_error`.
    pub(super) async fn until_healthy(&self, path: &str, last_error: &mut Option<CheckError>) {
        let [mut pause, longest] = PAUSES;
        while let Err(error) = self.check(path, ANSWER_LIMIT).await {
            *last_error = Some(error);
            sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// Asks for its health for as long as it is healthy. Resolves with the last error after [`FAILURES`] in a row.
    ///
    /// A missing answer does not count if `activity` has changed meanwhile: the process is busy. While it `sleeps`, it is
    /// not asked.
    pub(super) async fn until_unhealthy(
        &self,
        path: &str,
        interval: Duration,
        activity: impl Fn() -> u32,
        sleeps: impl Fn() -> bool,
    ) -> CheckError {
        let mut failures = 0;
        loop {
            sleep(interval).await;
            if sleeps() {
                failures = 0;
                continue;
            }
            let activity_before = activity();
            match self.check(path, interval.min(ANSWER_LIMIT)).await {
                Ok(()) => failures = 0,
                Err(error) if error.is_our_own() => {}
                Err(error) if error.is_late() && activity() != activity_before => {}
                Err(error) if failures + 1 == FAILURES => return error,
                Err(_) => failures += 1,
            }
        }
    }

    async fn check(&self, path: &str, limit: Duration) -> Result<(), CheckError> {
        let answer = self.prober.ask(Method::GET, self.target(path)?);
        match timeout(limit, answer).await {
            Ok(result) => result,
            Err(_) => Err(CheckError::Late(limit)),
        }
    }

    fn target(&self, path: &str) -> Result<Uri, http::Error> {
        Ok(Uri::try_from(format!(
            "http://127.0.0.1:{}{path}",
            self.port
        ))?)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
