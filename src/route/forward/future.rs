//! A request on its way to an endpoint and back.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Error, ResponseFuture};
use pin_project_lite::pin_project;

use super::failure::Failure;
use super::{EndpointRef, ForwardBody, headers};

pin_project! {
    /// The future of a [`Forward`](super::Forward). Dropping it closes the connection to the endpoint.
    #[must_use = "futures do nothing unless polled"]
    pub struct ForwardFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Sent { #[pin] answer: ResponseFuture, endpoint: EndpointRef },
        Failed { failure: Failure },
    }
}

impl ForwardFuture {
    pub(super) fn new(answer: ResponseFuture, endpoint: EndpointRef) -> Self {
        let state = State::Sent { answer, endpoint };
        Self { state }
    }

    pub(super) fn failed(failure: Failure) -> Self {
        let state = State::Failed { failure };
        Self { state }
    }
}

impl Future for ForwardFuture {
    type Output = Result<Response<ForwardBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match self.project().state.project() {
            StateProj::Sent { answer, endpoint } => match ready!(answer.poll(cx)) {
                Ok(response) => answered(response, endpoint),
                Err(error) => unanswered(&error, endpoint).response(),
            },
            StateProj::Failed { failure } => failure.response(),
        };
        Poll::Ready(Ok(response))
    }
}

fn answered(mut response: Response<Incoming>, endpoint: &EndpointRef) -> Response<ForwardBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody asked it to: `Upgrade` stops here.
        return Failure::BrokeOff(endpoint.name().to_owned()).response();
    }
    headers::strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    response.map(ForwardBody::endpoint)
}

fn unanswered(error: &Error, endpoint: &EndpointRef) -> Failure {
    let name = endpoint.name();
    tracing::warn!(endpoint = name, error = %Causes(error), "no answer from the endpoint");
    if error.is_connect() {
        Failure::Unreachable(name.to_owned())
    } else {
        Failure::BrokeOff(name.to_owned())
    }
}

/// An error and all that led to it: the outermost only says `client error`.
struct Causes<'a>(&'a Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ForwardFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardFuture").finish_non_exhaustive()
    }
}
