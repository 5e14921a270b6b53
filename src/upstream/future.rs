//! The future of one request to an endpoint.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::iter::successors;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connect::{ConnectError, out_of_files};
use super::exchange::{Answer, Exchange, SendError};
use super::failure::Failure;
use super::first_piece::first_piece;
use super::forward::Timeouts;
use super::redirect::Mount;
use super::upgrade::{self, Upgrade};
use super::upload::{Progress, Upload};
use super::{ForwardBody, headers};
use crate::endpoints::EndpointRef;
use crate::endpoints::on_demand::{OnDemand, SuspicionSettled};
use crate::gate::ClientStall;
use crate::http::BodyFault;

/// The future of a [`Forward`](super::Forward)'s response. Dropping it closes the connection to the endpoint.
#[must_use = "the connection is closed if the future is dropped"]
// The mutex is never locked. It makes the future `Sync`, because only an exclusive reference reaches its content.
pub struct ForwardFuture(Mutex<Pin<Box<dyn Future<Output = Response<ForwardBody>> + Send>>>);

impl ForwardFuture {
    fn boxed(future: impl Future<Output = Response<ForwardBody>> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(future)))
    }

    /// Sends `request`, which begins at `now`, and waits until the endpoint has taken longer than its timeout, and then for
    /// the first piece of the answer's body. `upgrade` is the client's side of a websocket that the request asks for, `stall` the
    /// stalls for which its slot may be recalled, and `mount` its view of the endpoint if the paths have a prefix.
    pub(super) fn new<B>(
        exchange: Exchange<B>,
        request: Request<Upload<B>>,
        now: Instant,
        timeouts: Timeouts,
        (upgrade, stall): (Option<Upgrade>, Option<Arc<ClientStall>>),
        mount: Option<Box<Mount>>,
    ) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let starts = exchange.endpoint.on_demand().map(OnDemand::starts);
        let progress = request.body().progress();
        let is_post = *request.method() == Method::POST;
        // Outside of the future, which would have to be large enough for the request.
        let begun = exchange.begin(request);
        Self::boxed(async move {
            let name = exchange.endpoint.name();
            let limit = timeouts.first_byte;
            let answer = pin!(exchange.answer(begun));
            let failure = match in_time(answer, progress.as_ref(), now, limit).await {
                Some(Ok(answer)) => {
                    let to = (&exchange.endpoint, mount.as_deref());
                    let mut answer = answered_by(answer, to, timeouts.idle, upgrade);
                    let is_sent = progress.as_ref().is_none_or(Progress::has_ended);
                    match first_piece(&mut answer, name, is_sent, is_post).await {
                        Ok(()) => {
                            return match &stall {
                                Some(stall) => answer.map(|body| body.recalled_with(stall)),
                                None => answer,
                            };
                        }
                        Err(failure) => failure,
                    }
                }
                Some(Err(error)) => {
                    let was_unread = starts.is_some() && exchange.was_unread(&error);
                    let failure = no_response(error, name);
                    match was_unread {
                        true => Failure::Unread(name.to_owned()),
                        false => failure,
                    }
                }
                None => {
                    exchange.on_late();
                    tracing::warn!(endpoint = name, ?limit, "no answer in time");
                    return Failure::Timeout(name.to_owned(), limit).response();
                }
            };
            if let Some(starts) = starts
                && failure.may_be_an_end()
            {
                return Box::pin(ended_or(failure, &exchange.endpoint, starts)).await;
            }
            failure.response()
        })
    }

    pub(super) fn failed(failure: Failure) -> Self {
        Self::boxed(async move { failure.response() })
    }
}

impl Future for ForwardFuture {
    type Output = Result<Response<ForwardBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        future.as_mut().poll(cx).map(Ok)
    }
}

