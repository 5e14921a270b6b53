//! The future of one request to an endpoint.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::future::poll_fn;
use std::iter::successors;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Error, ResponseFuture};
use tokio::time::{Instant, sleep};

use super::connect::{ConnectError, out_of_files};
use super::connection::ConnectionHandle;
use super::failure::Failure;
use super::first_piece::with_first_piece;
use super::forward::Timeouts;
use super::replay::Replay;
use super::upload::{Sending, unsent};
use super::{ForwardBody, headers};
use crate::endpoints::EndpointRef;
#[cfg(feature = "swap")]
use crate::endpoints::on_demand::{OnDemand, SuspicionSettled};

/// The future of a [`Forward`](super::Forward)'s response. Dropping it closes the connection to the endpoint.
#[must_use = "futures do nothing unless polled"]
pub struct ForwardFuture(Pin<Box<dyn Future<Output = Response<ForwardBody>> + Send + Sync>>);

impl ForwardFuture {
    /// Waits for `answer` until the endpoint has taken longer than its timeout, and then for the first piece of its body.
    /// A request that was lost with a closed connection is sent again, once.
    pub(super) fn new(
        mut answer: ResponseFuture,
        endpoint: EndpointRef,
        mut sending: Option<Sending>,
        mut replay: Option<Replay>,
        timeouts: Timeouts,
    ) -> Self {
        let limit = timeouts.first_byte;
        let late = sleep(limit);
        #[cfg(feature = "swap")]
        let starts = endpoint.on_demand().map(OnDemand::starts);
        Self(Box::pin(async move {
            let mut late = pin!(late);
            let name = endpoint.name();
            let failure = loop {
                let answered = poll_fn(|cx| {
                    if let Poll::Ready(answered) = Pin::new(&mut answer).poll(cx) {
                        return Poll::Ready(Some(answered));
                    }
                    ready!(late.as_mut().poll(cx));
                    // The body may have moved on meanwhile, so the timeout starts again from its last piece.
                    while let Some(at) = sending.as_ref().and_then(|it| it.late_at(limit))
                        && at > Instant::now()
                    {
                        late.as_mut().reset(at);
                        ready!(late.as_mut().poll(cx));
                    }
                    Poll::Ready(None)
                });
                let error = match answered.await {
                    Some(Ok(response)) => {
                        let answer = answered_by(response, name, sending, timeouts.idle);
                        match with_first_piece(answer, name).await {
                            Ok(answer) => return answer,
                            Err(failure) => break failure,
                        }
                    }
                    Some(Err(error)) => error,
                    None => {
                        tracing::warn!(endpoint = name, ?limit, "no answer in time");
                        return Failure::Timeout(name.to_owned(), limit).response();
                    }
                };
                let replay = replay.take();
                let Some(again) = replay.and_then(|it| it.after(&error, sending.as_ref())) else {
                    break no_response(&error, name, sending);
                };
                tracing::debug!(endpoint = name, error = %Causes(&error), "a kept connection was closed: sent again");
                (answer, sending) = again;
            };
            drop(answer); // closes the connection
            // The response says that a model has ended only if that is known, which may take some time.
            #[cfg(feature = "swap")]
            if let Some(starts) = starts
                && failure.may_be_an_end()
            {
                let end = endpoint.end_since(starts).await;
                let failure = match end {
                    Some(end) => failure.by(end),
                    None => failure,
                };
                let mut response = failure.response();
                response.extensions_mut().insert(SuspicionSettled);
                return response;
            }
            failure.response()
        }))
    }

    pub(super) fn failed(failure: Failure) -> Self {
        Self(Box::pin(async move { failure.response() }))
    }
}

impl Future for ForwardFuture {
    type Output = Result<Response<ForwardBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

fn answered_by(
    mut response: Response<Incoming>,
    name: &str,
    sending: Option<Sending>,
    idle: Duration,
) -> Response<ForwardBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // An upgrade cannot have been requested, because `Upgrade` is not passed on.
        return Failure::Reset(name.to_owned()).response();
    }
    headers::to_client(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    let connection = response.extensions_mut().remove();
    response.map(|body| ForwardBody::endpoint(body, unsent(sending, connection), idle))
}

/// Derives the failure of a request from hyper's error.
fn no_response(error: &Error, name: &str, sending: Option<Sending>) -> Failure {
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
