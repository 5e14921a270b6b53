//! A request that can be sent again, because the kept connection that carried it had been closed.
//!
//! An endpoint may close an idle connection at any time, while a request may already be on its way. Such a request
//! meets the end of the connection before a byte of an answer. All clients recognise a request that its server did not
//! see by this sign (RFC 9112, 9.3.1), so it may be sent again whatever its method is (RFC 9110, 9.2.2). An endpoint
//! that read the request and crashed looks the same, so it gets the request a second time, but not more often.
//!
//! On a new connection, the same end is a failure. An end after the first byte of an answer is a failure, too.

use std::error::Error as _;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::{Client, Error, ResponseFuture};

use super::connect::Connector;
use super::connection::{ConnectionHandle, LogicalTime};
use super::upload::{Sending, Upload, watched};

/// A client that makes a new connection for each request.
pub(super) type ReplayClient = Client<Connector, Upload<Full<Bytes>>>;

/// The head of a request, with all that is needed to send the request once more.
pub(super) struct Replay {
    client: Arc<ReplayClient>,
    head: Request<()>,
    begun: LogicalTime,
}

impl Replay {
    /// Keeps the head of `request`, which begins now.
    pub(super) fn of<B>(request: &Request<B>, client: &Arc<ReplayClient>) -> Self {
        let mut head = Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = request.uri().clone();
        *head.headers_mut() = request.headers().clone();
        Self {
            client: Arc::clone(client),
            head,
            begun: LogicalTime::now(),
        }
    }

    /// Sends the request again on a new connection. This is done only if the request failed because a kept connection
    /// had been closed, and if all of its body is there.
    pub(super) fn after(
        self,
        error: &Error,
        sending: Option<&Sending>,
    ) -> Option<(ResponseFuture, Option<Sending>)> {
        let cause = error
            .source()
            .and_then(|it| it.downcast_ref::<hyper::Error>());
        if error.is_connect() || cause.is_some_and(hyper::Error::is_user) {
            return None;
        }
        let connection = error.connect_info().and_then(ConnectionHandle::of)?;
        if !connection.was_stale(self.begun) {
            return None;
        }
        let body = match sending {
            None => Bytes::new(),
            Some(sending) => sending.take_whole()?,
        };
        let (request, sending) = watched(self.head.map(|()| Full::new(body)));
        Some((self.client.request(request), sending))
    }
}
