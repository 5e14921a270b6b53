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
use super::pool::{InUse, Release, Taken, Unpooled};
use super::pools::SharedPool;
use super::upload::{Progress, Upload};
use crate::endpoints::EndpointRef;

/// The way of a request to its endpoint.
pub(super) struct Exchange<B> {
    pub(super) endpoint: EndpointRef,
    pub(super) connector: Arc<Connector>,
    /// The kept connections. `None` if the request needs a new one.
    pub(super) pool: Option<SharedPool<B>>,
    /// `true` if the new connection may change its protocol.
    pub(super) may_upgrade: bool,
}

/// The answer of an endpoint, with the connection that it comes over.
pub(super) type Answer = (Response<Incoming>, Box<dyn Release>);

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("there is no connection")]
    Connect(#[from] ConnectError),
    #[error("the connection broke")]
    Broken {
        #[source]
        error: hyper::Error,
        /// `true` if a part of the request's body was unsent.
        is_unsent: bool,
    },
}

impl<B> Exchange<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends a request and waits for its answer. Dropping the future closes the connection.
    pub(super) async fn send(&self, mut request: Request<Upload<B>>) -> Result<Answer, SendError> {
        let progress = request.body().progress();
        let mut pool = self.pool.as_ref();
        loop {
            let (mut in_use, is_kept) = self.connect(pool).await?;
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
                let name = self.endpoint.name();
                tracing::debug!(endpoint = name, error = %Causes(&error), "a kept connection was closed: sent again");
                request = head.map(|()| body);
                pool = None;
                continue;
            }
            let is_sent = |progress: &Progress| progress.has_ended() && state.is_flushed();
            let is_unsent = progress.is_some_and(|progress| !is_sent(&progress));
            return Err(SendError::Broken { error, is_unsent });
        }
    }

    /// Returns a connection for a request, with `true` if it was kept from before the request.
    async fn connect(
        &self,
        pool: Option<&SharedPool<B>>,
    ) -> Result<(Box<dyn InUse<Upload<B>>>, bool), ConnectError> {
        let Some(pool) = pool else {
            let (to, clock) = (self.endpoint.url().clone(), Arc::default());
            // Boxed, because it would make the futures of all requests several KiB larger.
            let opening = Box::pin(ClientConnection::open(
                &self.connector,
                to,
                clock,
                self.may_upgrade,
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
fn head<B>(request: &Request<B>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    head
}

/// Returns the body of a request that is sent again, if all of it is there.
fn again<B>(progress: Option<&Progress>) -> Option<Upload<B>> {
    match progress {
        None => Some(Upload::empty()),
        Some(progress) => progress.again(),
    }
}