/// Waits for an answer until its endpoint has been awaited for `limit`, from `now` or from the last piece of the
/// request's body on. Returns `None` then.
async fn in_time<T>(
    mut answer: Pin<&mut impl Future<Output = T>>,
    progress: Option<&Progress>,
    now: Instant,
    limit: Duration,
) -> Option<T> {
    let mut late = pin!(timer(now, limit));
    poll_fn(|cx| {
        if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answered));
        }
        ready!(late.as_mut().poll(cx));
        // The body may have moved on meanwhile, so the timeout starts again from its last piece.
        while let Some(at) = progress.and_then(|it| it.late_at(limit))
            && at > Instant::now()
        {
            late.as_mut().reset(at);
            ready!(late.as_mut().poll(cx));
        }
        Poll::Ready(None)
    })
    .await
}

/// Returns a timer that fires `limit` after `now`, or in 30 years if that is beyond the end of the clock.
fn timer(now: Instant, limit: Duration) -> Sleep {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    sleep_until(now.checked_add(limit).unwrap_or_else(|| now + FAR))
}

/// Returns the response in place of an answer that an endpoint on demand did not give. The response says that a model
/// has ended only if that is known, which may take some time.
async fn ended_or(failure: Failure, endpoint: &EndpointRef, starts: u64) -> Response<ForwardBody> {
    let failure = match endpoint.end_since(starts).await {
        Some(end) => failure.by(end),
        None => failure,
    };
    let mut response = failure.response();
    response.extensions_mut().insert(SuspicionSettled);
    response
}

fn answered_by(
    (mut response, connection): Answer,
    (endpoint, mount): (&EndpointRef, Option<&Mount>),
    idle: Duration,
    upgrade: Option<Upgrade>,
) -> Response<ForwardBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return match upgrade {
            Some(client) => {
                upgrade::switched((response, connection), (endpoint, mount), client, idle)
            }
            None => Failure::Reset(endpoint.name().to_owned()).response(), // it was not asked to
        };
    }
    headers::to_client(response.headers_mut(), endpoint.url(), mount);
    *response.version_mut() = Version::HTTP_11;
    response.map(|body| ForwardBody::endpoint(body, connection, idle))
}

/// Derives the failure of a request from its error.
fn no_response(error: SendError, name: &str) -> Failure {
    tracing::warn!(endpoint = name, error = %Causes(&error), "no answer from the endpoint");
    let name = name.to_owned();
    if out_of_files(&error) {
        return Failure::OutOfFiles(name);
    }
    match error {
        SendError::Connect(ConnectError::TimedOut(limit)) => Failure::ConnectTimeout(name, limit),
        SendError::Connect(ConnectError::Unsupported(why)) => Failure::Unsupported(name, why),
        SendError::Connect(ConnectError::Failed(_)) => Failure::Unreachable(name),
        SendError::Body(error) => match BodyFault::of(&error) {
            Some(fault) => Failure::BodyFault(fault),
            None => Failure::Body(name),
        },
        SendError::NotRead(_) => Failure::NotRead(name),
        SendError::Broken(_) => Failure::Reset(name),
    }
}

/// An error together with its causes.
pub(super) struct Causes<'a>(pub(super) &'a (dyn Error + 'static));

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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::super::connect::Connector;
    use super::super::exchange::Way;
    use super::super::lookups::Lookups;
    use super::super::pools::pool_of;
    use super::*;
    use crate::endpoints::{Endpoint, Endpoints, Model, Registry};

    /// The future is moved once, into its box, so its size is a cost of each request.
    #[tokio::test]
    async fn the_future_of_a_request_is_small() {
        let endpoint = Endpoint::new("a", "http://127.0.0.1:9".parse().unwrap());
        let registry = Registry::new(vec![endpoint.model(Model::new("m"))]).unwrap();
        let endpoint = Endpoints::new(registry).endpoints()[0].clone();
        let connector = Arc::new(Connector::new(Lookups::default()));
        let way = Way::Kept(pool_of::<Full<Bytes>>(&endpoint, &connector));
        let exchange = Exchange {
            endpoint,
            connector,
            way,
        };
        let now = Instant::now();
        let request = Request::new(Upload::new(Full::default(), None, now));
        let future = ForwardFuture::new(
            exchange,
            request,
            now,
            Timeouts::default(),
            (None, None),
            None,
        );
        let size = size_of_val(&**future.0.lock().unwrap());
        assert!(size <= 2_304, "{size}");
    }
}
