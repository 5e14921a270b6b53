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
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::client_connection::{ClientConnection, Sent};
use super::connect::{ConnectError, Connector, was_reset};
use super::future::Causes;
use super::http2;
use super::pool::{InUse, Opening, Release, Taken, Unpooled};
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
    Http2 {
        shared: Shared<B>,
        may_repeat: bool,
        /// `true` once the endpoint has not answered in time.
        is_late: Arc<AtomicBool>,
    },
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

/// A request whose sending has begun. `F` is the future of its answer.
pub(super) enum Begun<B, F> {
    /// The request is on its way over a kept connection.
    OnItsWay {
        connection: Box<dyn InUse<Upload<B>>>,
        answer: F,
        /// Boxed, because it is large, and rarely needed.
        head: Box<Request<()>>,
        progress: Option<Progress>,
    },
    Unsent(Box<Unsent<B>>),
}

/// A request that waits for a connection.
pub(super) struct Unsent<B> {
    request: Request<Upload<B>>,
    /// An attempt to get a connection of the pool.
    opening: Option<Opening<Upload<B>>>,
    /// `true` if the pool's connections are closed, so that the request needs a new one.
    is_stale: bool,
}

impl<B> Exchange<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Begins to send a request. It is on its way at once if a kept connection is idle.
    pub(super) fn begin(
        &self,
        request: Request<Upload<B>>,
    ) -> Begun<B, impl Future<Output = Sent<Upload<B>>> + use<B>> {
        let opening = match &self.way {
            Way::Kept(pool) => match Arc::clone(pool).take() {
                Taken::Idle(mut connection) => {
                    let head = Box::new(head(&request));
                    let progress = request.body().progress();
                    let answer = connection.connection().send(request, progress.clone());
                    return Begun::OnItsWay {
                        connection,
                        answer,
                        head,
                        progress,
                    };
                }
                Taken::Opening(opening) => Some(opening),
            },
            Way::New { .. } | Way::Http2 { .. } => None,
        };
        Begun::Unsent(Box::new(Unsent {
            request,
            opening,
            is_stale: false,
        }))
    }

    /// Records that the endpoint has not answered in time, before the future of the answer is dropped.
    pub(super) fn on_late(&self) {
        if let Way::Http2 { is_late, .. } = &self.way {
            is_late.store(true, Relaxed); // read by the same task
        }
    }

    /// Waits for the answer to a request. Dropping the future closes the connection, or resets the stream.
    pub(super) async fn answer<F>(&self, begun: Begun<B, F>) -> Result<Answer, SendError>
    where
        F: Future<Output = Sent<Upload<B>>>,
    {
        let unsent = match begun {
            Begun::Unsent(unsent) => unsent,
            Begun::OnItsWay {
                connection,
                answer,
                head,
                progress,
            } => match answer.await {
                Ok(response) => return Ok((response, connection)),
                Err(error) => self.lost(error, connection, Some(head), progress.as_ref())?,
            },
        };
        // Boxed, because it would make the futures of all requests larger.
        Box::pin(self.send(unsent)).await
    }

    /// Sends a request for which no kept connection was idle.
    async fn send(&self, mut unsent: Box<Unsent<B>>) -> Result<Answer, SendError> {
        let name = self.endpoint.name();
        let (pool, may_upgrade) = match &self.way {
            Way::Kept(pool) => (Some(pool), false),
            Way::New { may_upgrade } => (None, *may_upgrade),
            Way::Http2 {
                shared,
                may_repeat,
                is_late,
            } => {
                return http2::send(shared, unsent.request, *may_repeat, is_late, name).await;
            }
        };
        let progress = unsent.request.body().progress();
        loop {
            let pool = pool.filter(|_| !unsent.is_stale);
            let opening = unsent.opening.take();
            let (mut connection, is_kept) = self.connect(pool, opening, may_upgrade).await?;
            if !is_kept && let Some(progress) = &progress {
                progress.begin(); // it took time to connect
            }
            // Only a kept connection may have been closed, so only then the request may be needed again.
            let head = is_kept.then(|| Box::new(head(&unsent.request)));
            let sending = connection.connection();
            let sent = sending.send(unsent.request, progress.clone()).await;
            unsent = match sent {
                Ok(response) => return Ok((response, connection)),
                Err(error) => self.lost(error, connection, head, progress.as_ref())?,
            };
        }
    }

    /// Returns the request for another attempt, if its kept connection was closed before a byte of an answer. The connection
    /// was kept if there is a `head`.
    #[cold]
    fn lost(
        &self,
        mut error: TrySendError<Request<Upload<B>>>,
        mut connection: Box<dyn InUse<Upload<B>>>,
        head: Option<Box<Request<()>>>,
        progress: Option<&Progress>,
    ) -> Result<Box<Unsent<B>>, SendError> {
        if head.is_some()
            && let Some(request) = error.take_message()
        {
            // hyper knew in time that the connection was closed.
            return Ok(Box::new(Unsent {
                request,
                opening: None,
                is_stale: false,
            }));
        }
        let error = error.into_error();
        let state = connection.connection().state();
        let is_stale = !state.has_answered() && !error.is_user();
        if let Some(head) = head.filter(|_| is_stale)
            && let Some(body) = again(progress)
        {
            let endpoint = self.endpoint.name();
            tracing::debug!(endpoint, error = %Causes(&error), "a kept connection was closed: sent again");
            return Ok(Box::new(Unsent {
                request: head.map(|()| body),
                opening: None,
                is_stale,
            }));
        }
        let is_sent = |progress: &Progress| progress.has_ended() && state.is_flushed();
        Err(match progress {
            _ if error.is_user() => SendError::Body(error),
            Some(progress) if !is_sent(progress) => SendError::NotRead(error),
            _ => SendError::Broken(error),
        })
    }

    /// Returns `true` if the endpoint closed the connection before it had read the whole request, and the request may be sent
    /// again. The system resets a connection that is closed with bytes that were not read.
    pub(super) fn was_unread(&self, error: &SendError) -> bool {
        let is_unread = match error {
            SendError::NotRead(_) => true,
            SendError::Broken(error) => was_reset(error),
            SendError::Connect(_) | SendError::Body(_) => false,
        };
        is_unread && matches!(self.way, Way::Kept(_))
    }

    /// Returns a connection for a request, with `true` if it was kept from before the request. Without an `opening`, one of
    /// `pool` is taken, or a new one is opened if there is no pool.
    async fn connect(
        &self,
        pool: Option<&SharedPool<B>>,
        mut opening: Option<Opening<Upload<B>>>,
        may_upgrade: bool,
    ) -> Result<(Box<dyn InUse<Upload<B>>>, bool), ConnectError> {
        let Some(pool) = pool else {
            let (to, clock) = (self.endpoint.url().clone(), Arc::default());
            let connection =
                ClientConnection::open(&self.connector, to, clock, None, may_upgrade).await?;
            return Ok((Box::new(Unpooled(connection)), false));
        };
        loop {
            let opening = match opening.take() {
                Some(opening) => opening,
                None => match Arc::clone(pool).take() {
                    Taken::Idle(in_use) => return Ok((in_use, true)),
                    Taken::Opening(opening) => opening,
                },
            };
            if let Some(mut in_use) = opening.await? {
                let was_used = in_use.connection().was_used();
                return Ok((in_use, was_used));
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
