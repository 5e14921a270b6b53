//! The future of one request to an endpoint.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::iter::successors;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Error, ResponseFuture};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::connect::{ConnectError, out_of_files};
use super::connection::ConnectionHandle;
use super::failure::Failure;
use super::replay::Replay;
use super::upload::{Sending, unsent};
use super::{ForwardBody, headers};
use crate::endpoints::EndpointRef;
#[cfg(feature = "swap")]
use crate::endpoints::on_demand::{DoubtSettled, OnDemand};

pin_project! {
    /// The future of a [`Forward`](super::Forward)'s response. Dropping it closes the connection to the endpoint.
    #[must_use = "futures do nothing unless polled"]
    pub struct ForwardFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Sent {
            #[pin]
            answer: ResponseFuture,
            to: SentTo,
            sending: Option<Sending>,
            replay: Option<Replay>,
            limit: Duration,
            #[pin]
            late: Sleep,
        },
        // The endpoint gave no answer. Some time may pass until it is known if the endpoint has ended.
        Failed { response: FailedResponse },
        Done,
    }
}

/// The future of a response in place of an endpoint's.
type FailedResponse = Pin<Box<dyn Future<Output = Response<ForwardBody>> + Send + Sync>>;

/// The endpoint that a request was sent to.
struct SentTo {
    endpoint: EndpointRef,
    /// The number of times that the endpoint had been started when the request was sent. It is 0 unless the endpoint is
    /// started on demand.
    #[cfg(feature = "swap")]
    starts: u64,
}

impl ForwardFuture {
    /// Waits for `answer` until the endpoint has taken longer than `limit`.
    pub(super) fn new(
        answer: ResponseFuture,
        endpoint: EndpointRef,
        sending: Option<Sending>,
        replay: Option<Replay>,
        limit: Duration,
    ) -> Self {
        let late = sleep(limit);
        let to = SentTo {
            #[cfg(feature = "swap")]
            starts: endpoint.on_demand().map_or(0, OnDemand::starts),
            endpoint,
        };
        let state = State::Sent {
            answer,
            to,
            sending,
            replay,
            limit,
            late,
        };
        Self { state }
    }

    pub(super) fn failed(failure: Failure) -> Self {
        let response = Box::pin(async move { failure.response() });
        let state = State::Failed { response };
        Self { state }
    }
}

impl Future for ForwardFuture {
    type Output = Result<Response<ForwardBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        let response = match state.as_mut().project() {
            StateProj::Sent {
                answer,
                to,
                sending,
                replay,
                limit,
                mut late,
            } => match poll_answer(answer, &to.endpoint, sending, replay, cx) {
                Poll::Ready(Ok(response)) => answered(response, &to.endpoint, sending.take()),
                Poll::Ready(Err(error)) => {
                    let failure = no_response(&error, &to.endpoint, sending.take());
                    let mut response = failed(failure, to);
                    let polled = response.as_mut().poll(cx);
                    state.set(State::Failed { response }); // closes the connection
                    ready!(polled)
                }
                Poll::Pending => {
                    ready!(late.as_mut().poll(cx));
                    // The body may have moved on meanwhile, so the timeout starts again from its last piece.
                    while let Some(at) = sending.as_ref().and_then(|it| it.late_at(*limit))
                        && at > Instant::now()
                    {
                        late.as_mut().reset(at);
                        ready!(late.as_mut().poll(cx));
                    }
                    let name = to.endpoint.name();
                    tracing::warn!(endpoint = name, ?limit, "no answer in time");
                    Failure::Timeout(name.to_owned(), *limit).response()
                }
            },
            StateProj::Failed { response } => ready!(response.as_mut().poll(cx)),
            StateProj::Done => panic!("response future polled after it was answered"),
        };
        state.set(State::Done); // closes the connection, even if the future is kept
        Poll::Ready(Ok(response))
    }
}

/// Polls the answer. A request that was lost with a closed connection is sent again, once.
fn poll_answer(
    mut answer: Pin<&mut ResponseFuture>,
    endpoint: &EndpointRef,
    sending: &mut Option<Sending>,
    replay: &mut Option<Replay>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<Incoming>, Error>> {
    let error = match ready!(answer.as_mut().poll(cx)) {
        Ok(response) => return Poll::Ready(Ok(response)),
        Err(error) => error,
    };
    let replay = replay.take();
    let Some((again, body)) = replay.and_then(|it| it.after(&error, sending.as_ref())) else {
        return Poll::Ready(Err(error));
    };
    let name = endpoint.name();
    tracing::debug!(endpoint = name, error = %Causes(&error), "a kept connection was closed: sent again");
    *sending = body;
    answer.set(again);
    answer.poll(cx)
}

fn answered(
    mut response: Response<Incoming>,
    endpoint: &EndpointRef,
    sending: Option<Sending>,
) -> Response<ForwardBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // An upgrade cannot have been requested, because `Upgrade` is not passed on.
        return Failure::Reset(endpoint.name().to_owned()).response();
    }
    headers::to_client(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    let connection = response.extensions_mut().remove();
    response.map(|body| ForwardBody::endpoint(body, unsent(sending, connection)))
}

/// Resolves with a response in place of the one from `to`. The response says that a model has ended only if that is
/// known.
fn failed(failure: Failure, to: &SentTo) -> FailedResponse {
    #[cfg(feature = "swap")]
    if to.endpoint.on_demand().is_some() && failure.may_be_an_end() {
        let (endpoint, starts) = (to.endpoint.clone(), to.starts);
        return Box::pin(async move {
            let failure = match endpoint.end_since(starts).await {
                Some(end) => failure.by(end),
                None => failure,
            };
            let mut response = failure.response();
            response.extensions_mut().insert(DoubtSettled);
            response
        });
    }
    _ = to;
    Box::pin(async move { failure.response() })
}

/// Derives the failure of a request from hyper's error.
fn no_response(error: &Error, endpoint: &EndpointRef, sending: Option<Sending>) -> Failure {
    let name = endpoint.name();
    tracing::warn!(endpoint = name, error = %Causes(error), "no answer from the endpoint");
    let name = name.to_owned();
    let cause = error.source();
    if out_of_files(error) {
        return Failure::OutOfFiles(name);
    }
    if error.is_connect() {
        return match cause.and_then(|cause| cause.downcast_ref()) {
            Some(&ConnectError::TimedOut(limit)) => Failure::ConnectTimeout(name, limit),
            Some(&ConnectError::NoTls(why)) => Failure::NoTls(name, why),
            Some(ConnectError::Failed(_)) | None => Failure::Unreachable(name),
        };
    }
    let connection = error.connect_info().and_then(ConnectionHandle::of);
    let unsent = unsent(sending, connection);
    match cause.and_then(|cause| cause.downcast_ref::<hyper::Error>()) {
        Some(error) if error.is_user() => Failure::Body(name), // the request's body failed
        _ if unsent.is_some() => Failure::NotRead(name),
        _ => Failure::Reset(name),
    }
}

/// An error together with its causes, because the outermost error only says `client error`.
pub(crate) struct Causes<'a>(pub(crate) &'a Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut causes = successors(self.0.source(), |&error| error.source());
        causes.try_for_each(|error| write!(f, ": {error}"))
    }
}

impl fmt::Debug for ForwardFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardFuture").finish_non_exhaustive()
    }
}
