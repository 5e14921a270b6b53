//! The class of a response, which decides the endpoint's health and whether another endpoint may do better.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, Response, StatusCode};

use crate::endpoints::{ErrorInBody, NoResponse};
use crate::http::is_overload;

/// The effect of a response on the endpoint's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseClass {
    /// The endpoint served the request.
    Success,
    /// The endpoint rejected the request as the client's mistake (4xx), which says nothing of its health.
    Rejected,
    /// The endpoint is too full for the request, and did not run it.
    Refused(Refusal),
    /// The health is unaffected, because the endpoint was not asked, or not to the end.
    Unknown { retry: Retry },
    Failure {
        /// `true` if the endpoint gave a response at all.
        answered: bool,
        retry: Retry,
    },
}

/// The answer of an endpoint that is too full for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Refusal {
    /// The time after which the endpoint wants to be asked again, if it says one.
    pub(super) retry_after: Option<Duration>,
    /// `true` if the endpoint will not serve the request within the time that a request may wait.
    pub(super) is_final: bool,
}

/// Advice on a retry at another endpoint, which may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    No,
    /// One more attempt is allowed, because the request itself may make endpoints break off.
    Once,
    Yes,
}

/// The status of an API that has too much to do.
const OVERLOADED: u16 = 529;

/// The header with the exact time in which OpenAI's clients come again.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

impl ResponseClass {
    pub(super) fn of<R, E>(result: &Result<Response<R>, E>) -> Self {
        let Ok(response) = result else {
            return Self::no_response(Retry::Yes);
        };
        if let Some(why) = response.extensions().get::<NoResponse>() {
            return match why {
                // A timeout is not retried: the endpoint may still work on the request, and the whole timeout is spent.
                NoResponse::Timeout => Self::no_response(Retry::No),
                NoResponse::Reset => Self::no_response(Retry::Once),
                NoResponse::Unreachable | NoResponse::ConnectTimeout => {
                    Self::no_response(Retry::Yes)
                }
                NoResponse::BodyNotSent => Self::Unknown { retry: Retry::Yes },
                // This process has reached its limit of open files, so another endpoint would not help.
                NoResponse::OutOfFiles => Self::Unknown { retry: Retry::No },
            };
        }
        let status = response.status();
        if status.is_success() && response.extensions().is_empty() {
            return Self::Success; // nearly all are, and `ErrorInBody` is an extension
        }
        let in_body = response.extensions().get::<ErrorInBody>();
        Self::answered(status, response.headers(), in_body.copied())
    }

    fn answered(status: StatusCode, headers: &HeaderMap, in_body: Option<ErrorInBody>) -> Self {
        let is_quota = in_body == Some(ErrorInBody::QuotaExceeded);
        let is_refusal = match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => headers.contains_key(RETRY_AFTER),
            _ => status.as_u16() == OVERLOADED,
        };
        if is_refusal || is_quota || in_body == Some(ErrorInBody::Overloaded) {
            return Self::Refused(Refusal {
                retry_after: retry_after(headers),
                is_final: is_quota,
            });
        }
        match (status, in_body) {
            (
                StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT,
                _,
            ) => Self::failure(Retry::Yes),
            _ if status.is_server_error() => Self::failure(Retry::No),
            _ if status.is_client_error() => Self::Rejected,
            (_, Some(ErrorInBody::Failed)) => Self::failure(Retry::Yes),
            (_, Some(ErrorInBody::Rejected)) => Self::Rejected,
            _ => Self::Success,
        }
    }

    /// Returns `true` if the endpoint may have worked on the request. This holds if it had a connection for the request
    /// and did not refuse the request as one too many.
    pub(super) fn may_have_worked<R, E>(self, result: &Result<Response<R>, E>) -> bool {
        if matches!(self, Self::Refused(_)) {
            // An error in a successful response says that the endpoint had taken the request.
            return result.as_ref().is_ok_and(|it| it.status().is_success());
        }
        let Ok(response) = result else {
            return true;
        };
        match response.extensions().get::<NoResponse>() {
            Some(NoResponse::Unreachable | NoResponse::ConnectTimeout | NoResponse::OutOfFiles) => {
                false
            }
            Some(NoResponse::Reset | NoResponse::Timeout | NoResponse::BodyNotSent) => true,
            None => !is_overload(response.status()),
        }
    }

    fn no_response(retry: Retry) -> Self {
        Self::Failure {
            answered: false,
            retry,
        }
    }

    fn failure(retry: Retry) -> Self {
        Self::Failure {
            answered: true,
            retry,
        }
    }

    /// Returns `true` if the endpoint can't be reached, or broke off before it answered.
    pub(super) fn is_unreachable(self) -> bool {
        matches!(self, Self::Failure { answered: false, retry } if retry != Retry::No)
    }

    /// Returns `true` if the endpoint gave a response.
    pub(super) fn is_answered(self) -> bool {
        match self {
            Self::Success | Self::Rejected | Self::Refused(_) => true,
            Self::Failure { answered, .. } => answered,
            Self::Unknown { .. } => false,
        }
    }

    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Failure { .. })
    }

    /// Returns `true` if the request itself may be the cause, so that its tenant may be alone with it. No request keeps a
    /// connection from being made.
    pub(super) fn may_be_a_tenants_own(self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Failure { answered, retry } => answered || retry != Retry::Yes,
            Self::Success | Self::Rejected | Self::Unknown { .. } => false,
        }
    }

    pub(super) fn retry(self) -> Retry {
        match self {
            Self::Success | Self::Rejected | Self::Refused(_) => Retry::No,
            Self::Unknown { retry } | Self::Failure { retry, .. } => retry,
        }
    }
}

