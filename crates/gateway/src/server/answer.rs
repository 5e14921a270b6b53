//! The future of a response on a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body as PageBody;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body::Body;
use http_body_util::BodyExt;
use pin_project_lite::pin_project;

use super::activity::Served;
use super::body::ServedBody;
use crate::answer_memory::AnswerShare;
use crate::track::{Tracked, TrackedBody};

pin_project! {
    /// The answer to a tracked request: the handler's, or an error if the request's body stalls or an operator cancels the
    /// request. The body of a websocket runs in a task of its own, because the server drops it.
    ///
    /// One future does all of it, because each further one would move the response. An `async` block would have room for the
    /// handler's future more than once, and the server moves all of it.
    pub(super) struct AnswerFuture<F> {
        // Dropped first, so that the request's work has ended by the time of its log line.
        #[pin]
        response: F,
        // `None` once the response is there.
        request: Option<InProgress>,
    }
}

/// A request without a response.
struct InProgress {
    version: Version,
    // Dropped before `served`, after which the server may stop, so that the log line is written by then.
    tracked: Box<Tracked>,
    served: Served,
    /// The share of the answer in the memory of what is to be sent. `None` over HTTP/1.
    unsent: Option<AnswerShare>,
}

impl<F> AnswerFuture<F> {
    pub(super) fn new(
        response: F,
        version: Version,
        served: Served,
        tracked: Box<Tracked>,
        unsent: Option<AnswerShare>,
    ) -> Self {
        let request = Some(InProgress {
            version,
            served,
            tracked,
            unsent,
        });
        Self { response, request }
    }
}

impl<F, B> Future for AnswerFuture<F>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<Response<ServedBody<TrackedBody<B>>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(InProgress {
            tracked, served, ..
        }) = this.request
        else {
            answered();
        };
        let exchange = &served.exchange;
        let polled = tracked.poll(cx, |cx| exchange.poll_response(this.response, cx));
        let response = ready!(polled);
        let Some(request) = this.request.take() else {
            answered();
        };
        Poll::Ready(Ok(match response {
            Some(Some(response)) => request.respond(response, TrackedBody::new),
            Some(None) => {
                let late = request.body_timeout();
                request.respond(late, TrackedBody::page)
            }
            // The server drops the future with the response in hand, which takes the request out of the queue or closes
            // the connection to its endpoint.
            None => {
                let page = request.tracked.cancelled();
                request.respond(page, |page, _| TrackedBody::last(page))
            }
        }))
    }
}

impl InProgress {
    /// Returns the response to a client that does not send the rest of its request.
    fn body_timeout(&self) -> Response<PageBody> {
        let mut response = self.tracked.error(
            StatusCode::REQUEST_TIMEOUT,
            "request_body_timeout",
            "the rest of the request's body did not arrive in time".to_owned(),
        );
        if self.version < Version::HTTP_2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }

    /// Completes a response, whose body `wrap` makes a tracked one.
    #[inline]
    fn respond<R, B>(
        mut self,
        mut response: Response<R>,
        wrap: impl FnOnce(R, Box<Tracked>) -> TrackedBody<B>,
    ) -> Response<ServedBody<TrackedBody<B>>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.tracked.answered(&mut response);
        let version = self.version;
        let is_websocket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        response.map(|body| {
            let body = wrap(body, self.tracked);
            if is_websocket {
                tokio::spawn(body.collect());
                return ServedBody::new(None, version, self.unsent, self.served);
            }
            ServedBody::new(Some(body), version, self.unsent, self.served)
        })
    }
}

/// Panics because the future was polled after it had resolved.
fn answered() -> ! {
    panic!("response future polled after it was answered")
}
