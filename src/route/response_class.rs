//! Counting a client's mistakes as failures of the endpoint takes it away from everybody else.

use http::{Response, StatusCode};

use crate::endpoints::NoResponse;

/// What an answer says of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It served the request, or said what is wrong with it.
    ModelBackends,
    /// That cannot be told from it.
    Unknown { retry: Retry },
    Failed {
        /// Whether it gave an answer at all.
        answered: bool,
        retry: Retry,
    },
}

/// Whether another endpoint may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    No,
    /// One, and no more after it: it may be the request that makes endpoints break off.
    Once,
    Yes,
}

impl Verdict {
    pub(super) fn of<R, E>(result: &Result<Response<R>, E>) -> Self {
        let Ok(response) = result else {
            return Self::no_response(Retry::Yes);
        };
        if let Some(why) = response.extensions().get::<NoResponse>() {
            return match why {
                // It may still be at work, and all that time is gone.
                NoResponse::Timeout => Self::no_response(Retry::No),
                NoResponse::Reset => Self::no_response(Retry::Once),
                NoResponse::Unreachable | NoResponse::ConnectTimeout => {
                    Self::no_response(Retry::Yes)
                }
                NoResponse::BodyNotSent => Self::Unknown { retry: Retry::Yes },
                // It was not asked.
                NoResponse::OutOfFiles => Self::Unknown { retry: Retry::No },
            };
        }
        match response.status() {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Failed {
                answered: true,
                retry: Retry::Yes,
            },
            status if status.is_server_error() => Self::Failed {
                answered: true,
                retry: Retry::No,
            },
            _ => Self::ModelBackends,
        }
    }

    fn no_response(retry: Retry) -> Self {
        Self::Failed {
            answered: false,
            retry,
        }
    }

    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    pub(super) fn retry(self) -> Retry {
        match self {
            Self::ModelBackends => Retry::No,
            Self::Unknown { retry } | Self::Failed { retry, .. } => retry,
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

    fn verdict(response: Response<()>) -> Verdict {
        Verdict::of::<_, ()>(&Ok(response))
    }

    #[test]
    fn what_the_client_did_wrong_is_no_failure() {
        for status in [200, 206, 302, 400, 404, 413, 422, 429] {
            assert_eq!(verdict(answer(status)), Verdict::ModelBackends, "{status}");
        }
    }

    #[test]
    fn only_some_failures_are_worth_another_try() {
        for (status, retry) in [
            (500, Retry::No),
            (501, Retry::No),
            (502, Retry::Yes),
            (503, Retry::Yes),
            (504, Retry::Yes),
            (529, Retry::No),
        ] {
            let answered = true;
            let expected = Verdict::Failed { answered, retry };
            assert_eq!(verdict(answer(status)), expected, "{status}");
        }
    }

    #[test]
    fn files_of_our_own_that_ran_out_say_nothing_of_the_endpoint() {
        let mut response = answer(502);
        response.extensions_mut().insert(NoResponse::OutOfFiles);
        let retry = Retry::No;
        assert_eq!(verdict(response), Verdict::Unknown { retry });
    }

    #[test]
    fn a_body_that_could_not_be_sent_says_nothing_of_the_endpoint() {
        for status in [400, 502] {
            let mut response = answer(status);
            response.extensions_mut().insert(NoResponse::BodyNotSent);
            let retry = Retry::Yes;
            assert_eq!(verdict(response), Verdict::Unknown { retry });
        }
    }

    #[test]
    fn no_answer_is_worth_another_try_unless_it_took_all_the_time() {
        assert_eq!(Verdict::of::<(), _>(&Err(())).retry(), Retry::Yes);
        for (why, retry) in [
            (NoResponse::Unreachable, Retry::Yes),
            (NoResponse::ConnectTimeout, Retry::Yes),
            (NoResponse::Reset, Retry::Once),
            (NoResponse::Timeout, Retry::No),
        ] {
            let mut response = answer(502);
            response.extensions_mut().insert(why);
            let answered = false;
            assert_eq!(verdict(response), Verdict::Failed { answered, retry });
        }
    }
}
