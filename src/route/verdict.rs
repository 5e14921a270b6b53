//! Counting a client's mistakes as failures of the endpoint takes it away from everybody else.

use http::{Response, StatusCode};

use super::Unanswered;

/// What an answer says of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It served the request, or said what is wrong with it.
    Served,
    /// Nothing: it was not asked.
    NotAsked,
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
            return Self::unanswered(Retry::Yes);
        };
        if let Some(why) = response.extensions().get::<Unanswered>() {
            return Self::unanswered(match why {
                Unanswered::OutOfFiles => return Self::NotAsked,
                // It may still be at work, and all that time is gone.
                Unanswered::Timeout => Retry::No,
                Unanswered::BrokeOff => Retry::Once,
                Unanswered::Unreachable | Unanswered::ConnectTimeout => Retry::Yes,
            });
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
            _ => Self::Served,
        }
    }

    fn unanswered(retry: Retry) -> Self {
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
            Self::Served | Self::NotAsked => Retry::No,
            Self::Failed { retry, .. } => retry,
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
            assert_eq!(verdict(answer(status)), Verdict::Served, "{status}");
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
        response.extensions_mut().insert(Unanswered::OutOfFiles);
        assert_eq!(verdict(response), Verdict::NotAsked);
    }

    #[test]
    fn no_answer_is_worth_another_try_unless_it_took_all_the_time() {
        assert_eq!(Verdict::of::<(), _>(&Err(())).retry(), Retry::Yes);
        for (why, retry) in [
            (Unanswered::Unreachable, Retry::Yes),
            (Unanswered::ConnectTimeout, Retry::Yes),
            (Unanswered::BrokeOff, Retry::Once),
            (Unanswered::Timeout, Retry::No),
        ] {
            let mut response = answer(502);
            response.extensions_mut().insert(why);
            let answered = false;
            assert_eq!(verdict(response), Verdict::Failed { answered, retry });
        }
    }
}