/// Returns the time after which an endpoint wants to be asked again. Dates are ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number =
        |name: HeaderName| -> Option<u64> { headers.get(name)?.to_str().ok()?.trim().parse().ok() };
    let exact = number(RETRY_AFTER_MS).map(Duration::from_millis);
    exact.or_else(|| number(RETRY_AFTER).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }

    fn class(response: Response<()>) -> ResponseClass {
        ResponseClass::of::<_, ()>(&Ok(response))
    }

    fn refused(retry_after: Option<u64>, is_final: bool) -> ResponseClass {
        ResponseClass::Refused(Refusal {
            retry_after: retry_after.map(Duration::from_millis),
            is_final,
        })
    }

    #[test]
    fn a_client_error_is_neither_failure_nor_success() {
        for status in [200, 206, 302] {
            assert_eq!(class(answer(status)), ResponseClass::Success, "{status}");
        }
        for status in [400, 401, 404, 408, 413, 422] {
            assert_eq!(class(answer(status)), ResponseClass::Rejected, "{status}");
        }
    }

    #[test]
    fn only_gateway_errors_are_retried() {
        for (status, retry) in [
            (500, Retry::No),
            (501, Retry::No),
            (502, Retry::Yes),
            (503, Retry::Yes),
            (504, Retry::Yes),
        ] {
            assert_eq!(
                class(answer(status)),
                ResponseClass::failure(retry),
                "{status}"
            );
        }
    }

    #[test]
    fn an_endpoint_that_is_full_refuses() {
        for (status, header, expected) in [
            (429, None, refused(None, false)),
            (529, None, refused(None, false)),
            (503, None, ResponseClass::failure(Retry::Yes)),
            (503, Some(("retry-after", "2")), refused(Some(2_000), false)),
            (503, Some(("retry-after", "soon")), refused(None, false)),
            (
                429,
                Some(("retry-after-ms", "70")),
                refused(Some(70), false),
            ),
            (
                502,
                Some(("retry-after", "2")),
                ResponseClass::failure(Retry::Yes),
            ),
        ] {
            let mut response = answer(status);
            if let Some((name, value)) = header {
                let name = HeaderName::from_static(name);
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            assert_eq!(class(response), expected, "{status} {header:?}");
        }
    }

    #[test]
    fn an_error_in_the_body_counts_beside_the_status() {
        use ErrorInBody::{Failed, Overloaded, QuotaExceeded, Rejected};
        for (status, in_body, expected) in [
            (200, Failed, ResponseClass::failure(Retry::Yes)),
            (200, Overloaded, refused(None, false)),
            (200, Rejected, ResponseClass::Rejected),
            (503, Overloaded, refused(None, false)),
            (503, Failed, ResponseClass::failure(Retry::Yes)),
            (500, Rejected, ResponseClass::failure(Retry::No)),
            (400, Failed, ResponseClass::Rejected),
            (429, QuotaExceeded, refused(None, true)),
        ] {
            let mut response = answer(status);
            response.extensions_mut().insert(in_body);
            assert_eq!(class(response), expected, "{status} {in_body:?}");
        }
    }

    #[test]
    fn out_of_files_is_no_endpoint_failure() {
        let mut response = answer(502);
        response.extensions_mut().insert(NoResponse::OutOfFiles);
        let retry = Retry::No;
        assert_eq!(class(response), ResponseClass::Unknown { retry });
    }

    #[test]
    fn an_unsent_body_says_nothing_of_the_endpoint() {
        for status in [400, 502] {
            let mut response = answer(status);
            response.extensions_mut().insert(NoResponse::BodyNotSent);
            let retry = Retry::Yes;
            assert_eq!(class(response), ResponseClass::Unknown { retry });
        }
    }

    #[test]
    fn a_missing_response_is_retried_unless_it_timed_out() {
        assert_eq!(ResponseClass::of::<(), _>(&Err(())).retry(), Retry::Yes);
        for (why, retry) in [
            (NoResponse::Unreachable, Retry::Yes),
            (NoResponse::ConnectTimeout, Retry::Yes),
            (NoResponse::Reset, Retry::Once),
            (NoResponse::Timeout, Retry::No),
        ] {
            let mut response = answer(502);
            response.extensions_mut().insert(why);
            let answered = false;
            assert_eq!(class(response), ResponseClass::Failure { answered, retry });
        }
    }
}
