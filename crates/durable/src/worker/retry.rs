//! Further attempts of requests that failed in a way that may pass.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use httpdate::parse_http_date;

/// The rule by which a [`Worker`](super::Worker) runs a request again whose attempt failed.
///
/// A failure may pass if the response has the status 429 or one of the 5xx, other than 501 and 505, or if there is none
/// because the service failed or broke off. The request then goes back into its queue, and begins again after a pause, which
/// doubles with each attempt and is at least the response's `Retry-After`. The outcome of the last attempt is that of the
/// request. So is that of an attempt after which the pause would last beyond the request's deadline.
///
/// The default allows one attempt, because a service may have worked on a request that failed.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_durable::RetryPolicy;
///
/// let policy = RetryPolicy::attempts(5).backoff(Duration::from_secs(2), Duration::from_secs(60));
/// assert_eq!(policy.max_attempts, 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The largest number of attempts, with the first one. It is 1 by default.
    pub max_attempts: u32,
    /// The pause after the first attempt, 1 s by default.
    pub backoff: Duration,
    /// The longest pause to which the first one grows, 60 s by default.
    pub max_backoff: Duration,
}

/// The longest `Retry-After` that is obeyed. A longer one is more likely a mistake than a plan.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

impl RetryPolicy {
    /// Creates a policy of at most so many attempts.
    #[must_use]
    pub fn attempts(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            ..Self::default()
        }
    }

    /// Sets the first pause and the longest one.
    #[must_use]
    pub fn backoff(self, first: Duration, longest: Duration) -> Self {
        Self {
            backoff: first,
            max_backoff: longest,
            ..self
        }
    }

    /// Returns the pause before the next attempt, or `None` if this attempt was the last one. Attempts count from 1.
    pub(super) fn pause(
        &self,
        attempt: u32,
        failure: &MayPass,
        time_left: Option<Duration>,
    ) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let backoff = self.backoff.saturating_mul(doubled).min(self.max_backoff);
        let pause = backoff.max(failure.retry_after.unwrap_or_default());
        time_left.is_none_or(|left| pause < left).then_some(pause)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 1,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

/// A failure that may have passed by the time of another attempt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MayPass {
    /// The time that the response asks for.
    retry_after: Option<Duration>,
}

impl MayPass {
    /// Returns the failure of a response, if it is one that may pass.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let may_pass = match status.as_u16() {
            429 => true,
            501 | 505 => false, // what is missing stays so
            code => code >= 500,
        };
        may_pass.then(|| Self {
            retry_after: retry_after(headers),
        })
    }
}

/// Returns the time in `Retry-After`, which is a number of seconds or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_http_date(text)
            .ok()?
            .duration_since(SystemTime::now())
            .ok()?,
    };
    Some(time.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(status: u16, retry_after: Option<&'static str>) -> Option<MayPass> {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
        }
        MayPass::of(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn overload_and_errors_of_the_service_may_pass() {
        for (status, may_pass) in [
            (200, false),
            (400, false),
            (404, false),
            (429, true),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (504, true),
            (505, false),
            (529, true),
        ] {
            assert_eq!(failure(status, None).is_some(), may_pass, "{status}");
        }
    }

    #[test]
    fn pauses_double_and_obey_the_response() {
        let policy = RetryPolicy::attempts(5).backoff(SECOND, 3 * SECOND);
        for (attempt, retry_after, left, pause) in [
            (1, None, None, Some(1)),
            (2, None, None, Some(2)),
            (3, None, None, Some(3)),
            (4, None, None, Some(3)),
            (5, None, None, None),
            (1, Some("7"), None, Some(7)),
            (3, Some("1"), None, Some(3)),
            (1, Some("Sun, 06 Nov 1994 08:49:37 GMT"), None, Some(1)),
            (1, Some("soon"), None, Some(1)),
            (1, Some("999999"), None, Some(3_600)),
            (1, None, Some(2), Some(1)),
            (2, None, Some(2), None),
        ] {
            let failure = failure(503, retry_after).unwrap();
            let left = left.map(Duration::from_secs);
            let expected = pause.map(Duration::from_secs);
            let got = policy.pause(attempt, &failure, left);
            assert_eq!(got, expected, "{attempt} {retry_after:?}");
        }
        let once = RetryPolicy::default();
        assert_eq!(once.pause(1, &MayPass::default(), None), None);
        let many = RetryPolicy::attempts(u32::MAX);
        assert_eq!(
            many.pause(1_000, &MayPass::default(), None),
            Some(60 * SECOND)
        );
    }
}
