//! One request on its way over a shared connection.
//!
//! An endpoint ends a connection with a `GOAWAY` that names the last stream it works on, and refuses a single stream with
//! `REFUSED_STREAM`. Both promise that it has not seen a request (RFC 9113, 8.7), so that request is sent again whatever
//! its method is. Without such a promise, the rule is that of HTTP/1.1: a request that met the end of a kept connection
//! before a byte came back is sent again once.

use std::error::Error;

use h2::Reason;
use http::Request;
use http_body::Body;

use super::connection::Http2Connection;
use super::request_body::RequestBody;
use super::shared::SharedConnection;
use crate::upstream::exchange::{Answer, SendError, again, head};
use crate::upstream::future::Causes;
use crate::upstream::upload::{Progress, Upload};

/// The number of times that a request is sent again. If a server limits the requests of a connection, requests that wait for
/// it may be turned away more than once.
const RESENDS: u32 = 3;

/// Sends a request to the endpoint called `name`, and waits for its answer. Dropping the future resets the stream.
///
/// If the request `may_repeat`, it is also sent again when the endpoint may have seen it.
pub(in crate::upstream) async fn send<B>(
    shared: &SharedConnection<B>,
    mut request: Request<Upload<B>>,
    mut may_repeat: bool,
    name: &str,
) -> Result<Answer, SendError>
where
    B: Body + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    shared.address(&mut request);
    let progress = request.body().progress();
    let mut left = RESENDS;
    loop {
        let mut connection = shared.get().await?;
        if let Some(progress) = &progress {
            progress.begin(); // it may have taken time to connect
        }
        let is_kept = connection.was_used();
        let head = head(&request);
        let Failed { error, unread } = match attempt(&mut connection, request).await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let is_unseen = is_unseen(&error, may_repeat);
        let is_stale = may_repeat && is_kept && !connection.has_received();
        let may_resend = left > 0 && (is_unseen || is_stale) && !has_failed(progress.as_ref());
        let body = || unread.or_else(|| again(progress.as_ref()));
        let Some(body) = may_resend.then(body).flatten() else {
            return Err(failure(error, progress.as_ref(), is_unseen));
        };
        tracing::debug!(endpoint = name, error = %Causes(&error), "a stream was turned away: sent again");
        request = head.map(|()| body);
        may_repeat &= is_unseen; // once is enough without a promise
        left -= 1;
    }
}

/// The failure of an attempt, with the request's body if hyper had not begun to read it.
struct Failed<B> {
    error: hyper::Error,
    unread: Option<Upload<B>>,
}

async fn attempt<B>(
    connection: &mut Http2Connection<RequestBody<B>>,
    request: Request<Upload<B>>,
) -> Result<Answer, Failed<B>>
where
    B: Body + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, upload) = request.into_parts();
    let (body, ends) = RequestBody::new(upload);
    let (kept, unread) = ends.map(|ends| (ends.stream, ends.unread)).unzip();
    let stream = connection.begin(kept);
    match connection.send(Request::from_parts(head, body)).await {
        Ok(response) => {
            connection.on_answer();
            Ok((response, Box::new(stream)))
        }
        Err(mut error) => {
            drop(error.take_message()); // its body comes back
            let error = error.into_error();
            let unread = unread.and_then(|mut unread| unread.try_recv().ok());
            Err(Failed { error, unread })
        }
    }
}

/// Returns `true` if the endpoint has not seen the request of this error, by its promise or because hyper did not send it.
///
/// hyper reports the end of a connection as an error of its user if a request was just about to be sent. The end of a
/// runtime looks the same, so that counts only if the request `may_repeat`.
fn is_unseen(error: &hyper::Error, may_repeat: bool) -> bool {
    let cause = error
        .source()
        .and_then(<dyn Error>::downcast_ref::<h2::Error>);
    match cause {
        Some(cause) if cause.is_remote() => {
            cause.is_go_away() || cause.reason() == Some(Reason::REFUSED_STREAM)
        }
        Some(_) => false,
        None => error.is_canceled() || (error.is_user() && may_repeat),
    }
}

/// Returns `true` if the request's body has failed.
fn has_failed(progress: Option<&Progress>) -> bool {
    progress.is_some_and(Progress::has_failed)
}

/// Returns the failure of a request that is not sent again.
fn failure(error: hyper::Error, progress: Option<&Progress>, is_unseen: bool) -> SendError {
    if has_failed(progress) {
        SendError::Body(error)
    } else if is_unseen || progress.is_some_and(|progress| !progress.has_ended()) {
        SendError::NotRead(error)
    } else {
        SendError::Broken(error)
    }
}
