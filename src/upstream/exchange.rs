//! One request on its way to an endpoint, over a kept connection or a new one.
//!
//! An endpoint may close an idle connection at any time, while a request may already be on its way. Such a request
//! meets the end of the connection before a byte of an answer. All clients recognise a request that its server did not
//! see by this sign (RFC 9112, 9.3.1), so it may be sent again whatever its method is (RFC 9110, 9.2.2). An endpoint
//! that read the request and crashed looks the same, so it gets the request a second time, but not more often.
//!
//! On a new connection, the same end is a failure. An end after the first byte of an answer is a failure, too.

use std::error::Error;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::client_connection::ClientConnection;
use super::connect::{ConnectError, Connector};
use super::future::Causes;
use super::http2;
use super::pool::{InUse, Release, Taken, Unpooled};
use super::pools::{Shared, SharedPool};
use super::upload::{Progress, Upload};
use crate::endpoints::EndpointRef;

/// The way of a request to its endpoint.
pub(super) struct Exchange<B> {
    pub(super) endpoint: EndpointRef,
    pub(super) connector: Arc<Connector>,
    pub(super) way: Way<B>,
}

/// The connections that a request may use.
pub(super) enum Way<B> {
    /// A kept connection of HTTP/1.1, or a new one, which is kept afterwards.
    Kept(SharedPool<B>),
    /// A new connection of HTTP/1.1, for this request alone. It may change its protocol if it `may_upgrade`.
    New { may_upgrade: bool },
    /// The connection of HTTP/2 that all requests share. If it breaks, a request that `may_repeat` is sent again though the
    /// endpoint may have seen it.
    Http2 { shared: Shared<B>, may_repeat: bool },
}

/// The answer of an endpoint, with the connection that it comes over.
pub(super) type Answer = (Response<Incoming>, Box<dyn Release>);

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("there is no connection")]
    Connect(#[from] ConnectError),
    #[error("the request's body broke off")]
    Body(#[source] hyper::Error),
    #[error("the connection broke before the request's body was sent")]
    NotRead(#[source] hyper::Error),
    #[error("the connection broke")]
    Broken(#[source] hyper::Error),
}

impl<B> Exchange<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends a request and waits for its answer. Dropping the future closes the connection, or resets the stream.
    pub(super) async fn send(&self, mut request: Request<Upload<B>>) -> Result<Answer, SendError> {
        let name = self.endpoint.name();
        let (mut pool, may_upgrade) = match &self.way {
            Way::Kept(pool) => (Some(pool), false),
            Way::New { may_upgrade } => (None, *may_upgrade),
            Way::Http2 { shared, may_repeat } => {
                // Boxed, because it would make the futures of all requests larger.
                return Box::pin(http2::send(shared, request, *may_repeat, name)).await;
            }
        };
        let progress = request.body().progress();
        loop {
            let (mut in_use, is_kept) = self.connect(pool, may_upgrade).await?;
            if !is_kept && let Some(progress) = &progress {
                progress.begin(); // it took time to connect
            }
            // Only a kept connection may have been closed, so only then the request may be needed again.
            let head = is_kept.then(|| head(&request));
            let connection = in_use.connection();
            let mut error = match connection.send(request, progress.clone()).await {
                Ok(response) => return Ok((response, in_use)),
                Err(error) => error,
            };
            if is_kept && let Some(unsent) = error.take_message() {
                request = unsent; // hyper knew in time that the connection was closed
                continue;
            }
            let error = error.into_error();
            let state = in_use.connection().state();
            let is_stale = !state.has_answered() && !error.is_user();
            if let Some(head) = head.filter(|_| is_stale)
                && let Some(body) = again(progress.as_ref())
            {
                tracing::debug!(endpoint = name, error = %Causes(&error), "a kept connection was closed: sent again");
                request = head.map(|()| body);
                pool = None;
                continue;
            }
            let is_sent = |progress: &Progress| progress.has_ended() && state.is_flushed();
            return Err(match progress {
                _ if error.is_user() => SendError::Body(error),
                Some(progress) if !is_sent(&progress) => SendError::NotRead(error),
                _ => SendError::Broken(error),
            });
        }
    }

    /// Returns a connection for a request, with `true` if it was kept from before the request.
    async fn connect(
        &self,
        pool: Option<&SharedPool<B>>,
        may_upgrade: bool,
    ) -> Result<(Box<dyn InUse<Upload<B>>>, bool), ConnectError> {
        let Some(pool) = pool else {
            let (to, clock) = (self.endpoint.url().clone(), Arc::default());
            // Boxed, because it would make the futures of all requests several KiB larger.
            let opening = Box::pin(ClientConnection::open(
                &self.connector,
                to,
                clock,
                may_upgrade,
            ));
            let connection = opening.await?;
            return Ok((Box::new(Unpooled(connection)), false));
        };
        loop {
            match Arc::clone(pool).take() {
                Taken::Idle(in_use) => return Ok((in_use, true)),
                Taken::Opening(opening) => {
                    if let Some(mut in_use) = opening.await? {
                        let was_used = in_use.connection().was_used();
                        return Ok((in_use, was_used));
                    }
                }
            }
        }
    }
}

/// Returns a copy of the head of a request.
pub(super) fn head<B>(request: &Request<B>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    head
}

/// Returns the body of a request that is sent again, if all of it is there.
pub(super) fn again<B>(progress: Option<&Progress>) -> Option<Upload<B>> {
    match progress {
        None => Some(Upload::empty()),
        Some(progress) => progress.again(),
    }
}
