//! One request on its way over a shared connection.
//!
//! An endpoint ends a connection with a `GOAWAY` that names the last stream it works on, and refuses a single stream with
//! `REFUSED_STREAM`. Both promise that it has not seen a request (RFC 9113, 8.7), so that request is sent again whatever
//! its method is. Without such a promise, the rule is that of HTTP/1.1: a request that met the end of a kept connection
//! before a byte came back is sent again once.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use h2::Reason;
use http::Request;
use http_body::Body;

use super::connection::{Http2Connection, Stream};
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
    is_late: &Arc<AtomicBool>,
    name: &str,
) -> Result<Answer, SendError>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    shared.address(&mut request);
    let progress = request.body().progress();
    let (mut left, is_at_most_once) = (RESENDS, !may_repeat);
    loop {
        let (mut connection, stream) = shared.get().await?;
        if let Some(progress) = &progress {
            progress.begin(); // it may have taken time to connect
        }
        let is_kept = connection.was_used();
        let head = head(&request);
        let attempt = attempt(&mut connection, stream, is_late, request);
        let Failed { error, unread } = match attempt.await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        // A body that was not read shows that it is not the end of the runtime.
        let is_unseen = is_unseen(&error, may_repeat || unread.is_some());
        let is_stale = may_repeat && is_kept && !connection.has_received();
        let may_resend = left > 0
            && (is_unseen || is_stale)
            && !has_failed(progress.as_ref())
            && !is_protest(&error);
        let body = || unread.or_else(|| again(progress.as_ref()));
        let Some(body) = may_resend.then(body).flatten() else {
            // An endpoint that closes each connection before a request is sent is at fault.
            let is_unread = is_unseen && (is_promised(&error) || is_at_most_once);
            return Err(failure(error, progress.as_ref(), is_unread));
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
    mut stream: Stream,
    is_late: &Arc<AtomicBool>,
    request: Request<Upload<B>>,
) -> Result<Answer, Failed<B>>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, upload) = request.into_parts();
    let (body, shared) = RequestBody::new(upload);
    let ends = shared.as_ref().map(|shared| Box::new(shared.ends()) as _);
    stream.set(is_late, ends);
    match connection.send(Request::from_parts(head, body)).await {
        Ok(response) => {
            stream.on_answer();
            Ok((response, Box::new(stream)))
        }
        Err(mut error) => {
            drop(error.take_message()); // the stream shares its body
            let error = error.into_error();
            let unread = shared.and_then(|shared| shared.take_unread());
            Err(Failed { error, unread })
        }
    }
}

/// Returns `true` if the endpoint has not seen the request of this error, by its promise or because hyper did not send it.
///
/// hyper reports the end of a connection as an error of its user if a request was just about to be sent. The end of a
/// runtime looks the same, so that counts only if it is `safe` to send the request again.
fn is_unseen(error: &hyper::Error, safe: bool) -> bool {
    match cause(error) {
        Some(_) => is_promised(error),
        None => error.is_canceled() || (error.is_user() && safe),
    }
}

/// Returns `true` if the endpoint promises that it has not seen the request.
fn is_promised(error: &hyper::Error) -> bool {
    cause(error).is_some_and(|cause| {
        let is_refused = cause.reason() == Some(Reason::REFUSED_STREAM);
        cause.is_remote() && (cause.is_go_away() || is_refused)
    })
}

/// Returns `true` if the endpoint has ended the connection because of what was sent. It may have been this request, which would
/// end the next connection with all its streams as well.
fn is_protest(error: &hyper::Error) -> bool {
    cause(error).is_some_and(|cause| {
        cause.is_go_away() && cause.is_remote() && cause.reason() != Some(Reason::NO_ERROR)
    })
}

/// Returns the error of the protocol behind an error.
fn cause(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// Returns `true` if the request's body has failed.
fn has_failed(progress: Option<&Progress>) -> bool {
    progress.is_some_and(Progress::has_failed)
}

/// Returns the failure of a request that is not sent again.
fn failure(error: hyper::Error, progress: Option<&Progress>, is_unread: bool) -> SendError {
    if has_failed(progress) {
        SendError::Body(error)
    } else if is_unread || progress.is_some_and(|progress| !progress.has_ended()) {
        SendError::NotRead(error)
    } else {
        SendError::Broken(error)
    }
}
