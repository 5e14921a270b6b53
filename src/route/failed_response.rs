//! The response of a failed attempt, which is read before the next attempt begins.
//!
//! An unread response would keep its connection, and keep its endpoint busy although the slot is free again.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::clock;
use crate::endpoints::Endpoints;
use crate::gate::Permit;
use crate::http::read_short;

pin_project! {
    /// The body of a failed attempt's response, while it is read. It has its slot until then.
    ///
    /// Resolves to `None` if it is too long, takes too long, or breaks off.
    pub(super) struct ReadFailed<R> {
        #[pin]
        body: Option<R>,
        read: BytesMut,
        // `None` without Tokio's clock.
        #[pin]
        late: Option<Sleep>,
        // Released once the body is dropped.
        permit: Option<Permit<Endpoints>>,
    }
}

/// Slower bodies are not kept: the request waits meanwhile.
const TIME_LIMIT: Duration = Duration::from_secs(1);

impl<R> ReadFailed<R> {
    /// Without a `body`, there was no response.
    pub(super) fn new(body: Option<R>, permit: Permit<Endpoints>) -> Self {
        Self {
            body,
            read: BytesMut::new(),
            late: clock::sleep_until(clock::now() + TIME_LIMIT),
            permit: Some(permit),
        }
    }
}

impl<R: Body<Data = Bytes>> Future for ReadFailed<R> {
    type Output = Option<Bytes>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut this = self.project();
        let is_whole = match this.body.as_mut().as_pin_mut() {
            Some(body) => match read_short(body, this.read, cx) {
                Poll::Ready(is_whole) => is_whole,
                Poll::Pending => {
                    if let Some(late) = this.late.as_pin_mut() {
                        ready!(late.poll(cx));
                    }
                    false
                }
            },
            None => true,
        };
        this.body.set(None); // before the slot: dropping it ends the endpoint's work
        *this.permit = None;
        Poll::Ready(is_whole.then(|| this.read.split().freeze()))
    }
}
