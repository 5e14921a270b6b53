//! The class of a response, which decides the endpoint's health and whether another endpoint may do better.

use http::{Response, StatusCode};

use crate::endpoints::NoResponse;
use crate::http::is_overload;

/// The effect of a response on the endpoint's health. A client's mistake (4xx) does not count as a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseClass {
    /// The endpoint served the request, or it rejected the request as the client's mistake.
    Success,
    /// The health is unaffected, because the endpoint was not asked, or not to the end.
    Unknown { retry: Retry },
    Failure {
        /// `true` if the endpoint gave a response at all.
        answered: bool,
        retry: Retry,
    },
}

/// Advice on a retry at another endpoint, which may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    No,
    /// One more attempt is allowed, because the request itself may make endpoints break off.
    Once,
    Yes,
}

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
        match response.status() {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Failure {
                answered: true,
                retry: Retry::Yes,
            },
            status if status.is_server_error() => Self::Failure {
                answered: true,
                retry: Retry::No,
            },
            _ => Self::Success,
        }
    }

    /// Returns `true` if the endpoint may have worked on the request. This holds if it had a connection for the request
    /// and did not refuse the request as one too many.
    pub(super) fn may_have_worked<R, E>(result: &Result<Response<R>, E>) -> bool {
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

    /// Returns `true` if the endpoint can't be reached, or broke off before it answered.
    pub(super) fn is_unreachable(self) -> bool {
        matches!(self, Self::Failure { answered: false, retry } if retry != Retry::No)
    }

    /// Returns `true` if the endpoint gave a response.
    pub(super) fn is_answered(self) -> bool {
        matches!(self, Self::Success | Self::Failure { answered: true, .. })
    }

    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Failure { .. })
    }

    pub(super) fn retry(self) -> Retry {
        match self {
            Self::Success => Retry::No,
            Self::Unknown { retry } | Self::Failure { retry, .. } => retry,
        }
    }
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

    #[test]
    fn a_client_error_is_no_failure() {
        for status in [200, 206, 302, 400, 404, 413, 422, 429] {
            assert_eq!(class(answer(status)), ResponseClass::Success, "{status}");
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
            (529, Retry::No),
        ] {
            let answered = true;
            let expected = ResponseClass::Failure { answered, retry };
            assert_eq!(class(answer(status)), expected, "{status}");
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
